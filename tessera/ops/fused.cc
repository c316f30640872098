// fused_elementwise: what the fusion pass makes of a chain of elementwise nodes. Its program's text form is described
// beside the kernel that runs it.
#include "tessera/base/error.h"
#include "tessera/ops/families.h"
#include "tessera/ops/op_def.h"

namespace tessera::ops {

void add_fused(OpRegistry& registry) {
  registry.add(
      {.name = "fused_elementwise",
       .doc =
           "A chain of elementwise operators as one node, made by the fusion pass. `program` is a list of assignments "
           "over inputs a0, a1, ... and numbers, computed in f32: \"t0=add a0 a1; t1=relu t0; return t1\". The "
           "num_outputs results are f32, of the inputs' broadcast shape.",
       .inputs = {"values..."},
       .attributes = {{"program", std::nullopt, "assignments, then return"},
                      {"num_outputs", AttributeValue(int64_t{1}), "number of results"}},
       .infer =
           [](const Attributes& attributes, std::span<const Type> inputs) {
             if (inputs.empty()) throw InvalidArgument("a fused chain needs an input");
             Shape shape = inputs[0].shape;
             for (const Type& input : inputs) shape = broadcast_shapes(shape, input.shape);
             return std::vector<Type>(static_cast<size_t>(attributes.get_int("num_outputs")), Type{DType::kF32, shape});
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
                    {.inputs = {{{DType::kF32, {0, 2}}}}, .attributes = {{"program", "t0=mul a0 0.5; return t0"}}}}});
}

}  // namespace tessera::ops
