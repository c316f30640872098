// Which options of a model have an effect in which parallel mode: what is said of one that was set and has none.
// options/model_options.h has the table, docs/decisions.md, "options without effect", the rule.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/train/options/model_options.h"

namespace tessera::train {

// The mode whose file does the work: automatic parallelism with stages is a pipeline that finds where it is cut.
ParallelMode working_mode(const ModelOptions& options);

// Returns how many rows each micro-batch has of a batch of so many. Throws InvalidArgument where they would not be
// equally many.
int64_t rows_of_micro_batch(int64_t rows, int64_t micro_batches);

// The options whose effect depends on the parallel mode.
std::vector<OptionInfo> mode_options();
// Whether one of these differs from its default. Throws InvalidArgument for another name.
bool is_set(const ModelOptions& options, std::string_view name_in_cpp);

// One line for each option that is set and has no effect on a model of this mode with so many ranks, as "full_batch has
// no effect in data_parallel: only in semi_auto_parallel, auto_parallel".
std::vector<std::string> unused_options(const ModelOptions& options, int num_ranks);
// Throws InvalidArgument naming the first option that is set and that a mode of so many ranks refuses.
void require_no_refused(const ModelOptions& options, int num_ranks);

}  // namespace tessera::train
