#include <cmath>

#include "tessera/base/error.h"
#include "tessera/kernels/reference/families.h"
#include "tessera/kernels/reference/loops/walk.h"
#include "tessera/kernels/registry.h"
#include "tessera/tensor/update_group.h"

namespace tessera::kernels::reference {
namespace {

// Parameter, states and gradient may have different dtypes: they are converted piece by piece into buffers of the type
// that the update is computed in.
constexpr int64_t kPiece = 256;

template <typename C>
void load_piece(const TensorView& view, int64_t begin, int64_t count, C* to) {
  dispatch_floating(view.dtype, "load", [&](auto zero) {
    using T = decltype(zero);
    const T* from = view.as<T>();
    Walk<1> at(view.shape, {view.strides}, begin);
    for (int64_t i = 0; i < count; ++i, at.next()) to[i] = static_cast<C>(from[at[0]]);
  });
}

template <typename C>
void store_piece(const TensorView& view, int64_t begin, int64_t count, const C* from) {
  dispatch_floating(view.dtype, "store", [&](auto zero) {
    using T = decltype(zero);
    T* to = view.as<T>();
    Walk<1> at(view.shape, {view.strides}, begin);
    for (int64_t i = 0; i < count; ++i, at.next()) to[at[0]] = static_cast<T>(from[i]);
  });
}

// The scalars of an update, as numbers of the computation's type.
template <typename C>
C scalar(const KernelArgs& args, size_t input) {
  return static_cast<C>(load_element(args.inputs[input]));
}
template <typename C>
C number(const KernelArgs& args, const char* name) {
  return static_cast<C>(args.attributes.get_double(name));
}

// Runs update(param, states[0..], grad) on every element; it changes the first ones. `make` builds it for the
// computation's type: f64 for an f64 parameter, else f32.
template <size_t NumStates, typename Make>
void update_all(const KernelArgs& args, Make&& make) {
  const int64_t elements = args.outputs[0].num_elements();
  const auto run = [&](auto zero) {
    using C = decltype(zero);
    const auto update = make(zero);
    args.parallel_for(elements, 1024, [&](int64_t begin, int64_t end) {
      C values[NumStates + 2][kPiece];
      for (int64_t first = begin; first < end; first += kPiece) {
        const int64_t count = std::min(kPiece, end - first);
        for (size_t i = 0; i < NumStates + 2; ++i) load_piece(args.inputs[i], first, count, values[i]);
        for (int64_t i = 0; i < count; ++i) {
          if constexpr (NumStates == 1) {
            update(values[0][i], values[1][i], values[2][i]);
          } else {
            update(values[0][i], values[1][i], values[2][i], values[3][i]);
          }
        }
        for (size_t i = 0; i < NumStates + 1; ++i) store_piece(args.outputs[i], first, count, values[i]);
      }
    });
  };
  if (args.inputs[0].dtype == DType::kF64) {
    run(double{});
  } else {
    run(float{});
  }
}

void run_momentum(const KernelArgs& args) {
  update_all<1>(args, [&](auto zero) {
    using C = decltype(zero);
    const C rate = scalar<C>(args, 3);
    const C momentum = scalar<C>(args, 4);
    const C decay = number<C>(args, "weight_decay");
    const C loss_scale = number<C>(args, "loss_scale");
    const bool nesterov = args.attributes.get_bool("nesterov");
    return [=](C& param, C& moment, C grad) {
      const C g = grad / loss_scale + decay * param;
      moment = momentum * moment + g;
      param -= nesterov ? g * rate + moment * momentum * rate : rate * moment;
    };
  });
}

void run_sgd(const KernelArgs& args) {
  update_all<1>(args, [&](auto zero) {
    using C = decltype(zero);
    const C rate = scalar<C>(args, 3);
    const C momentum = scalar<C>(args, 4);
    const bool first = scalar<C>(args, 5) != 0;
    const C kept = static_cast<C>(1 - args.attributes.get_double("dampening"));
    const C decay = number<C>(args, "weight_decay");
    const C loss_scale = number<C>(args, "loss_scale");
    const bool nesterov = args.attributes.get_bool("nesterov");
    return [=](C& param, C& accum, C grad) {
      const C g = grad / loss_scale + decay * param;
      if (momentum == 0) {
        param -= rate * g;
        return;
      }
      accum = first ? g : momentum * accum + kept * g;
      param -= rate * (nesterov ? g + momentum * accum : accum);
    };
  });
}

void run_adam(const KernelArgs& args) {
  update_all<2>(args, [&](auto zero) {
    using C = decltype(zero);
    const double beta1 = args.attributes.get_double("beta1");
    const double beta2 = args.attributes.get_double("beta2");
    const C keep1 = static_cast<C>(beta1);
    const C take1 = static_cast<C>(1 - beta1);
    const C keep2 = static_cast<C>(beta2);
    const C take2 = static_cast<C>(1 - beta2);
    const C rate = scalar<C>(args, 4) * std::sqrt(1 - scalar<C>(args, 6)) / (1 - scalar<C>(args, 5));
    const C eps = number<C>(args, "eps");
    const C decay = number<C>(args, "weight_decay");
    const C loss_scale = number<C>(args, "loss_scale");
    const bool nesterov = args.attributes.get_bool("nesterov");
    return [=](C& param, C& m, C& v, C grad) {
      const C g = grad / loss_scale + decay * param;
      m = keep1 * m + take1 * g;
      v = keep2 * v + take2 * g * g;
      param -= rate * (nesterov ? keep1 * m + take1 * g : m) / (std::sqrt(v) + eps);
    };
  });
}

void run_adam_weight_decay(const KernelArgs& args) {
  update_all<2>(args, [&](auto zero) {
    using C = decltype(zero);
    const double beta1 = args.attributes.get_double("beta1");
    const double beta2 = args.attributes.get_double("beta2");
    const C keep1 = static_cast<C>(beta1);
    const C take1 = static_cast<C>(1 - beta1);
    const C keep2 = static_cast<C>(beta2);
    const C take2 = static_cast<C>(1 - beta2);
    const C rate = scalar<C>(args, 4);
    const C eps = number<C>(args, "eps");
    const C decay = number<C>(args, "weight_decay");
    const C loss_scale = number<C>(args, "loss_scale");
    return [=](C& param, C& m, C& v, C grad) {
      const C g = grad / loss_scale;
      m = keep1 * m + take1 * g;
      v = keep2 * v + take2 * g * g;
      param -= rate * (m / (std::sqrt(v) + eps) + decay * param);
    };
  });
}

void run_adamw(const KernelArgs& args) {
  update_all<2>(args, [&](auto zero) {
    using C = decltype(zero);
    const double beta1 = args.attributes.get_double("beta1");
    const double beta2 = args.attributes.get_double("beta2");
    const C keep1 = static_cast<C>(beta1);
    const C take1 = static_cast<C>(1 - beta1);
    const C keep2 = static_cast<C>(beta2);
    const C take2 = static_cast<C>(1 - beta2);
    const C kept = 1 - scalar<C>(args, 4) * number<C>(args, "weight_decay");
    const C rate = scalar<C>(args, 4) / (1 - scalar<C>(args, 5));
    const C correction = 1 - scalar<C>(args, 6);
    const C eps = number<C>(args, "eps");
    const C loss_scale = number<C>(args, "loss_scale");
    return [=](C& param, C& m, C& v, C grad) {
      const C g = grad / loss_scale;
      m = keep1 * m + take1 * g;
      v = keep2 * v + take2 * g * g;
      param = kept * param - rate * m / (std::sqrt(v / correction) + eps);
    };
  });
}

}  // namespace

void add_optimizers(KernelRegistry& registry) {
  registry.add_function("momentum", "reference", run_momentum, {{0, 0}, {1, 1}});
  registry.add_function("sgd", "reference", run_sgd, {{0, 0}, {1, 1}});
  registry.add_function("adam", "reference", run_adam, {{0, 0}, {1, 1}, {2, 2}});
  registry.add_function("adam_weight_decay", "reference", run_adam_weight_decay, {{0, 0}, {1, 1}, {2, 2}});
  registry.add("update_group",
               [](const KernelRequest& request) { return prepare_update_group(request, reference_kernels()); });
  registry.add_function("adamw", "reference", run_adamw, {{0, 0}, {1, 1}, {2, 2}});
}

}  // namespace tessera::kernels::reference
