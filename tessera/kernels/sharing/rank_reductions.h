// RankReductions: what several ranks have in a device's memory, reduced there by the kernels of its backend, with the
// bits that the host's reductions have (comm/reduce.h): in the order of the ranks, half types in f32 and rounded once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "tessera/base/parallel_for.h"
#include "tessera/kernels/sharing/device_blocks.h"
#include "tessera/tensor/kernel.h"
#include "tessera/tensor/reduce_op.h"

namespace tessera::kernels {

// It is used by one thread at a time.
class RankReductions {
 public:
  // The registries have elementwise operators and fused_elementwise. All that is given outlives this.
  RankReductions(std::span<const KernelRegistry* const> registries, DeviceBlocks& blocks)
      : registries_(registries), blocks_(blocks) {}

  // So many elements are computed where `count` are wanted: kernels are made for few sizes, as each is compiled.
  static int64_t padded(int64_t count);

  // Gives the queue the reduction of the sources' elements. Returns where it will be: in one of `results`. All of these
  // have padded(count) elements; behind `count` the sources may hold anything.
  const std::byte* reduce(Queue& queue, std::span<const std::byte* const> sources,
                          const std::array<std::byte*, 2>& results, int64_t count, DType dtype, ReduceOp op);

 private:
  struct Prepared {
    PreparedKernel kernel;
    Attributes attributes;
    std::shared_ptr<std::byte> scratch;
  };
  // How many operands, of which type, reduced how, of how many elements.
  using Key = std::tuple<size_t, DType, ReduceOp, int64_t>;

  const Prepared& prepared(const Key& key);
  void launch(Queue& queue, std::span<const std::byte* const> sources, std::byte* result, DType dtype, ReduceOp op,
              int64_t size);

  std::span<const KernelRegistry* const> registries_;
  DeviceBlocks& blocks_;
  ParallelFor parallel_for_{1};
  std::map<Key, Prepared> prepared_;
};

}  // namespace tessera::kernels
