// Batch normalisation fused with its neighbours, a block of channels at a time.
#include "tessera/base/error.h"
#include "tessera/kernels/reference/families.h"
#include "tessera/kernels/reference/loops/batch_norm_blocks.h"

namespace tessera::kernels::reference {
namespace {

// batch_norm of a block: (x - mean) * scale + beta, its operands the inputs from `first` on.
struct Norm {
  PerChannel mean, scale, beta;

  Norm(const KernelArgs& args, const Block& block, size_t first, double eps)
      : mean(block, args.inputs[first + 1]),
        scale(inverse_deviation(block, args.inputs[first + 2], eps)),
        beta(block, args.inputs[first + 4]) {
    const PerChannel gamma(block, args.inputs[first + 3]);
    for (int64_t c = 0; c < block.channels; ++c) scale[c] *= gamma[c];
  }
  template <typename T>
  double operator()(int64_t c, T x) const {
    return (static_cast<double>(x) - mean[c]) * scale[c] + beta[c];
  }
};

void run_statistics(const KernelArgs& args) {
  dispatch_floating(args.inputs[0].dtype, "batch_norm_statistics", [&](auto zero) {
    using T = decltype(zero);
    const Images<T> x(args.inputs[0]);
    for_each_block(args, args.inputs[0], [&](const Block& block) {
      PerChannel mean;
      PerChannel squares;
      for_each_element(
          block, [&](int64_t c, T value) { mean[c] += static_cast<double>(value); }, x);
      for (double& value : mean.values) value /= block.count;
      const auto add_square = [&](int64_t c, T value) {
        const double difference = static_cast<double>(value) - mean[c];
        squares[c] += difference * difference;
      };
      for_each_element(block, add_square, x);
      store(block, args.outputs[0], mean);
      store(block, args.outputs[1], squares, block.count);
    });
  });
}

void run_fused_batch_norm(const KernelArgs& args) {
  const Attributes& attributes = args.attributes;
  const bool relu = attributes.get_bool("relu");
  const std::string& residual = attributes.get_string("residual");
  dispatch_floating(args.inputs[0].dtype, "fused_batch_norm", [&](auto zero) {
    using T = decltype(zero);
    const Images<T> x(args.inputs[0]);
    const Images<T> y(args.outputs[0]);
    for_each_block(args, args.inputs[0], [&](const Block& block) {
      const Norm norm(args, block, 0, attributes.get_double("eps"));
      const auto put = [&](double value, T& to) { to = static_cast<T>(relu && value <= 0 ? 0 : value); };
      if (residual == "none") {
        for_each_element(
            block, [&](int64_t c, T from, T& to) { put(norm(c, from), to); }, x, y);
      } else if (residual == "value") {
        const auto add = [&](int64_t c, T from, T more, T& to) { put(norm(c, from) + static_cast<double>(more), to); };
        for_each_element(block, add, x, Images<T>(args.inputs[5]), y);
      } else {
        const Norm other(args, block, 5, attributes.get_double("residual_eps"));
        const auto add = [&](int64_t c, T from, T more, T& to) { put(norm(c, from) + other(c, more), to); };
        for_each_element(block, add, x, Images<T>(args.inputs[5]), y);
      }
    });
  });
}

// The sums of gradients that batch_norm_grad_reduce makes.
struct GradientSums {
  PerChannel dy, dy_centred;

  template <typename T>
  void add(int64_t c, double gradient, T x, const PerChannel& mean) {
    dy[c] += gradient;
    dy_centred[c] += gradient * (static_cast<double>(x) - mean[c]);
  }
  void store_at(const KernelArgs& args, const Block& block, const TensorView& variance, size_t first_output) {
    const PerChannel inverse = inverse_deviation(block, variance, args.attributes.get_double("eps"));
    for (int64_t c = 0; c < block.channels; ++c) dy_centred[c] *= inverse[c];
    store(block, args.outputs[first_output], dy);
    store(block, args.outputs[first_output + 1], dy_centred);
  }
};

void run_relu_grad_reduce(const KernelArgs& args) {
  dispatch_floating(args.inputs[0].dtype, "batch_norm_relu_grad_reduce", [&](auto zero) {
    using T = decltype(zero);
    const Images<T> dy(args.inputs[0]);
    const Images<T> x(args.inputs[1]);
    for_each_block(args, args.inputs[0], [&](const Block& block) {
      const Norm norm(args, block, 1, args.attributes.get_double("eps"));
      GradientSums sums;
      const auto add = [&](int64_t c, T gradient, T value) {
        if (norm(c, value) > 0) sums.add(c, static_cast<double>(gradient), value, norm.mean);
      };
      for_each_element(block, add, dy, x);
      sums.store_at(args, block, args.inputs[3], 0);
    });
  });
}

void run_relu_grad_input(const KernelArgs& args) {
  const double eps = args.attributes.get_double("eps");
  dispatch_floating(args.inputs[0].dtype, "batch_norm_relu_grad_input", [&](auto zero) {
    using T = decltype(zero);
    const Images<T> dy(args.inputs[0]);
    const Images<T> x(args.inputs[1]);
    const Images<T> dx(args.outputs[0]);
    for_each_block(args, args.inputs[0], [&](const Block& block) {
      const Norm norm(args, block, 1, eps);
      const PerChannel inverse = inverse_deviation(block, args.inputs[3], eps);
      PerChannel shift(block, args.inputs[6]);
      PerChannel slope(block, args.inputs[7]);
      for (int64_t c = 0; c < block.channels; ++c) {
        shift[c] /= block.count;
        slope[c] *= inverse[c] / block.count;
      }
      const auto propagate = [&](int64_t c, T gradient, T value, T& to) {
        const double masked = norm(c, value) > 0 ? static_cast<double>(gradient) : 0;
        const double centred = static_cast<double>(value) - norm.mean[c];
        to = static_cast<T>(norm.scale[c] * (masked - shift[c] - centred * slope[c]));
      };
      for_each_element(block, propagate, dy, x, dx);
    });
  });
}

void run_masked_grad_reduce(const KernelArgs& args) {
  dispatch_floating(args.inputs[0].dtype, "masked_batch_norm_grad_reduce", [&](auto zero) {
    using T = decltype(zero);
    const Images<T> y(args.inputs[0]);
    const Images<T> x(args.inputs[1]);
    const Images<T> masked(args.outputs[0]);
    for_each_block(args, args.inputs[0], [&](const Block& block) {
      const PerChannel mean(block, args.inputs[2]);
      GradientSums sums;
      const auto add = [&](int64_t c, T result, T value, double gradient, T& to) {
        if (!(static_cast<double>(result) > 0)) gradient = 0;
        sums.add(c, gradient, value, mean);
        to = static_cast<T>(gradient);
      };
      const auto add_one = [&](int64_t c, T result, T value, T dy, T& to) {
        add(c, result, value, static_cast<double>(dy), to);
      };
      const auto add_two = [&](int64_t c, T result, T value, T first, T second, T& to) {
        add(c, result, value, static_cast<double>(first) + static_cast<double>(second), to);
      };
      const Images<T> dy(args.inputs[4]);
      if (args.inputs.size() == 5) {
        for_each_element(block, add_one, y, x, dy, masked);
      } else {
        for_each_element(block, add_two, y, x, dy, Images<T>(args.inputs[5]), masked);
      }
      sums.store_at(args, block, args.inputs[3], 1);
    });
  });
}

// Of the pairs that may share memory, those whose input a node with optional operands has.
void add(KernelRegistry& registry, const std::string& op, void (*run)(const KernelArgs&),
         const std::vector<std::pair<int, int>>& in_place) {
  registry.add(op, [=](const KernelRequest& request) {
    PreparedKernel kernel{.name = "reference." + op, .run = run, .in_place = in_place};
    std::erase_if(kernel.in_place, [&](const std::pair<int, int>& pair) {
      return static_cast<size_t>(pair.first) >= request.inputs.size();
    });
    return kernel;
  });
}

}  // namespace

void add_fused_norms(KernelRegistry& registry) {
  registry.add_function("batch_norm_statistics", "reference", run_statistics);
  add(registry, "fused_batch_norm", run_fused_batch_norm, {{0, 0}, {5, 0}});
  registry.add_function("batch_norm_relu_grad_reduce", "reference", run_relu_grad_reduce);
  registry.add_function("batch_norm_relu_grad_input", "reference", run_relu_grad_input, {{0, 0}, {1, 0}});
  add(registry, "masked_batch_norm_grad_reduce", run_masked_grad_reduce, {{0, 0}, {1, 0}, {4, 0}, {5, 0}});
}

}  // namespace tessera::kernels::reference
