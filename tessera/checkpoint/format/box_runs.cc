#include "tessera/checkpoint/format/box_runs.h"

#include <algorithm>

namespace tessera::checkpoint {
namespace {

// From here on the dims of a box lie one row after the other in its container.
int first_contiguous_dim(const Box& box, const Box& container) {
  int dim = std::max(box.ndim() - 1, 0);
  while (dim > 0 && box.shape[dim] == container.shape[dim]) --dim;
  return dim;
}

}  // namespace

void for_each_run(const Box& box, const Box& container, FunctionRef<void(const Box&)> f) {
  const int inner = first_contiguous_dim(box, container);
  Box run = box;
  for (int dim = 0; dim < inner; ++dim) run.shape[dim] = 1;
  while (true) {
    f(run);
    int dim = inner - 1;
    while (dim >= 0 && ++run.offset[dim] == box.offset[dim] + box.shape[dim]) {
      run.offset[dim] = box.offset[dim];
      --dim;
    }
    if (dim < 0) return;
  }
}

int64_t num_runs(const Box& box, const Box& container) {
  const int inner = first_contiguous_dim(box, container);
  int64_t runs = 1;
  for (int dim = 0; dim < inner; ++dim) runs *= box.shape[dim];
  return runs;
}

int64_t offset_in(const Box& container, const Box& box) {
  const auto strides = dense_strides(container.shape);
  int64_t offset = 0;
  for (int dim = 0; dim < box.ndim(); ++dim) offset += (box.offset[dim] - container.offset[dim]) * strides[dim];
  return offset;
}

}  // namespace tessera::checkpoint
