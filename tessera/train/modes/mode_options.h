// Which options of a model have an effect in which parallel mode. The table of this file is what a model reads when it
// says that an option was set and has none; docs/decisions.md, "options without effect", has the rule.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/train/options/model_options.h"

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

struct ModeOption {
  std::string_view name;                // the member of ModelOptions; automatic.<member> for one of its own
  OptionUses uses;                      // in the order of ParallelMode
  bool (*is_set)(const ModelOptions&);  // whether it differs from the default
  std::string_view needs = {};          // the options of which one must be set, too; "": none
  bool (*has_needed)(const ModelOptions&) = nullptr;
  bool names_file = false;  // a single rank splits nothing: it neither reads nor writes this file

  OptionUse use_in(ParallelMode mode) const { return uses.in(mode); }
};

// The mode whose file does the work: automatic parallelism with stages is a pipeline that finds where it is cut.
ParallelMode working_mode(const ModelOptions& options);

// Returns how many rows each micro-batch has of a batch of so many. Throws InvalidArgument where they would not be
// equally many.
int64_t rows_of_micro_batch(int64_t rows, int64_t micro_batches);

// The options whose effect depends on the parallel mode.
std::span<const ModeOption> mode_options();

// One line for each option that is set and has no effect on a model of this mode with so many ranks, as "full_batch has
// no effect in data_parallel: only in semi_auto_parallel, auto_parallel".
std::vector<std::string> unused_options(const ModelOptions& options, int num_ranks);
// Throws InvalidArgument naming the first option that is set and that a mode of so many ranks refuses.
void require_no_refused(const ModelOptions& options, int num_ranks);

}  // namespace tessera::train
