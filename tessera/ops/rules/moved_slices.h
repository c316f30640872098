// How operators that only move elements (slices, padding, joining, cutting, reshaping) are written for a rank when the
// dim that they move along is split: the rank fetches the elements that its part of the result is made of. Internal to
// ops/.
#pragma once

#include <vector>

#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

std::vector<Value> localize_strided_slice(const LocalizeContext& context);
std::vector<Value> localize_strided_slice_grad(const LocalizeContext& context);
std::vector<Value> localize_pad(const LocalizeContext& context);
std::vector<Value> localize_tile(const LocalizeContext& context);
std::vector<Value> localize_concat(const LocalizeContext& context);
std::vector<Value> localize_split(const LocalizeContext& context);

// A run of dims of the operand and one of the result that hold the same elements in the same order.
struct ReshapeGroup {
  int in_begin = 0;
  int in_end = 0;
  int out_begin = 0;
  int out_end = 0;
  int in_dim = -1;  // its outermost dims that are not 1: a split of these is one of the group; -1: none
  int out_dim = -1;
};
// Shapes of equal sizes always have groups, one for all dims at worst; of empty ones the equal leading dims.
// The block in which the result's dim of a group is dealt without moving anything, where the operand's dim is dealt in
// blocks of `block`; 1 where no whole number is. Parts are otherwise made of other elements, and ranks exchange them.
int64_t reshaped_block(const Shape& in, const Shape& out, const ReshapeGroup& group, int64_t block);
std::vector<ReshapeGroup> reshape_groups(const Shape& in, const Shape& out);
std::vector<Value> localize_reshape(const LocalizeContext& context);

}  // namespace tessera::ops
