#include "tessera/train/options/pipeline_options.h"

#include <fmt/ranges.h>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"

namespace tessera::train {

mesh::StageRanks stage_ranks(const PipelineOptions& options, int num_ranks) {
  const int stages = num_stages(options);
  if (options.stages.is_automatic() && !options.ranks.empty()) {
    throw InvalidArgument(
        "pipeline.ranks = [{}] says how many stages there are, and pipeline.stages that this is searched for",
        fmt::join(options.ranks, ", "));
  }
  if (stages < 1) {
    throw InvalidArgument("pipeline_parallel needs a number of stages, got pipeline.stages = {}{}",
                          options.stages.count(),
                          options.stages.is_automatic() ? ": how many there are is found by auto_parallel" : "");
  }
  if (options.ranks.empty()) {
    if (num_ranks % stages != 0) {
      throw InvalidArgument(
          "{} ranks cannot be dealt to {} stages of equally many: use a number of stages that divides {}, or say in "
          "pipeline.ranks how many each has",
          num_ranks, stages, num_ranks);
    }
    return mesh::StageRanks::equal(stages, num_ranks / stages);
  }
  if (static_cast<int>(options.ranks.size()) != stages) {
    throw InvalidArgument("pipeline.ranks = [{}] says how many ranks {} stages have, but pipeline.stages is {}",
                          fmt::join(options.ranks, ", "), options.ranks.size(), stages);
  }
  int64_t sum = 0;
  for (size_t stage = 0; stage < options.ranks.size(); ++stage) {
    const int count = options.ranks[stage];
    sum += count;
    if (count >= 1) continue;
    throw InvalidArgument("pipeline.ranks = [{}]: stage {} has {} ranks, each stage needs one at least",
                          fmt::join(options.ranks, ", "), stage, count);
  }
  if (sum != num_ranks) {
    throw InvalidArgument("pipeline.ranks = [{}] deals out {}, the job has {}: the stages have all of them",
                          fmt::join(options.ranks, ", "), plural(sum, "rank"), num_ranks);
  }
  return mesh::StageRanks(options.ranks);
}

}  // namespace tessera::train
