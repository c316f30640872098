// What is said of an option of a model, once, beside the struct that has it: each struct of options has a function
// for_each_option() that names its members one after the other. Python's arguments with their types, defaults and help,
// and the warnings of the parallel modes, are made of these; tests/house holds that nothing else names an option.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "tessera/train/options/parallel_mode.h"

namespace tessera::train {

// What a parallel mode makes of an option.
enum class OptionUse {
  kRead,     // the option changes what is trained, how it is spread, or which files are written
  kImplied,  // the mode does what the option asks for, whether it is set or not
  kUnused,   // the option has no effect, which is said
  kRefused,  // a model of this mode throws InvalidArgument for the option
};

// What each parallel mode makes of an option: as many uses as there are modes, or it does not compile.
class OptionUses {
 public:
  template <std::same_as<OptionUse>... Uses>
  requires(sizeof...(Uses) == kNumParallelModes) constexpr OptionUses(Uses... uses)
      : by_mode_{uses...} {}  // NOLINT: a row of the table is written as a list

  constexpr OptionUse in(ParallelMode mode) const { return by_mode_[static_cast<size_t>(mode)]; }

 private:
  std::array<OptionUse, kNumParallelModes> by_mode_;
};

struct OptionInfo {
  std::string_view name;  // the keyword in Python
  std::string_view doc;   // what it does, in sentences; the default is shown beside it
  // What the modes make of it, in the order of ParallelMode; absent: it means the same in all of them.
  std::optional<OptionUses> uses = {};
  std::string_view member = {};                // of the struct, where that is another word
  std::vector<std::string_view> needs = {};    // the options of which one must be set, too, as C++ calls them
  std::vector<std::string_view> unless = {};   // those of which none may be set, or this one has no effect
  std::vector<std::string_view> without = {};  // those of which none may be set, or a model throws InvalidArgument
  // Where a mode refuses it, or one of `without` is set; empty: to train in a mode that does not.
  std::string_view way_out = {};
  bool names_file = false;   // a single rank splits nothing: it neither reads nor writes this file
  bool needs_ranks = false;  // on a single rank it has no effect, which is said
  bool is_bytes = false;     // a size, which Python takes as a text like "2GiB", too
  // A whole number is from `least` to `most`.
  int64_t least = std::numeric_limits<int64_t>::min();
  int64_t most = std::numeric_limits<int64_t>::max();

  // What C++ calls it.
  std::string_view name_in_cpp() const { return member.empty() ? name : member; }
};

}  // namespace tessera::train
