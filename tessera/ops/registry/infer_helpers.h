// What the shape inference and the rules of the operators share. Internal to ops/.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

enum class Kind { kAny, kCompute, kNumeric, kFloating, kBool };  // kNumeric: compute dtypes but bool
bool is_kind(DType dtype, Kind kind);
// Throws InvalidArgument naming the operand `what` unless its dtype is of that kind.
void require_kind(const Type& type, Kind kind, const std::string& what);
// Throws InvalidArgument unless all have the first one's dtype.
void require_equal_dtypes(std::span<const Type> types);
// Throws InvalidArgument unless the operand is an i32 or i64 (or smaller integer) tensor.
void require_index(const Type& type, const std::string& what);
void require_scalar(const Type& type, const std::string& what);
// The attribute `axis` of a tensor; negative ones count from the end.
int axis_of(const Attributes& attributes, const Type& type, const std::string& name = "axis");
// The attribute `axes`: sorted, without repetition, in [0, ndim). Throws InvalidArgument otherwise.
Ints checked_axes(const Attributes& attributes, int ndim);
bool contains(const Ints& values, int64_t value);
double count(const Type& type);
// The cost of an operator with so many operations for each element of its first operand.
inline auto per_element(double flops) {
  return [flops](const Attributes&, std::span<const Type> inputs, std::span<const Type>) {
    return flops * count(inputs[0]);
  };
}

// The attribute of operators that add up products or elements: the dtype of their result, where it is not the
// operands'.
AttributeDef result_dtype_attribute();
DType result_dtype(const Attributes& attributes, DType operands);

std::vector<Shape> shapes_of(std::span<const Type> types);
// Returns "d0", "d1", ..., with "" for the dims listed in `not_split`.
IndexRule::Dims numbered_dims(int ndim, const Ints& not_split = {}, const std::string& prefix = "d");
// The rule for an operator of one input and any number of results with equal ndim where all dims are matched but those.
IndexRule matched_rule(std::span<const Type> inputs, std::span<const Type> outputs, const Ints& not_split);

// The node with an attribute changed, on the local inputs.
std::vector<Value> apply_with(const LocalizeContext& context, std::string_view name, AttributeValue value);

}  // namespace tessera::ops
