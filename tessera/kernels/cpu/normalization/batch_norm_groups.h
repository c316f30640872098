// What the kernels of batch normalisation see of their attributes and statistics.
#pragma once

#include <vector>

#include "tessera/base/error.h"
#include "tessera/tensor/kernel.h"

namespace tessera::kernels::cpu {

// The groups of rows of a batch that are normalised together.
struct BatchNormGroups {
  struct Group {
    int64_t first_row, num_rows;
    double count;
  };
  std::vector<Group> groups;
  bool grouped;

  BatchNormGroups(const Attributes& attributes, const Shape& x) : grouped(attributes.get_bool("grouped")) {
    const Ints& counts = attributes.get_ints("counts");
    if (!grouped) {
      groups.push_back({0, x[0], static_cast<double>(counts[0])});
      return;
    }
    int64_t pixels = 1;
    for (int dim = 2; dim < x.ndim(); ++dim) pixels *= x[dim];
    int64_t row = 0;
    for (const int64_t count : counts) {
      groups.push_back({row, count / pixels, static_cast<double>(count)});
      row += count / pixels;
    }
    check_equal(row, x[0], "rows of the batch_norm groups");
  }
};

// True for f32 statistics [c] or [G,c] whose channels are neighbours in memory.
inline bool is_batch_norm_statistic(const TensorView& view) {
  return view.dtype == DType::kF32 && (view.shape.back() == 1 || view.strides[view.strides.ndim() - 1] == 1);
}

// A statistic's row of a group: [c] or [G,c].
inline float* row_of(const TensorView& view, size_t group) {
  return view.as<float>() + (view.shape.ndim() == 2 ? static_cast<int64_t>(group) * view.strides[0] : 0);
}

}  // namespace tessera::kernels::cpu
