// The parallel modes by name: how the ranks of a context share a training. What each of them does is in train/modes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera::train {

enum class ParallelMode {
  kStandAlone,    // each rank by itself
  kDataParallel,  // the global batch is split over the ranks; the result is that of one device on the whole batch
  // The network is written for one rank: it sees this rank's batch and this rank's slices of parameters that are
  // layerwise_parallel, and combines them by collectives of its own. The loss is the mean of the ranks' losses; the
  // gradients of all other parameters are summed over the ranks.
  kHybrid,
  kSemiAuto,  // operators are split as their strategies say, the others by the batch; the result is that of one device
  // A search decides how everything is split (compiler/auto_parallel); strategies hold. The result is that of one
  // device.
  kAutomatic,
  // The network is cut into stages (Cell::set_stage), each on ranks of its own, through which the micro-batches of a
  // batch pass one after the other; within a stage as kSemiAuto. The result is that of one device.
  kPipeline,
};
inline constexpr size_t kNumParallelModes = static_cast<size_t>(ParallelMode::kPipeline) + 1;

// "stand_alone", "data_parallel", "hybrid_parallel", "semi_auto_parallel", "auto_parallel", "pipeline_parallel". Throws
// InvalidArgument listing them.
ParallelMode parse_parallel_mode(const std::string& text);
// "data_parallel": what parse_parallel_mode() reads.
std::string_view to_string(ParallelMode mode);

// Whether the ranks train one network together, where there are several.
bool needs_ranks(ParallelMode mode);
// What is said where several ranks are in a mode of which that is false.
std::string ranks_apart_text(int num_ranks);
// Whether the strategies that a network gives its operators have an effect.
bool reads_strategies(ParallelMode mode);
// The modes of which that is true: "semi_auto_parallel, auto_parallel, pipeline_parallel".
std::string modes_that_read_strategies();

}  // namespace tessera::train
