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

// Numbers of any numeric dtype (not bool). At least one operand must be a value.
Value add(Operand x, Operand y);
Value sub(Operand x, Operand y);
Value mul(Operand x, Operand y);
// x / y in real numbers: integers are divided as f32.
Value div(Operand x, Operand y);
Value maximum(Operand x, Operand y);
Value minimum(Operand x, Operand y);
// Raises x to the power of y.
Value pow(Operand x, Operand y);

// These functions give bool.
Value equal(Operand x, Operand y);
Value not_equal(Operand x, Operand y);
Value less(Operand x, Operand y);
Value less_equal(Operand x, Operand y);
Value greater(Operand x, Operand y);
Value greater_equal(Operand x, Operand y);
// These functions take and give bool.
Value logical_and(Value x, Value y);
Value logical_or(Value x, Value y);
Value logical_xor(Value x, Value y);
Value logical_not(Value x);
// x where `condition` (bool) holds, else y; the three broadcast.
Value select(Value condition, Operand x, Operand y);

// These functions take any numeric dtype.
Value neg(Value x);
Value abs(Value x);
Value sign(Value x);  // -1, 0 or 1
Value square(Value x);
// These functions take floating dtypes only.
Value floor(Value x);
Value sqrt(Value x);
Value rsqrt(Value x);  // 1 / sqrt(x)
Value reciprocal(Value x);
Value exp(Value x);
Value log(Value x);
Value sin(Value x);
Value cos(Value x);
Value relu(Value x);     // max(x, 0); its gradient at 0 is 0
Value sigmoid(Value x);  // 1 / (1 + exp(-x))
Value tanh(Value x);
// x * Phi(x), Hendrycks and Gimpel, "Gaussian error linear units" (2016): with erf, or by their tanh approximation.
Value gelu(Value x, bool approximate = true);
Value is_finite(Value x);  // bool: neither infinite nor NaN

// x, of any dtype; no gradient flows back through it.
Value stop_gradient(Value x);
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
