#include "tessera/base/error.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/gradient_helpers.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/ops/registry/require.h"

namespace tessera::ops {
namespace {

void require_number(const Type& type) {
  if (type.dtype == DType::kBool || !is_compute(type.dtype)) {
    throw InvalidArgument("operands must be f32, f64, bf16, f16, i32, i64 or u8, are {}; cast them", type.dtype);
  }
}

std::vector<Type> infer_product(const Attributes& attributes, const Type& lhs, const Type& rhs) {
  require_number(lhs);
  require_dtype(rhs, lhs.dtype, "rhs");
  const int ndim = lhs.shape.ndim();
  Shape result;
  for (int dim = 0; dim < ndim - 2; ++dim) {
    if (lhs.shape[dim] != rhs.shape[dim]) throw InvalidArgument("leading dims differ");
    result.push_back(lhs.shape[dim]);
  }
  const bool transpose_a = attributes.get_bool("transpose_a");
  const bool transpose_b = attributes.get_bool("transpose_b");
  const int64_t contracted_lhs = lhs.shape[transpose_a ? ndim - 2 : ndim - 1];
  const int64_t contracted_rhs = rhs.shape[transpose_b ? ndim - 1 : ndim - 2];
  if (contracted_lhs != contracted_rhs) {
    throw InvalidArgument("contracted dims differ ({} and {})", contracted_lhs, contracted_rhs);
  }
  result.push_back(lhs.shape[transpose_a ? ndim - 1 : ndim - 2]);
  result.push_back(rhs.shape[transpose_b ? ndim - 2 : ndim - 1]);
  return {{result_dtype(attributes, lhs.dtype), result}};
}

// lhs' and rhs' stand for the operands as the flags read them: d(lhs') = dy rhs'^T, d(rhs') = lhs'^T dy; where an
// operand is read transposed, so is its cotangent.
std::vector<Value> product_gradient(const std::string& op, const GradientContext& context) {
  const bool ta = context.attributes.get_bool("transpose_a");
  const bool tb = context.attributes.get_bool("transpose_b");
  const Value lhs = context.inputs[0];
  const Value rhs = context.inputs[1];
  const Value dy = cast_to(context.cotangent(0), lhs.dtype());
  const auto product = [&](Value a, Value b, bool transpose_a, bool transpose_b) {
    return apply1(op, {a, b}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
  };
  return {ta ? product(rhs, dy, tb, true) : product(dy, rhs, false, !tb),
          tb ? product(dy, lhs, true, ta) : product(lhs, dy, !ta, false)};
}

IndexRule product_rule(const Attributes& attributes, std::span<const Type> inputs, std::span<const Type>) {
  IndexRule::Dims batch;
  for (int dim = 0; dim < inputs[0].shape.ndim() - 2; ++dim) batch.push_back("b" + std::to_string(dim));
  const auto with = [&](const char* first, const char* second, bool transposed) {
    IndexRule::Dims dims = batch;
    dims.emplace_back(transposed ? second : first);
    dims.emplace_back(transposed ? first : second);
    return dims;
  };
  return {.inputs = {with("m", "k", attributes.get_bool("transpose_a")),
                     with("k", "n", attributes.get_bool("transpose_b"))},
          .outputs = {with("m", "n", false)}};
}

double product_flops(const Attributes& attributes, std::span<const Type> inputs, std::span<const Type> outputs) {
  const Shape& lhs = inputs[0].shape;
  const int64_t k = lhs[attributes.get_bool("transpose_a") ? lhs.ndim() - 2 : lhs.ndim() - 1];
  return 2.0 * static_cast<double>(k) * static_cast<double>(outputs[0].shape.num_elements());
}

Example product_example(DType dtype, const Shape& lhs, const Shape& rhs, bool transpose_a, bool transpose_b) {
  return {.inputs = {{{dtype, lhs}}, {{dtype, rhs}}},
          .attributes = {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}},
          .check_gradient = dtype == DType::kF32 || dtype == DType::kF64};
}

Example unrounded(Example example) {
  example.attributes.set("result_dtype", DType::kF32);
  return example;
}

std::vector<AttributeDef> transpose_flags() {
  return {{"transpose_a", false, "lhs is stored with its last two dims swapped"},
          {"transpose_b", false, "rhs is stored with its last two dims swapped"},
          result_dtype_attribute()};
}

}  // namespace

void add_matmul(OpRegistry& registry) {
  registry.add({
      .name = "matmul",
      .doc = "Matrix product of lhs [m,k] and rhs [k,n], each stored transposed where its flag says so: [m,n]. Any "
             "number type; sums of floating products are formed in f64 by the reference and in at least f32 elsewhere.",
      .inputs = {"lhs", "rhs"},
      .attributes = transpose_flags(),
      .infer =
          [](const Attributes& attributes, std::span<const Type> inputs) {
            require_ndim(inputs[0], 2, "lhs");
            require_ndim(inputs[1], 2, "rhs");
            return infer_product(attributes, inputs[0], inputs[1]);
          },
      .gradient = [](const GradientContext& context) { return product_gradient("matmul", context); },
      .rule = product_rule,
      .linear_in = {{0}, {1}},
      .flops = product_flops,
      .arithmetic = Arithmetic::kProduct,
      .precision = MixedPrecision::kLow,
      .examples = {product_example(DType::kF32, {3, 4}, {4, 5}, false, false),
                   product_example(DType::kF64, {4, 3}, {4, 5}, true, false),
                   product_example(DType::kF32, {3, 4}, {5, 4}, false, true),
                   product_example(DType::kF32, {7, 3}, {2, 7}, true, true),
                   product_example(DType::kF32, {0, 4}, {4, 5}, false, false),
                   product_example(DType::kF32, {3, 0}, {0, 5}, false, false),
                   product_example(DType::kF32, {33, 65}, {65, 37}, false, false),
                   product_example(DType::kBF16, {5, 9}, {9, 6}, false, false),
                   product_example(DType::kF16, {5, 9}, {6, 9}, false, true),
                   product_example(DType::kI32, {3, 4}, {4, 5}, false, false),
                   product_example(DType::kI64, {3, 4}, {5, 4}, false, true),
                   unrounded(product_example(DType::kBF16, {4, 33}, {33, 6}, false, false)),
                   unrounded(product_example(DType::kF16, {9, 5}, {6, 9}, true, true))},
  });

  registry.add({
      .name = "batch_matmul",
      .doc = "Matrix product of the last two dims of lhs [...,m,k] and rhs [...,k,n], for each index of the equal "
             "leading dims: [...,m,n]. Flags and types as matmul.",
      .inputs = {"lhs", "rhs"},
      .attributes = transpose_flags(),
      .infer =
          [](const Attributes& attributes, std::span<const Type> inputs) {
            if (inputs[0].shape.ndim() < 3) {
              throw InvalidArgument("lhs must have at least 3 dims, has {}; matmul takes 2", inputs[0].shape.ndim());
            }
            require_ndim(inputs[1], inputs[0].shape.ndim(), "rhs");
            return infer_product(attributes, inputs[0], inputs[1]);
          },
      .gradient = [](const GradientContext& context) { return product_gradient("batch_matmul", context); },
      .rule = product_rule,
      .linear_in = {{0}, {1}},
      .flops = product_flops,
      .arithmetic = Arithmetic::kProduct,
      .precision = MixedPrecision::kLow,
      .examples = {product_example(DType::kF32, {2, 3, 4}, {2, 4, 5}, false, false),
                   product_example(DType::kF64, {2, 3, 2, 4}, {2, 3, 5, 4}, false, true),
                   product_example(DType::kF32, {3, 4, 2}, {3, 4, 5}, true, false),
                   product_example(DType::kF32, {2, 4, 3}, {2, 5, 4}, true, true),
                   product_example(DType::kF32, {0, 3, 4}, {0, 4, 5}, false, false),
                   product_example(DType::kBF16, {2, 3, 4}, {2, 4, 5}, false, false),
                   product_example(DType::kI32, {2, 3, 4}, {2, 4, 5}, false, false),
                   unrounded(product_example(DType::kBF16, {2, 3, 4}, {2, 5, 4}, false, true))},
  });

  registry.add({
      .name = "bias_add",
      .doc = "x [n,c,...] plus bias [c] along dim 1; x has at least 2 dims. Any number type.",
      .inputs = {"x", "bias"},
      .infer = [](const Attributes&, std::span<const Type> inputs) -> std::vector<Type> {
        require_number(inputs[0]);
        if (inputs[0].shape.ndim() < 2) throw InvalidArgument("x must have at least 2 dims [n,c,...]");
        require_dtype(inputs[1], inputs[0].dtype, "bias");
        require_shape(inputs[1], {inputs[0].shape[1]}, "bias");
        return {inputs[0]};
      },
      .gradient = [](const GradientContext& context) -> std::vector<Value> {
        const Value dy = context.cotangent(0);
        Ints axes;
        for (int dim = 0; dim < dy.ndim(); ++dim) {
          if (dim != 1) axes.push_back(dim);
        }
        return {dy, apply1("reduce_sum", {dy}, {{"axes", axes}})};
      },
      .rule =
          [](const Attributes&, std::span<const Type> inputs, std::span<const Type>) {
            IndexRule::Dims dims;
            for (int dim = 0; dim < inputs[0].shape.ndim(); ++dim) {
              dims.push_back(dim == 0 ? "n" : dim == 1 ? "c" : "d" + std::to_string(dim));
            }
            return IndexRule{.inputs = {dims, {"c"}}, .outputs = {dims}};
          },
      .linear_in = {{0, 1}},
      .flops = [](const Attributes&, std::span<const Type>,
                  std::span<const Type> outputs) { return static_cast<double>(outputs[0].shape.num_elements()); },
      .examples = {{.inputs = {{{DType::kF32, {3, 4}}}, {{DType::kF32, {4}}}}},
                   {.inputs = {{{DType::kF64, {2, 3, 4, 5}}}, {{DType::kF64, {3}}}}},
                   {.inputs = {{{DType::kBF16, {2, 3, 2}}}, {{DType::kBF16, {3}}}}, .check_gradient = false},
                   {.inputs = {{{DType::kI32, {2, 3}}}, {{DType::kI32, {3}}}}, .check_gradient = false},
                   {.inputs = {{{DType::kF32, {0, 4}}}, {{DType::kF32, {4}}}}}},
  });
}

}  // namespace tessera::ops
