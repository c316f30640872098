#include "tessera/ops/functions/elementwise_functions.h"

#include "tessera/base/error.h"
#include "tessera/ops/registry/gradient_helpers.h"
#include "tessera/tensor/element_op.h"
#include "tessera/tensor/tensor.h"

namespace tessera::ops {
namespace {

// Else a cast or a number that is made for it would be refused, by the name of those.
void check_is_traced(const std::string& op, const Operand& operand) {
  if (operand.is_number()) return;
  const Value& value = operand.value();
  if (!value) throw InvalidArgument("{}: an operand is a null value", op);
  if (value.graph().is_closed()) value.graph().refuse(value, op + ": an operand");
}

// A number as a scalar of `dtype`.
Value number_like(ir::Graph& graph, const std::string& op, DType dtype, double number) {
  const bool fits = is_floating(dtype) || (dtype == DType::kBool ? number == 0 || number == 1
                                                                 : Tensor::full({dtype, {}}, number).item() == number);
  if (!fits) {
    throw InvalidArgument("{}: the number {} is no {}; cast the other operand to a dtype that holds it", op, number,
                          dtype);
  }
  return scalar(graph, dtype, number);
}

struct Pair {
  Value x;
  Value y;
};

// Both operands as values of one dtype: the promoted one, or f32 for integers that are divided.
Pair unify(const std::string& op, Operand x, Operand y, bool as_floating = false) {
  if (x.is_number() && y.is_number()) throw InvalidArgument("{}: needs at least one value, got two numbers", op);
  check_is_traced(op, x);
  check_is_traced(op, y);
  const auto target = [&](DType dtype) { return as_floating && !is_floating(dtype) ? DType::kF32 : dtype; };
  if (x.is_number()) {
    const Value other = cast_to(y.value(), target(y.value().dtype()));
    return {number_like(other.graph(), op, other.dtype(), x.number()), other};
  }
  if (y.is_number()) {
    const Value other = cast_to(x.value(), target(x.value().dtype()));
    return {other, number_like(other.graph(), op, other.dtype(), y.number())};
  }
  const DType dtype = target(promote(x.value().dtype(), y.value().dtype()));
  return {cast_to(x.value(), dtype), cast_to(y.value(), dtype)};
}

}  // namespace

Value apply_broadcast(const std::string& op, const Operand& x, const Operand& y) {
  const auto element = find_element_op(op);
  const auto [a, b] = unify(op, x, y, /*as_floating=*/element && info_of(*element).types == ElementTypes::kFloating);
  return apply1(op, {a, b});
}

Value select(Value condition, Operand x, Operand y) {
  const auto [a, b] = unify("select", x, y);
  return apply1("select", {condition, a, b});
}

Value gelu(Value x, bool approximate) { return apply1("gelu", {x}, {{"approximate", approximate}}); }
Value cast(Value x, DType dtype) { return cast_to(x, dtype); }

}  // namespace tessera::ops

namespace tessera::ir {

Value operator+(Value x, Value y) { return ops::add(x, y); }
Value operator-(Value x, Value y) { return ops::sub(x, y); }
Value operator*(Value x, Value y) { return ops::mul(x, y); }
Value operator/(Value x, Value y) { return ops::div(x, y); }
Value operator<(Value x, Value y) { return ops::less(x, y); }
Value operator<=(Value x, Value y) { return ops::less_equal(x, y); }
Value operator>(Value x, Value y) { return ops::greater(x, y); }
Value operator>=(Value x, Value y) { return ops::greater_equal(x, y); }
Value operator+(Value x, double y) { return ops::add(x, y); }
Value operator-(Value x, double y) { return ops::sub(x, y); }
Value operator*(Value x, double y) { return ops::mul(x, y); }
Value operator/(Value x, double y) { return ops::div(x, y); }
Value operator<(Value x, double y) { return ops::less(x, y); }
Value operator<=(Value x, double y) { return ops::less_equal(x, y); }
Value operator>(Value x, double y) { return ops::greater(x, y); }
Value operator>=(Value x, double y) { return ops::greater_equal(x, y); }
Value operator+(double x, Value y) { return ops::add(x, y); }
Value operator-(double x, Value y) { return ops::sub(x, y); }
Value operator*(double x, Value y) { return ops::mul(x, y); }
Value operator/(double x, Value y) { return ops::div(x, y); }
Value operator-(Value x) { return ops::neg(x); }

}  // namespace tessera::ir
