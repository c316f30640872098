// all_finite: what decides whether the gradients of a step are used.
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/registry/require.h"

namespace tessera::ops {

void add_all_finite(OpRegistry& registry) {
  OpDef def{
      .name = "all_finite",
      .doc =
          "Whether all elements of x are finite; bool, true over nothing. `like` has x's shape and is not read: "
          "x is looked at split as `like` is, a gradient as its parameter.",
      .inputs = {"x", "like"},
      .infer = [](const Attributes&, std::span<const Type> types) -> std::vector<Type> {
        require_kind(types[0], Kind::kFloating, "x");
        require_shape(types[1], types[0].shape, "like");
        return {{DType::kBool, {}}};
      },
      .rule =
          [](const Attributes&, std::span<const Type> inputs, std::span<const Type>) {
            IndexRule rule = matched_rule(inputs, {}, {});
            rule.outputs.emplace_back();
            for (const auto& factor : rule.inputs[0]) rule.completions[factor] = Completion::kMin;
            return rule;
          },
      .flops = [](const Attributes&, std::span<const Type> inputs, std::span<const Type>) { return count(inputs[0]); }};
  const auto add_example = [&](DType dtype, const Shape& shape, Domain domain) {
    def.examples.push_back({.inputs = {{{dtype, shape}, domain}, {{DType::kF32, shape}}}, .check_gradient = false});
  };
  for (const Domain domain : {Domain::kOneInfinite, Domain::kAny}) {
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) add_example(dtype, {5, 3}, domain);
    for (const Shape& shape : {Shape{}, Shape{0, 2}, Shape{2, 3, 4}}) add_example(DType::kF32, shape, domain);
  }
  registry.add(std::move(def));
}

}  // namespace tessera::ops
