#include <utility>

#include "tessera/kernels/reference/families.h"
#include "tessera/kernels/reference/loops/loops.h"
#include "tessera/tensor/element_op.h"

namespace tessera::kernels::reference {
namespace {

// f, which computes in ComputeType (f32 for the half types), on every element; Out is T, or bool for predicates.
template <typename T, typename Out, typename F>
void apply_unary(const KernelArgs& args, const F& f) {
  const T* x = args.inputs[0].as<T>();
  Out* y = args.outputs[0].as<Out>();
  for_each_row<2>(args.outputs[0].shape, {args.inputs[0].strides, args.outputs[0].strides},
                  [&](const auto& at, int64_t count, const auto& step) {
                    for (int64_t i = 0; i < count; ++i) {
                      y[at[1] + i * step[1]] = static_cast<Out>(f(static_cast<ComputeType<T>>(x[at[0] + i * step[0]])));
                    }
                  });
}

template <typename T, typename Out, typename F>
void apply_binary(const KernelArgs& args, const F& f) {
  const T* x = args.inputs[0].as<T>();
  const T* y = args.inputs[1].as<T>();
  Out* z = args.outputs[0].as<Out>();
  const Shape& shape = args.outputs[0].shape;
  for_each_row<3>(
      shape,
      {broadcast_strides(args.inputs[0], shape), broadcast_strides(args.inputs[1], shape), args.outputs[0].strides},
      [&](const auto& at, int64_t count, const auto& step) {
        for (int64_t i = 0; i < count; ++i) {
          z[at[2] + i * step[2]] = static_cast<Out>(f(static_cast<ComputeType<T>>(x[at[0] + i * step[0]]),
                                                      static_cast<ComputeType<T>>(y[at[1] + i * step[1]])));
        }
      });
}

template <ElementOp kOp>
void run_element_op(const KernelArgs& args) {
  constexpr ElementOpInfo kInfo = info_of(kOp);
  const DType dtype = args.inputs[0].dtype;
  const auto apply = [&]<typename T>(T) {
    using C = ComputeType<T>;
    using Out = std::conditional_t<kInfo.types == ElementTypes::kCompared, bool, T>;
    if constexpr (kInfo.arity == 1) {
      apply_unary<T, Out>(args, [](C x) { return element_value<kOp>(x); });
    } else {
      apply_binary<T, Out>(args, [](C x, C y) { return element_value<kOp>(x, y); });
    }
  };
  if constexpr (kInfo.types == ElementTypes::kBool) {
    apply(bool{});
  } else if constexpr (kInfo.types == ElementTypes::kNumeric) {
    dispatch_numeric(dtype, kInfo.name, apply);
  } else if constexpr (kInfo.types == ElementTypes::kCompared && kInfo.arity == 2) {
    dispatch_dtype(dtype, kInfo.name, apply);
  } else {
    dispatch_floating(dtype, kInfo.name, apply);
  }
}

void run_gelu(const KernelArgs& args) {
  const bool approximate = args.attributes.get_bool("approximate");
  (approximate ? run_element_op<ElementOp::kGeluTanh> : run_element_op<ElementOp::kGeluErf>)(args);
}

void run_gelu_grad(const KernelArgs& args) {
  const bool approximate = args.attributes.get_bool("approximate");
  (approximate ? run_element_op<ElementOp::kGeluTanhGrad> : run_element_op<ElementOp::kGeluErfGrad>)(args);
}

void run_select(const KernelArgs& args) {
  const Shape& shape = args.outputs[0].shape;
  const bool* condition = args.inputs[0].as<bool>();
  dispatch_dtype(args.outputs[0].dtype, "select", [&](auto zero) {
    using T = decltype(zero);
    const T* x = args.inputs[1].as<T>();
    const T* y = args.inputs[2].as<T>();
    T* z = args.outputs[0].as<T>();
    for_each_row<4>(shape,
                    {broadcast_strides(args.inputs[0], shape), broadcast_strides(args.inputs[1], shape),
                     broadcast_strides(args.inputs[2], shape), args.outputs[0].strides},
                    [&](const auto& at, int64_t count, const auto& step) {
                      for (int64_t i = 0; i < count; ++i) {
                        z[at[3] + i * step[3]] =
                            condition[at[0] + i * step[0]] ? x[at[1] + i * step[1]] : y[at[2] + i * step[2]];
                      }
                    });
  });
}

void run_copy(const KernelArgs& args) { copy_elements(args.inputs[0], args.outputs[0]); }

void run_custom_gradient(const KernelArgs& args) {
  for (size_t i = 0; i < args.outputs.size(); ++i) copy_elements(args.inputs[i], args.outputs[i]);
}

// The operands that the result may overwrite.
std::vector<std::pair<int, int>> in_place(int arity) {
  return arity == 1 ? std::vector<std::pair<int, int>>{{0, 0}} : std::vector<std::pair<int, int>>{{0, 0}, {1, 0}};
}

template <size_t kIndex>
void add_element_op(KernelRegistry& registry) {
  constexpr ElementOpInfo kInfo = kElementOps[kIndex];
  constexpr bool kIsOwn = kInfo.types == ElementTypes::kForm || kInfo.types == ElementTypes::kSelect;
  if constexpr (!kIsOwn) {
    const bool keeps_dtype = kInfo.types != ElementTypes::kCompared;
    registry.add_function(std::string(kInfo.name), "reference", run_element_op<kInfo.op>,
                          keeps_dtype ? in_place(kInfo.arity) : std::vector<std::pair<int, int>>{});
  }
}

}  // namespace

void add_elementwise(KernelRegistry& registry) {
  [&]<size_t... kIndices>(std::index_sequence<kIndices...>) { (add_element_op<kIndices>(registry), ...); }
  (std::make_index_sequence<std::size(kElementOps)>());
  registry.add_function("gelu", "reference", run_gelu, in_place(1));
  registry.add_function("gelu_grad", "reference", run_gelu_grad, in_place(2));
  registry.add_function("stop_gradient", "reference", run_copy, in_place(1));
  registry.add_function("select", "reference", run_select, {{1, 0}, {2, 0}});
  registry.add_function("cast", "reference", run_copy);
  registry.add_function("custom_gradient", "reference", run_custom_gradient);
}

}  // namespace tessera::kernels::reference
