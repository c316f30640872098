// Reading JSON that somebody else has written: a file, a peer, a variable. It is read to a depth and no deeper, for
// values that are copied, compared or printed take a part of the stack for each level: 400,000 "[" would take all of
// it. Nothing else in the project parses JSON (tests/house/house_test.py).
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace tessera {

// What a text of JSON is, as messages say it, and how far it may go.
struct JsonKind {
  const char* name;  // "machine profile"
  // Of lists and objects within each other: [[1]] has two. More than any text of the kind has.
  int max_levels = 16;
  int64_t max_bytes = std::numeric_limits<int64_t>::max();
  // Refuses an object that has a member twice: readers would disagree about which one counts. Else the last one does.
  bool refuses_repeated = false;
  // Leaves out lists and objects below the last level, and the members that hold them, instead of refusing the text.
  bool leaves_out_deeper = false;
};

// Returns the value of `text`; `Json` is nlohmann::json or nlohmann::ordered_json.
// Throws InvalidArgument where the text is longer than its kind may be, is not JSON, nests too deep or repeats a member
// that it must not. The message begins with `subject`, which mostly is the file's name and may be empty, and says the
// line and what cannot stand there.
template <typename Json>
Json parse_bounded_json(std::string_view text, std::string_view subject, const JsonKind& kind);

// The same for texts of which a bad one is passed over, as a line of a log: where parse_bounded_json() throws it
// returns a value that is_discarded(), and so no object and no list.
template <typename Json>
Json parse_json_or_discard(std::string_view text, const JsonKind& kind);

}  // namespace tessera
