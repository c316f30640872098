#include "tessera/train/options/automatic_options.h"

namespace tessera::train {

bool is_set(const AutomaticPlanOptions& options) {
  const compiler::SearchOptions usual = AutomaticPlanOptions().search;
  const auto& search = options.search;
  return options.profile || options.planner || search.algorithm != usual.algorithm ||
         search.max_axes != usual.max_axes || search.use_all_ranks != usual.use_all_ranks ||
         search.slice_align_size != usual.slice_align_size || search.rounds != usual.rounds ||
         search.timeout_seconds != usual.timeout_seconds || search.gap != usual.gap || search.seed != usual.seed ||
         search.fold_above != usual.fold_above;
}

}  // namespace tessera::train
