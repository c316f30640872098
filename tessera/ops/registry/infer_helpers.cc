#include "tessera/ops/registry/infer_helpers.h"

#include <algorithm>

namespace tessera::ops {

bool is_kind(DType dtype, Kind kind) {
  switch (kind) {
    case Kind::kAny: return true;
    case Kind::kCompute: return is_compute(dtype);
    case Kind::kNumeric: return is_compute(dtype) && dtype != DType::kBool;
    case Kind::kFloating: return is_floating(dtype);
    case Kind::kBool: return dtype == DType::kBool;
  }
  return false;
}

void require_kind(const Type& type, Kind kind, const std::string& what) {
  if (is_kind(type.dtype, kind)) return;
  const char* wanted = kind == Kind::kBool       ? "bool"
                       : kind == Kind::kFloating ? "floating (f32 f64 bf16 f16)"
                       : kind == Kind::kNumeric  ? "numeric (f32 f64 bf16 f16 i32 i64 u8)"
                                                 : "a compute dtype (f32 f64 bf16 f16 i32 i64 u8 bool)";
  throw InvalidArgument("{} must be {}, got {}; cast it", what, wanted, type);
}

void require_equal_dtypes(std::span<const Type> types) {
  for (const auto& type : types) {
    if (type.dtype != types[0].dtype) {
      throw InvalidArgument("operands must have one dtype, got {} and {}; cast one", types[0].dtype, type.dtype);
    }
  }
}

void require_index(const Type& type, const std::string& what) {
  if (!is_integer(type.dtype) || !is_compute(type.dtype)) {
    throw InvalidArgument("{} must be i32, i64 or u8, got {}; cast it", what, type);
  }
}

void require_scalar(const Type& type, const std::string& what) {
  if (type.shape.ndim() != 0) throw InvalidArgument("{} must be a scalar of shape [], got {}", what, type);
}

int axis_of(const Attributes& attributes, const Type& type, const std::string& name) {
  return normalize_axis(attributes.get_int(name), type.shape.ndim(), name);
}

Ints checked_axes(const Attributes& attributes, int ndim) {
  Ints axes = attributes.get_ints("axes");
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0 || axes[i] >= ndim) {
      throw InvalidArgument("axes {} must be in [0, {})", fmt::format("[{}]", fmt::join(axes, ",")), ndim);
    }
    if (i > 0 && axes[i] <= axes[i - 1]) {
      throw InvalidArgument("axes [{}] must be sorted and different", fmt::join(axes, ","));
    }
  }
  return axes;
}

bool contains(const Ints& values, int64_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

double count(const Type& type) { return static_cast<double>(type.shape.num_elements()); }

AttributeDef result_dtype_attribute() {
  return of_run({"result_dtype", std::nullopt,
                 "f32: sums of half types as they are, not rounded; absent: the operands' dtype",
                 /*may_be_absent=*/true});
}

DType result_dtype(const Attributes& attributes, DType operands) {
  if (!attributes.has("result_dtype")) return operands;
  const DType dtype = attributes.get_dtype("result_dtype");
  const bool is_half = operands == DType::kBF16 || operands == DType::kF16;
  if (dtype != operands && !(is_half && dtype == DType::kF32)) {
    throw InvalidArgument("result_dtype must be {}{}, is {}", operands, is_half ? " or f32" : "", dtype);
  }
  return dtype;
}

std::vector<Shape> shapes_of(std::span<const Type> types) {
  std::vector<Shape> shapes;
  for (const auto& type : types) shapes.push_back(type.shape);
  return shapes;
}

IndexRule::Dims numbered_dims(int ndim, const Ints& not_split, const std::string& prefix) {
  IndexRule::Dims dims;
  for (int dim = 0; dim < ndim; ++dim) {
    dims.push_back(contains(not_split, dim) ? "" : fmt::format("{}{}", prefix, dim));
  }
  return dims;
}

IndexRule matched_rule(std::span<const Type> inputs, std::span<const Type> outputs, const Ints& not_split) {
  IndexRule rule;
  for (const auto& type : inputs) rule.inputs.push_back(numbered_dims(type.shape.ndim(), not_split));
  for (const auto& type : outputs) rule.outputs.push_back(numbered_dims(type.shape.ndim(), not_split));
  return rule;
}

std::vector<Value> apply_with(const LocalizeContext& context, std::string_view name, AttributeValue value) {
  Attributes attributes = context.attributes;
  attributes.set(name, std::move(value));
  return apply(context.graph, context.op, context.inputs, std::move(attributes));
}

}  // namespace tessera::ops
