// Networks written twice: for one device, and for one rank of many that combines its slices by hand (hybrid parallel).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/cluster/ranks/context.h"
#include "tessera/mesh/mesh.h"
#include "tessera/nn/cell.h"
#include "tessera/train/model.h"

namespace tessera::equivalence {

// A case: what is compared, the ways to write it, and the data.
struct HybridCase {
  std::string name;
  train::ParallelMode mode = train::ParallelMode::kHybrid;
  // The network for one device, and for a rank.
  std::function<std::unique_ptr<nn::Cell>(DType)> whole;
  std::function<std::unique_ptr<nn::Cell>(DType, cluster::Context&)> own;
  // x and label of a step, of the whole batch.
  std::function<std::vector<Tensor>(int64_t step, DType)> batch;
  bool rows_are_own = false;  // each rank gets its part of the rows; else all rows
  double learning_rate = 0;
  int64_t batches_per_step = 1;  // gradient accumulation, on the one device, too
};

// The tutorials' HybridParallelNet: a product whose weight [512,128] is split in columns, summed over them, and the sum
// completed by an all_reduce; as SemiAutoParallelNet with the strategy ((1,1),(1,ranks)). Weights uniform in [0,1).
HybridCase hybrid_parallel_net();
HybridCase semi_auto_parallel_net();
// Layers that all ranks share around a pair that is split: columns, then rows, then an all_reduce. Uneven slices.
HybridCase split_pair_net();
HybridCase accumulated_split_pair_net();
// A network without slices, each rank on rows of its own.
HybridCase shared_net();
std::vector<HybridCase> hybrid_cases();

// The largest differences, relative to the largest element, between this rank and one device: results of predict()
// before and after training, losses and parameters of `batches` batches. A rank's slice is compared with its part of
// the parameter. The ranks compute in sessions with the options `own_session`, the one device on the CPU.
struct HybridDeviation {
  double output = 0;
  double loss = 0;
  double parameters = 0;
  double worst() const;
};
HybridDeviation compare_with_one_device(cluster::Context& context, const HybridCase& hybrid, DType dtype,
                                        int64_t batches, const session::SessionOptions& own_session);

}  // namespace tessera::equivalence
