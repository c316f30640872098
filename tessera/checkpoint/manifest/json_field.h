// Reading JSON that may be damaged or hostile: nesting is bounded, and every fault names the file and the field
// ("tensors[3].slices[0].size_bytes").
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::checkpoint {

// Deeper than any file of ours nests.
inline constexpr int kMaxJsonDepth = 8;

// Throws InvalidArgument naming `path` when the text is not JSON, nests deeper than kMaxJsonDepth or has a member twice
// in one object: readers would disagree about which one counts.
nlohmann::json parse_json(std::string_view text, const std::string& path);

// A value inside a parsed file and its name in messages. Reading a value that is not of the kind asked for throws
// InvalidArgument. `path` and `json` must outlive the field.
class JsonField {
 public:
  // `what` names the whole file: "the manifest".
  JsonField(const std::string& path, std::string_view what, const nlohmann::json& json)
      : path_(&path), root_(what), json_(&json) {}

  // Throws "PATH: FIELD EXPECTED, got VALUE".
  [[noreturn]] void fail(const std::string& expected) const;

  JsonField operator[](const char* member) const;
  bool has(const char* member) const { return json_->is_object() && json_->contains(member); }
  bool is_array() const { return json_->is_array(); }
  // The items of an array, at most `limit`.
  std::vector<JsonField> items(size_t limit) const;
  // Names and values of an object, at most `limit`, sorted by name.
  std::vector<std::pair<std::string, JsonField>> members(size_t limit) const;

  std::string text() const;
  bool boolean() const;
  uint64_t unsigned_integer() const;
  // Returns an integer in [0, max].
  int64_t count(int64_t max = std::numeric_limits<int64_t>::max()) const { return integer(0, max); }
  // Returns an integer in [min, max].
  int64_t integer(int64_t min, int64_t max) const;

 private:
  JsonField(const JsonField& parent, std::string name, const nlohmann::json& json)
      : path_(parent.path_), root_(parent.root_), name_(std::move(name)), json_(&json) {}

  const std::string* path_;
  std::string_view root_;
  std::string name_;  // "" of the whole file
  const nlohmann::json* json_;
};

}  // namespace tessera::checkpoint
