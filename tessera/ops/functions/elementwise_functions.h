// These functions compute on values, element by element. Operands broadcast as NumPy's do: shapes are aligned at their
// last dims, and a dim of size 1, or a missing one, is stretched. Mixed dtypes are promoted by casts: bool < integer <
// floating, the wider wins, bf16 with f16 gives f32. A bare number takes the other operand's dtype; one that an integer
// dtype cannot hold is refused. All of them throw InvalidArgument naming the operator and its operands when shapes do
// not broadcast or a dtype is not supported.
#pragma once

#include <utility>
#include <variant>

#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

// A value, or a number that becomes a scalar of the other operand's dtype.
class Operand {
 public:
  Operand(Value value) : operand_(std::move(value)) {}  // NOLINT: implicit, so that x + 1 and x + y are one function
  Operand(double number) : operand_(number) {}          // NOLINT
  Operand(int number) : Operand(static_cast<double>(number)) {}      // NOLINT
  Operand(int64_t number) : Operand(static_cast<double>(number)) {}  // NOLINT
  bool is_number() const { return std::holds_alternative<double>(operand_); }
  const Value& value() const { return std::get<Value>(operand_); }
  double number() const { return std::get<double>(operand_); }

 private:
  std::variant<Value, double> operand_;
};

// The element operator `op` on two operands, of which at least one must be a value.
Value apply_broadcast(const std::string& op, const Operand& x, const Operand& y);

// Numbers of any numeric dtype (not bool).
inline Value add(Operand x, Operand y) { return apply_broadcast("add", x, y); }
inline Value sub(Operand x, Operand y) { return apply_broadcast("sub", x, y); }
inline Value mul(Operand x, Operand y) { return apply_broadcast("mul", x, y); }
// x / y in real numbers: integers are divided as f32.
inline Value div(Operand x, Operand y) { return apply_broadcast("div", x, y); }
inline Value maximum(Operand x, Operand y) { return apply_broadcast("maximum", x, y); }
inline Value minimum(Operand x, Operand y) { return apply_broadcast("minimum", x, y); }
// Raises x to the power of y.
inline Value pow(Operand x, Operand y) { return apply_broadcast("pow", x, y); }

// These functions give bool.
inline Value equal(Operand x, Operand y) { return apply_broadcast("equal", x, y); }
inline Value not_equal(Operand x, Operand y) { return apply_broadcast("not_equal", x, y); }
inline Value less(Operand x, Operand y) { return apply_broadcast("less", x, y); }
inline Value less_equal(Operand x, Operand y) { return apply_broadcast("less_equal", x, y); }
inline Value greater(Operand x, Operand y) { return apply_broadcast("greater", x, y); }
inline Value greater_equal(Operand x, Operand y) { return apply_broadcast("greater_equal", x, y); }
// These functions take and give bool.
inline Value logical_and(Value x, Value y) { return apply1("logical_and", {x, y}); }
inline Value logical_or(Value x, Value y) { return apply1("logical_or", {x, y}); }
inline Value logical_xor(Value x, Value y) { return apply1("logical_xor", {x, y}); }
inline Value logical_not(Value x) { return apply1("logical_not", {x}); }
// x where `condition` (bool) holds, else y; the three broadcast.
Value select(Value condition, Operand x, Operand y);

// These functions take any numeric dtype.
inline Value neg(Value x) { return apply1("neg", {x}); }
inline Value abs(Value x) { return apply1("abs", {x}); }
inline Value sign(Value x) { return apply1("sign", {x}); }  // -1, 0 or 1
inline Value square(Value x) { return apply1("square", {x}); }
// These functions take floating dtypes only.
inline Value floor(Value x) { return apply1("floor", {x}); }
inline Value sqrt(Value x) { return apply1("sqrt", {x}); }
inline Value rsqrt(Value x) { return apply1("rsqrt", {x}); }  // 1 / sqrt(x)
inline Value reciprocal(Value x) { return apply1("reciprocal", {x}); }
inline Value exp(Value x) { return apply1("exp", {x}); }
inline Value log(Value x) { return apply1("log", {x}); }
inline Value expm1(Value x) { return apply1("expm1", {x}); }  // exp(x) - 1, precise near 0
inline Value log1p(Value x) { return apply1("log1p", {x}); }  // log(1 + x), precise near 0
inline Value sinh(Value x) { return apply1("sinh", {x}); }
inline Value cosh(Value x) { return apply1("cosh", {x}); }
inline Value asinh(Value x) { return apply1("asinh", {x}); }
inline Value atanh(Value x) { return apply1("atanh", {x}); }
inline Value sin(Value x) { return apply1("sin", {x}); }
inline Value cos(Value x) { return apply1("cos", {x}); }
inline Value relu(Value x) { return apply1("relu", {x}); }        // max(x, 0); its gradient at 0 is 0
inline Value sigmoid(Value x) { return apply1("sigmoid", {x}); }  // 1 / (1 + exp(-x))
inline Value tanh(Value x) { return apply1("tanh", {x}); }
// x * Phi(x), Hendrycks and Gimpel, "Gaussian error linear units" (2016): with erf, or by their tanh approximation.
Value gelu(Value x, bool approximate = true);
inline Value is_finite(Value x) { return apply1("is_finite", {x}); }  // bool: neither infinite nor NaN

// x, of any dtype; no gradient flows back through it.
inline Value stop_gradient(Value x) { return apply1("stop_gradient", {x}); }
// x in another dtype (any, storage-only ones included); x itself when it has it. A cast to an integer rounds towards
// zero and saturates, and makes 0 of NaN; a cast to bool makes true of what is not zero.
Value cast(Value x, DType dtype);

}  // namespace tessera::ops

// These are in the namespace of Value, where argument-dependent lookup finds them.
namespace tessera::ir {

// An operand that is a number needs a Value on the other side; == and != compare handles, see ops::equal.
Value operator+(Value x, Value y);
Value operator-(Value x, Value y);
Value operator*(Value x, Value y);
Value operator/(Value x, Value y);
Value operator<(Value x, Value y);
Value operator<=(Value x, Value y);
Value operator>(Value x, Value y);
Value operator>=(Value x, Value y);
Value operator+(Value x, double y);
Value operator-(Value x, double y);
Value operator*(Value x, double y);
Value operator/(Value x, double y);
Value operator<(Value x, double y);
Value operator<=(Value x, double y);
Value operator>(Value x, double y);
Value operator>=(Value x, double y);
Value operator+(double x, Value y);
Value operator-(double x, Value y);
Value operator*(double x, Value y);
Value operator/(double x, Value y);
Value operator-(Value x);

}  // namespace tessera::ir
