// What the fusion passes make of several nodes: fused_elementwise, fused_matmul. The text form of their programs is
// described beside the kernel that runs it (kernels/cpu/elementwise/fused_elementwise.h).
#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/ops/registry/require.h"

namespace tessera::ops {
namespace {

// lhs [m,k] and rhs [k,n] as the flags read them.
std::vector<Type> infer_fused_matmul(const Attributes& attributes, std::span<const Type> inputs) {
  if (inputs.size() < 2) throw InvalidArgument("a fused product needs two matrices");
  const Type& lhs = inputs[0];
  const Type& rhs = inputs[1];
  require_ndim(lhs, 2, "lhs");
  require_ndim(rhs, 2, "rhs");
  require_floating(lhs, "lhs");
  require_dtype(rhs, lhs.dtype, "rhs");
  const bool transpose_a = attributes.get_bool("transpose_a");
  const bool transpose_b = attributes.get_bool("transpose_b");
  if (lhs.shape[transpose_a ? 0 : 1] != rhs.shape[transpose_b ? 1 : 0]) {
    throw InvalidArgument("contracted dims differ ({} and {})", lhs.shape[transpose_a ? 0 : 1],
                          rhs.shape[transpose_b ? 1 : 0]);
  }
  const Shape shape{lhs.shape[transpose_a ? 1 : 0], rhs.shape[transpose_b ? 0 : 1]};
  for (const Type& value : inputs.subspan(2)) {
    if (!(broadcast_shapes(shape, value.shape) == shape)) {
      throw InvalidArgument("a value of shape {} does not broadcast to the product's {}", value.shape, shape);
    }
  }
  const DType dtype = attributes.get_dtype("dtype");
  if (!is_floating(dtype)) throw InvalidArgument("attribute dtype must be floating, is {}", dtype);
  return {{dtype, shape}};
}

// An example whose values have the result's dtype, as libraries want them.
Example epilogue_example(DType operands, DType result, bool transpose_b, const std::vector<Shape>& values,
                         const char* program) {
  const Shape rhs = transpose_b ? Shape{24, 16} : Shape{16, 24};
  Example example{.inputs = {{{operands, {8, 16}}}, {{operands, rhs}}},
                  .attributes = {{"transpose_b", transpose_b}, {"program", program}, {"dtype", result}}};
  for (const Shape& value : values) example.inputs.push_back({{result, value}});
  return example;
}

Example fused_matmul_example(DType operands, DType result, const Shape& lhs, const Shape& rhs, bool transpose_b,
                             const std::vector<Shape>& values, const char* program) {
  Example example{.inputs = {{{operands, lhs}}, {{operands, rhs}}},
                  .attributes = {{"transpose_b", transpose_b}, {"program", program}, {"dtype", result}}};
  for (const Shape& value : values) {
    example.inputs.push_back({{operands == DType::kF64 ? DType::kF64 : DType::kF32, value}});
  }
  return example;
}

void add_fused_matmul(OpRegistry& registry) {
  registry.add(
      {.name = "fused_matmul",
       .doc = "matmul and what is done to its elements afterwards as one node, made by the fusion pass. `program` is "
              "that of fused_elementwise, a0 being the product, which is not rounded before, and a1, a2, ... the "
              "values, which broadcast to it. The result is of type `dtype`. No rank splits it: fusion comes after "
              "partition.",
       .inputs = {"lhs", "rhs", "values..."},
       .attributes = {{"transpose_a", false, "lhs is stored with its dims swapped"},
                      {"transpose_b", false, "rhs is stored with its dims swapped"},
                      {"program", std::nullopt, "assignments, then return"},
                      of_run({"dtype", std::nullopt, "of the result"})},
       .infer = infer_fused_matmul,
       .flops =
           [](const Attributes& attributes, std::span<const Type> inputs, std::span<const Type> outputs) {
             const auto k = inputs[0].shape[attributes.get_bool("transpose_a") ? 0 : 1];
             return 2.0 * static_cast<double>(k) * static_cast<double>(outputs[0].shape.num_elements());
           },
       .arithmetic = Arithmetic::kProduct,
       .examples = {
           fused_matmul_example(DType::kF32, DType::kF32, {3, 4}, {5, 4}, true, {{5}}, "t0=add a0 a1; return t0"),
           fused_matmul_example(DType::kF32, DType::kF32, {33, 65}, {65, 37}, false, {{37}, {33, 37}},
                                "t0=add a0 a1; t1=mul t0 0.5; t2=sub a2 t1; return t2"),
           fused_matmul_example(DType::kF32, DType::kF32, {8, 16}, {16, 24}, false, {{24}, {8, 1}, {}},
                                "t0=add a0 a1; t1=mul t0 a2; t2=gelu_tanh t1; t3=sub t2 a3; t4=div t3 2; return t4"),
           fused_matmul_example(DType::kF32, DType::kF32, {8, 16}, {16, 24}, false, {},
                                "t0=tanh a0; t1=relu t0; t2=mul t1 a0; return t2"),
           fused_matmul_example(DType::kF32, DType::kBF16, {4, 8}, {8, 6}, false, {{6}}, "t0=add a0 a1; return t0"),
           fused_matmul_example(DType::kBF16, DType::kF32, {4, 64}, {32, 64}, true, {{32}}, "t0=add a0 a1; return t0"),
           fused_matmul_example(DType::kBF16, DType::kBF16, {5, 9}, {9, 6}, false, {{6}, {5, 6}},
                                "t0=add a0 a1; t1=add a2 t0; return t1"),
           fused_matmul_example(DType::kF16, DType::kF16, {5, 9}, {6, 9}, true, {{6}}, "t0=add a0 a1; return t0"),
           fused_matmul_example(DType::kF64, DType::kF64, {3, 4}, {4, 5}, false, {{5}}, "t0=add a0 a1; return t0"),
           epilogue_example(DType::kF32, DType::kF32, false, {{24}, {8, 24}}, "t0=add a0 a1; t1=add a2 t0; return t1"),
           epilogue_example(DType::kBF16, DType::kBF16, true, {{24}}, "t0=add a0 a1; t1=gelu_tanh t0; return t1"),
           epilogue_example(DType::kF16, DType::kF16, false, {{8, 24}, {24}},
                            "t0=add a0 a1; t1=add t0 a2; t2=gelu_tanh t1; return t2"),
           epilogue_example(DType::kBF16, DType::kF32, true, {{24}, {8, 24}}, "t0=add a0 a1; t1=add t0 a2; return t1"),
           fused_matmul_example(DType::kF32, DType::kF32, {0, 4}, {4, 5}, false, {{5}}, "t0=add a0 a1; return t0"),
           fused_matmul_example(DType::kF32, DType::kF32, {3, 0}, {0, 5}, false, {{5}}, "t0=add a0 a1; return t0"),
       }});
}

}  // namespace

void add_fused(OpRegistry& registry) {
  add_fused_matmul(registry);
  registry.add(
      {.name = "fused_elementwise",
       .doc =
           "A chain of elementwise operators as one node, made by the fusion pass. `program` is a list of assignments "
           "over inputs a0, a1, ... and numbers, computed in f32: \"t0=add a0 a1; t1=relu t0; return t1\". The "
           "num_outputs results are of `dtypes`, f32 where it is absent, and of the inputs' broadcast shape.",
       .inputs = {"values..."},
       .attributes = {{"program", std::nullopt, "assignments, then return"},
                      {"num_outputs", AttributeValue(int64_t{1}), "number of results"},
                      {"dtypes", std::nullopt, "of the results: \"bf16 f32\"", /*may_be_absent=*/true}},
       .infer =
           [](const Attributes& attributes, std::span<const Type> inputs) {
             if (inputs.empty()) throw InvalidArgument("a fused chain needs an input");
             Shape shape = inputs[0].shape;
             for (const Type& input : inputs) shape = broadcast_shapes(shape, input.shape);
             const auto count = static_cast<size_t>(attributes.get_int("num_outputs"));
             if (!attributes.has("dtypes")) return std::vector<Type>(count, Type{DType::kF32, shape});
             std::vector<Type> results;
             for (const auto dtype : split(attributes.get_string("dtypes"), ' ')) {
               results.push_back({parse_dtype(dtype), shape});
             }
             if (results.size() != count)
               throw InvalidArgument("dtypes must be {} dtypes, are {}", count, results.size());
             return results;
           },
       .rule =
           [](const Attributes&, std::span<const Type> inputs, std::span<const Type> outputs) {
             std::vector<Shape> in;
             std::vector<Shape> out;
             for (const Type& type : inputs) in.push_back(type.shape);
             for (const Type& type : outputs) out.push_back(type.shape);
             return elementwise_rule(in, out);
           },
       .examples = {{.inputs = {{{DType::kF32, {3, 5}}}, {{DType::kF32, {5}}}, {{DType::kF32, {}}}},
                     .attributes = {{"program", "t0=add a0 a1; t1=mul t0 a2; t2=relu t1; return t2 t0"},
                                    {"num_outputs", int64_t{2}}}},
                    {.inputs = {{{DType::kBF16, {3, 5}}}, {{DType::kF32, {5}}}},
                     .attributes = {{"program", "t0=mul a0 a1; t1=round_bf16 t0; t2=sub t1 a0; return t0 t2"},
                                    {"num_outputs", int64_t{2}},
                                    {"dtypes", "bf16 f32"}},
                     .check_gradient = false},
                    {.inputs = {{{DType::kF32, {0, 2}}}}, .attributes = {{"program", "t0=mul a0 0.5; return t0"}}}}});
}

}  // namespace tessera::ops
