#include "tessera/checkpoint/format/region_runs.h"

#include <algorithm>

namespace tessera::checkpoint {
namespace {

// From here on the dims of a region lie one row after the other in its container.
int first_contiguous_dim(const Region& region, const Region& container) {
  int dim = std::max(region.ndim() - 1, 0);
  while (dim > 0 && region.shape[dim] == container.shape[dim]) --dim;
  return dim;
}

}  // namespace

void for_each_run(const Region& region, const Region& container, FunctionRef<void(const Region&)> f) {
  const int inner = first_contiguous_dim(region, container);
  Region run = region;
  for (int dim = 0; dim < inner; ++dim) run.shape[dim] = 1;
  while (true) {
    f(run);
    int dim = inner - 1;
    while (dim >= 0 && ++run.offset[dim] == region.offset[dim] + region.shape[dim]) {
      run.offset[dim] = region.offset[dim];
      --dim;
    }
    if (dim < 0) return;
  }
}

int64_t num_runs(const Region& region, const Region& container) {
  const int inner = first_contiguous_dim(region, container);
  int64_t runs = 1;
  for (int dim = 0; dim < inner; ++dim) runs *= region.shape[dim];
  return runs;
}

int64_t offset_in(const Region& container, const Region& region) {
  const auto strides = dense_strides(container.shape);
  int64_t offset = 0;
  for (int dim = 0; dim < region.ndim(); ++dim) offset += (region.offset[dim] - container.offset[dim]) * strides[dim];
  return offset;
}

}  // namespace tessera::checkpoint
