// How batch normalisation with a statistic per group of rows is written for a rank. Internal to ops/.
#pragma once

#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

// An operator on `images` images, then `statistics` statistics, then `channels` vectors [c], then `sums` that it
// divides by counts. Its results are an image, or statistics, which may be `averages`: divided by counts.
struct BatchNormOperands {
  int images = 1;
  int statistics = 0;
  int channels = 0;
  int sums = 0;
  int image_results = 0;
  int statistics_results = 0;
  bool averages = false;

  // The operands of one shape with the statistics.
  bool is_statistic(size_t operand) const {
    const int i = static_cast<int>(operand);
    return (i >= images && i < images + statistics) || is_sum(operand);
  }
  bool is_sum(size_t operand) const { return static_cast<int>(operand) >= images + statistics + channels; }
};

// The elements of a channel of one row of x [n,c,...].
int64_t pixels_of(const Shape& x);

// A rank whose rows are whole groups counts those alone. Where the split of the batch cuts through groups, or that of
// the pixels through rows, it computes on the parts that it holds, and ranks add up what belongs to one group.
std::vector<Value> localize_batch_norm(const LocalizeContext& context, const BatchNormOperands& operands);

}  // namespace tessera::ops
