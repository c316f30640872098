#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/kernels/reference/families.h"
#include "tessera/kernels/reference/loops/loops.h"
#include "tessera/kernels/reference/loops/walk.h"
#include "tessera/kernels/registry.h"
#include "tessera/tensor/update_group.h"
#include "tessera/tensor/update_rows.h"

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

void run_adagrad(const KernelArgs& args) {
  update_all<1>(args, [&](auto zero) {
    using C = decltype(zero);
    const C rate = scalar<C>(args, 3);
    const C decay = number<C>(args, "weight_decay");
    const C loss_scale = number<C>(args, "loss_scale");
    const bool update_slots = args.attributes.get_bool("update_slots");
    return [=](C& param, C& accum, C grad) {
      const C g = grad / loss_scale + decay * param;
      if (update_slots) accum += g * g;
      param -= rate * g / std::sqrt(accum);
    };
  });
}

void run_ftrl(const KernelArgs& args) {
  update_all<2>(args, [&](auto zero) {
    using C = decltype(zero);
    const C rate = scalar<C>(args, 4);
    const C decay = number<C>(args, "weight_decay");
    const C loss_scale = number<C>(args, "loss_scale");
    const C l1 = number<C>(args, "l1");
    const C twice_l2 = 2 * number<C>(args, "l2");
    const C exponent = -number<C>(args, "lr_power");
    const auto power = [exponent](C x) { return exponent == C(0.5) ? std::sqrt(x) : std::pow(x, exponent); };
    return [=](C& param, C& moments, C& linear, C grad) {
      if (rate == 0) return;  // a step of no length, by which it would divide
      const C g = grad / loss_scale + decay * param;
      const C next = moments + g * g;
      linear = linear + g - (power(next) - power(moments)) / rate * param;
      moments = next;
      const C towards = linear > 0 ? l1 : linear < 0 ? -l1 : 0;
      param = std::abs(linear) > l1 ? (towards - linear) / (power(next) / rate + twice_l2) : 0;
    };
  });
}

// One of a view's rows, which is a tensor of one row.
TensorView row_of(const TensorView& view, int64_t row) {
  TensorView one = subview(view, row * view.strides[0], view.shape, view.strides);
  one.shape[0] = 1;
  return one;
}

// update_rows: the rows of the gradient that have one number are added up, then the optimizer's own loop updates the
// row of that number.
struct RowUpdate {
  UpdateRows update;
  PreparedKernel optimizer;

  void run(const KernelArgs& args) const {
    for (size_t i = 0; i < update.num_results(); ++i) {
      if (args.outputs[i].data != args.inputs[i].data) copy_elements(args.inputs[i], args.outputs[i]);
    }
    const TensorView& ids = args.inputs[update.ids()];
    const int64_t num_rows = args.outputs[0].shape[0];
    const auto row_at = [&](int64_t position) { return read_index(ids, position * ids.strides[0]); };
    const std::span<int64_t> positions(reinterpret_cast<int64_t*>(args.scratch.data()),
                                       static_cast<size_t>(ids.shape[0]));
    std::iota(positions.begin(), positions.end(), 0);
    std::sort(positions.begin(), positions.end(),
              [&](int64_t a, int64_t b) { return std::tuple(row_at(a), a) < std::tuple(row_at(b), b); });
    const bool is_whole = update.may_be_whole && load_element(args.inputs[update.whole()]) != 0;
    size_t next = 0;
    while (next < positions.size() && row_at(positions[next]) < 0) ++next;
    if (is_whole) {
      for (int64_t row = 0; row < num_rows; ++row) update_row(args, row, positions, next, /*moves_states=*/true);
      return;
    }
    while (next < positions.size() && row_at(positions[next]) < num_rows) {
      update_row(args, row_at(positions[next]), positions, next, !update.keeps_states);
    }
  }

  // `next`: in `positions`, which are ordered by row; it moves behind this row's.
  void update_row(const KernelArgs& args, int64_t row, std::span<const int64_t> positions, size_t& next,
                  bool moves_states) const {
    const TensorView& ids = args.inputs[update.ids()];
    const TensorView& gradients = args.inputs[update.rows()];
    const TensorView parameter = row_of(args.outputs[0], row);
    const TensorView sum(args.scratch.data() + positions.size_bytes(),
                         Type{UpdateRows::computed(parameter.dtype), parameter.shape});
    fill_elements(sum, 0);
    for (; next < positions.size() && read_index(ids, positions[next] * ids.strides[0]) == row; ++next) {
      const TensorView gradient = row_of(gradients, positions[next]);
      for_each_element<2>(sum.shape, {sum.strides, gradient.strides}, [&](const std::array<int64_t, 2>& at) {
        store_element(sum, at[0], load_element(sum, at[0]) + load_element(gradient, at[1]));
      });
    }
    std::vector<TensorView> inputs;
    std::vector<TensorView> outputs;
    std::vector<Tensor> unseen;
    for (size_t i = 0; i < update.num_results(); ++i) {
      outputs.push_back(row_of(args.outputs[i], row));
      if (i > 0 && !moves_states) outputs[i] = unseen.emplace_back(Tensor::full(outputs[i].type(), 0)).view();
    }
    inputs = outputs;
    inputs.push_back(sum);
    for (size_t i = 0; i < update.num_scalars; ++i) inputs.push_back(args.inputs[update.scalar(i)]);
    optimizer.run({inputs, outputs, update.settings, {}, ParallelFor(1)});
  }
};

std::optional<PreparedKernel> prepare_row_update(const KernelRequest& request) {
  const UpdateRows update(request.attributes, request.inputs.size());
  KernelRequest one{.op = update.optimizer, .attributes = update.settings, .num_threads = 1};
  for (size_t i = 0; i < update.num_results(); ++i) {
    one.inputs.push_back(row_of(request.inputs[i], 0));
    one.outputs.push_back(row_of(request.outputs[i], 0));
  }
  const Type row{UpdateRows::computed(request.inputs[0].dtype), one.inputs[0].shape};
  one.inputs.emplace_back(nullptr, row);
  for (size_t i = 0; i < update.num_scalars; ++i) one.inputs.push_back(request.inputs[update.scalar(i)]);
  auto optimizer = reference_kernels().find(one);
  if (!optimizer) return std::nullopt;
  PreparedKernel made{.name = optimizer->name + ".rows"};
  made.scratch_bytes = request.inputs[update.ids()].shape[0] * static_cast<int64_t>(sizeof(int64_t)) + row.size_bytes();
  for (size_t i = 0; i < update.num_results(); ++i) {
    if (request.inputs[i].strides == request.outputs[i].strides) {
      made.in_place.emplace_back(static_cast<int>(i), static_cast<int>(i));
    }
  }
  const auto rows = std::make_shared<const RowUpdate>(RowUpdate{update, std::move(*optimizer)});
  made.run = [rows](const KernelArgs& args) { rows->run(args); };
  return made;
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
  registry.add_function("adagrad", "reference", run_adagrad, {{0, 0}, {1, 1}});
  registry.add_function("ftrl", "reference", run_ftrl, {{0, 0}, {1, 1}, {2, 2}});
  registry.add("update_rows", prepare_row_update);
}

}  // namespace tessera::kernels::reference
