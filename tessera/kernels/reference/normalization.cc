#include <cmath>

#include "tessera/base/error.h"
#include "tessera/kernels/reference/families.h"
#include "tessera/kernels/reference/loops/batch_norm_blocks.h"
#include "tessera/kernels/reference/loops/walk.h"

namespace tessera::kernels::reference {
namespace {

void run_mean(const KernelArgs& args) {
  dispatch_floating(args.inputs[0].dtype, "batch_norm_mean", [&](auto zero) {
    using T = decltype(zero);
    const Images<T> x(args.inputs[0]);
    for_each_block(args, args.inputs[0], [&](const Block& block) {
      PerChannel sums;
      for_each_element(
          block, [&](int64_t c, T value) { sums[c] += static_cast<double>(value); }, x);
      store(block, args.outputs[0], sums, block.count);
    });
  });
}

void run_variance(const KernelArgs& args) {
  dispatch_floating(args.inputs[0].dtype, "batch_norm_variance", [&](auto zero) {
    using T = decltype(zero);
    const Images<T> x(args.inputs[0]);
    for_each_block(args, args.inputs[0], [&](const Block& block) {
      const PerChannel mean(block, args.inputs[1]);
      PerChannel sums;
      const auto add_square = [&](int64_t c, T value) {
        const double difference = static_cast<double>(value) - mean[c];
        sums[c] += difference * difference;
      };
      for_each_element(block, add_square, x);
      store(block, args.outputs[0], sums, block.count);
    });
  });
}

void run_batch_norm(const KernelArgs& args) {
  const double eps = args.attributes.get_double("eps");
  dispatch_floating(args.inputs[0].dtype, "batch_norm", [&](auto zero) {
    using T = decltype(zero);
    const Images<T> x(args.inputs[0]);
    const Images<T> y(args.outputs[0]);
    for_each_block(args, args.inputs[0], [&](const Block& block) {
      const PerChannel mean(block, args.inputs[1]);
      const PerChannel gamma(block, args.inputs[3]);
      const PerChannel beta(block, args.inputs[4]);
      PerChannel scale = inverse_deviation(block, args.inputs[2], eps);
      for (int64_t c = 0; c < block.channels; ++c) scale[c] *= gamma[c];
      const auto normalise = [&](int64_t c, T from, T& to) {
        to = static_cast<T>((static_cast<double>(from) - mean[c]) * scale[c] + beta[c]);
      };
      for_each_element(block, normalise, x, y);
    });
  });
}

void run_grad_reduce(const KernelArgs& args) {
  const double eps = args.attributes.get_double("eps");
  dispatch_floating(args.inputs[0].dtype, "batch_norm_grad_reduce", [&](auto zero) {
    using T = decltype(zero);
    const Images<T> dy(args.inputs[0]);
    const Images<T> x(args.inputs[1]);
    for_each_block(args, args.inputs[0], [&](const Block& block) {
      const PerChannel mean(block, args.inputs[2]);
      const PerChannel scale = inverse_deviation(block, args.inputs[3], eps);
      PerChannel sum_dy;
      PerChannel sum_dy_xhat;
      const auto add = [&](int64_t c, T gradient, T value) {
        sum_dy[c] += static_cast<double>(gradient);
        sum_dy_xhat[c] += static_cast<double>(gradient) * (static_cast<double>(value) - mean[c]);
      };
      for_each_element(block, add, dy, x);
      for (int64_t c = 0; c < block.channels; ++c) sum_dy_xhat[c] *= scale[c];
      store(block, args.outputs[0], sum_dy);
      store(block, args.outputs[1], sum_dy_xhat);
    });
  });
}

void run_grad_input(const KernelArgs& args) {
  const double eps = args.attributes.get_double("eps");
  dispatch_floating(args.inputs[0].dtype, "batch_norm_grad_input", [&](auto zero) {
    using T = decltype(zero);
    const Images<T> dy(args.inputs[0]);
    const Images<T> x(args.inputs[1]);
    const Images<T> dx(args.outputs[0]);
    for_each_block(args, args.inputs[0], [&](const Block& block) {
      const PerChannel mean(block, args.inputs[2]);
      const PerChannel inverse = inverse_deviation(block, args.inputs[3], eps);
      const PerChannel gamma(block, args.inputs[4]);
      PerChannel shift(block, args.inputs[5]);
      PerChannel slope(block, args.inputs[6]);
      // dx = gamma * inverse * (dy - shift - (x - mean) * slope)
      for (int64_t c = 0; c < block.channels; ++c) {
        shift[c] /= block.count;
        slope[c] *= inverse[c] / block.count;
      }
      const auto propagate = [&](int64_t c, T gradient, T value, T& to) {
        const double centred = static_cast<double>(value) - mean[c];
        to = static_cast<T>(gamma[c] * inverse[c] * (static_cast<double>(gradient) - shift[c] - centred * slope[c]));
      };
      for_each_element(block, propagate, dy, x, dx);
    });
  });
}

void run_moving_average(const KernelArgs& args) {
  const TensorView& moving = args.inputs[0];
  const TensorView& value = args.inputs[1];
  const TensorView& out = args.outputs[0];
  const double momentum = args.attributes.get_double("momentum");
  const Doubles& scales = args.attributes.get_doubles("scales");
  const int64_t elements = out.num_elements();
  if (elements == 0) return;
  const int64_t per_scale = scales.size() == 1 ? elements : elements / static_cast<int64_t>(scales.size());
  dispatch_floating(out.dtype, "moving_average", [&](auto zero) {
    using T = decltype(zero);
    const T* moving_data = moving.as<T>();
    const T* value_data = value.as<T>();
    T* out_data = out.as<T>();
    Walk<3> at(out.shape, {moving.strides, value.strides, out.strides});
    for (int64_t i = 0; i < elements; ++i, at.next()) {
      const double scale = scales[static_cast<size_t>(i / per_scale)];
      const auto was = static_cast<double>(moving_data[at[0]]);
      out_data[at[2]] =
          static_cast<T>(momentum * was + (1 - momentum) * scale * static_cast<double>(value_data[at[1]]));
    }
  });
}

// Layer normalisation: `leading` rows of the dims before begin_axis, each of the dims from there on.
struct Rows {
  Shape leading;
  Shape trailing;
  int begin;

  Rows(const Attributes& attributes, const Shape& x) : begin(static_cast<int>(attributes.get_int("begin_axis"))) {
    leading = dims_between(x, 0, begin);
    trailing = dims_between(x, begin, x.ndim());
  }
  Strides leading_strides(const TensorView& view) const { return dims_between(view.strides, 0, begin); }
  Strides trailing_strides(const TensorView& view) const {
    return dims_between(view.strides, begin, view.strides.ndim());
  }
};

void run_layer_norm(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& gamma = args.inputs[1];
  const TensorView& beta = args.inputs[2];
  const TensorView& y = args.outputs[0];
  const double eps = args.attributes.get_double("eps");
  const Rows rows(args.attributes, x.shape);
  const int64_t size = rows.trailing.num_elements();
  dispatch_floating(x.dtype, "layer_norm", [&](auto zero) {
    using T = decltype(zero);
    const T* x_data = x.as<T>();
    T* y_data = y.as<T>();
    args.parallel_for(rows.leading.num_elements(), 1, [&](int64_t begin, int64_t end) {
      Walk<4> row(rows.leading,
                  {rows.leading_strides(x), rows.leading_strides(y), args.outputs[1].strides, args.outputs[2].strides},
                  begin);
      for (int64_t r = begin; r < end; ++r, row.next()) {
        const auto for_each = [&](auto&& f) {
          Walk<4> at(rows.trailing, {rows.trailing_strides(x), rows.trailing_strides(y), gamma.strides, beta.strides});
          for (int64_t i = 0; i < size; ++i, at.next()) f(at);
        };
        const auto element = [&](const Walk<4>& at) { return static_cast<double>(x_data[row[0] + at[0]]); };
        double mean = 0;
        for_each([&](const Walk<4>& at) { mean += element(at); });
        mean /= static_cast<double>(size);
        double variance = 0;
        for_each([&](const Walk<4>& at) { variance += (element(at) - mean) * (element(at) - mean); });
        const double inverse = 1 / std::sqrt(variance / static_cast<double>(size) + eps);
        for_each([&](const Walk<4>& at) {
          const double normal = (element(at) - mean) * inverse;
          y_data[row[1] + at[1]] = static_cast<T>(normal * load_element(gamma, at[2]) + load_element(beta, at[3]));
        });
        store_element(args.outputs[1], row[2], mean);
        store_element(args.outputs[2], row[3], inverse);
      }
    });
  });
}

void run_layer_norm_grad(const KernelArgs& args) {
  const TensorView& dy = args.inputs[0];
  const TensorView& x = args.inputs[1];
  const TensorView& gamma = args.inputs[2];
  const TensorView& mean = args.inputs[3];
  const TensorView& inv_std = args.inputs[4];
  const TensorView& dx = args.outputs[0];
  const Rows rows(args.attributes, x.shape);
  const int64_t num_rows = rows.leading.num_elements();
  const int64_t size = rows.trailing.num_elements();
  dispatch_floating(x.dtype, "layer_norm_grad", [&](auto zero) {
    using T = decltype(zero);
    const T* dy_data = dy.as<T>();
    const T* x_data = x.as<T>();
    T* dx_data = dx.as<T>();
    // First the sums over rows: dx may overwrite dy or x.
    args.parallel_for(size, 1, [&](int64_t begin, int64_t end) {
      Walk<4> at(
          rows.trailing,
          {rows.trailing_strides(dy), rows.trailing_strides(x), args.outputs[1].strides, args.outputs[2].strides},
          begin);
      for (int64_t i = begin; i < end; ++i, at.next()) {
        double dgamma = 0;
        double dbeta = 0;
        Walk<4> row(rows.leading, {rows.leading_strides(dy), rows.leading_strides(x), mean.strides, inv_std.strides});
        for (int64_t r = 0; r < num_rows; ++r, row.next()) {
          const auto gradient = static_cast<double>(dy_data[row[0] + at[0]]);
          const double centred = static_cast<double>(x_data[row[1] + at[1]]) - load_element(mean, row[2]);
          dgamma += gradient * centred * load_element(inv_std, row[3]);
          dbeta += gradient;
        }
        store_element(args.outputs[1], at[2], dgamma);
        store_element(args.outputs[2], at[3], dbeta);
      }
    });
    args.parallel_for(num_rows, 1, [&](int64_t begin, int64_t end) {
      Walk<5> row(
          rows.leading,
          {rows.leading_strides(dy), rows.leading_strides(x), mean.strides, inv_std.strides, rows.leading_strides(dx)},
          begin);
      for (int64_t r = begin; r < end; ++r, row.next()) {
        const double row_mean = load_element(mean, row[2]);
        const double inverse = load_element(inv_std, row[3]);
        // f(normalised x, dy * gamma, where dx stands)
        const auto for_each = [&](auto&& f) {
          Walk<4> at(rows.trailing,
                     {rows.trailing_strides(dy), rows.trailing_strides(x), gamma.strides, rows.trailing_strides(dx)});
          for (int64_t i = 0; i < size; ++i, at.next()) {
            f((static_cast<double>(x_data[row[1] + at[1]]) - row_mean) * inverse,
              static_cast<double>(dy_data[row[0] + at[0]]) * load_element(gamma, at[2]), row[4] + at[3]);
          }
        };
        double sum = 0;
        double sum_normal = 0;
        for_each([&](double normal, double gradient, int64_t) {
          sum += gradient;
          sum_normal += gradient * normal;
        });
        sum /= static_cast<double>(size);
        sum_normal /= static_cast<double>(size);
        for_each([&](double normal, double gradient, int64_t to) {
          dx_data[to] = static_cast<T>(inverse * (gradient - sum - normal * sum_normal));
        });
      }
    });
  });
}

}  // namespace

void add_normalization(KernelRegistry& registry) {
  registry.add_function("batch_norm_mean", "reference", run_mean);
  registry.add_function("batch_norm_variance", "reference", run_variance);
  registry.add_function("batch_norm", "reference", run_batch_norm, {{0, 0}});
  registry.add_function("batch_norm_grad_reduce", "reference", run_grad_reduce);
  registry.add_function("batch_norm_grad_input", "reference", run_grad_input, {{0, 0}, {1, 0}});
  registry.add_function("moving_average", "reference", run_moving_average, {{0, 0}, {1, 0}});
  registry.add_function("layer_norm", "reference", run_layer_norm, {{0, 0}});
  registry.add_function("layer_norm_grad", "reference", run_layer_norm_grad, {{0, 0}, {1, 0}});
}

}  // namespace tessera::kernels::reference
