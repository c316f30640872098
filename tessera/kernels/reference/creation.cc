#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <variant>

#include "tessera/base/random.h"
#include "tessera/kernels/reference/families.h"
#include "tessera/kernels/reference/loops/loops.h"

namespace tessera::kernels::reference {
namespace {

void run_fill(const KernelArgs& args) { fill_elements(args.outputs[0], args.attributes.get_double("value")); }
void run_zeros(const KernelArgs& args) { fill_elements(args.outputs[0], 0); }
void run_ones(const KernelArgs& args) { fill_elements(args.outputs[0], 1); }

void run_constant(const KernelArgs& args) {
  const TensorView& y = args.outputs[0];
  auto* values = const_cast<double*>(args.attributes.get_doubles("values").data());  // only read
  copy_elements(TensorView(values, {DType::kF64, y.shape}), y);
}

void run_range(const KernelArgs& args) {
  const TensorView& y = args.outputs[0];
  const auto is_int = [&](std::string_view name) {
    return std::holds_alternative<int64_t>(*args.attributes.find(name));
  };
  // Whole numbers in integers, which doubles beyond 2^53 are not.
  const bool whole = is_int("start") && is_int("delta");
  const auto fill = [&](auto first, auto step) {
    using Value = decltype(first);
    constexpr DType kDType = std::is_integral_v<Value> ? DType::kI64 : DType::kF64;
    std::array<Value, 256> values;
    const auto most = static_cast<int64_t>(values.size());
    for (int64_t begin = 0; begin < y.shape[0]; begin += most) {
      const int64_t count = std::min(most, y.shape[0] - begin);
      for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = first + static_cast<Value>(begin + i) * step;
      copy_elements(TensorView(values.data(), {kDType, {count}}),
                    subview(y, begin * y.strides[0], {count}, {y.strides[0]}));
    }
  };
  if (whole) {
    fill(args.attributes.get_int("start"), args.attributes.get_int("delta"));
  } else {
    fill(args.attributes.get_double("start"), args.attributes.get_double("delta"));
  }
}

RandomStream stream_of(const KernelArgs& args, const TensorView& step) {
  return {static_cast<uint64_t>(args.attributes.get_int("seed")),
          static_cast<uint64_t>(args.attributes.get_int("stream")), static_cast<uint64_t>(read_index(step, 0))};
}

// Where the elements of a view lie in the global tensor that it is a slice of: element at local index i has the global
// row-major index begin + sum of i[d] * strides[d].
struct GlobalIndex {
  int64_t begin = 0;
  Strides strides;
};

GlobalIndex global_index(const KernelArgs& args, const Shape& local) {
  const Ints& global = args.attributes.get_ints("global_shape");
  const Ints& offset = args.attributes.get_ints("offset");
  GlobalIndex index{0, dense_strides(global.empty() ? local : Shape(global))};
  for (size_t d = 0; d < offset.size(); ++d) index.begin += offset[d] * index.strides[static_cast<int>(d)];
  return index;
}

// What the threads draw between two signs that the kernel comes further: some milliseconds' work. And the least that is
// worth a thread.
constexpr int64_t kPieceDraws = int64_t{1} << 20;
constexpr int64_t kGrainDraws = 4096;

// draw(stream, index) gives a double.
template <typename F>
void run_draws(const KernelArgs& args, F&& draw) {
  const TensorView& y = args.outputs[0];
  if (y.num_elements() == 0) return;
  const RandomStream stream = stream_of(args, args.inputs[0]);
  const GlobalIndex global = global_index(args, y.shape);
  const auto draw_part = [&](const TensorView& part, int64_t first) {
    dispatch_floating(y.dtype, "random", [&](auto zero) {
      using T = decltype(zero);
      for_each_element<2>(part.shape, {part.strides, global.strides}, [&](const std::array<int64_t, 2>& at) {
        part.as<T>()[at[0]] =
            static_cast<T>(static_cast<ComputeType<T>>(draw(stream, static_cast<uint64_t>(first + at[1]))));
      });
    });
  };
  if (y.shape.ndim() == 0) return draw_part(y, global.begin);
  int longest = 0;
  for (int d = 1; d < y.shape.ndim(); ++d) {
    if (y.shape[d] > y.shape[longest]) longest = d;
  }
  const int64_t draws = y.num_elements() / y.shape[longest];  // of one index of the longest dim
  args.for_pieces(y.shape[longest], std::max<int64_t>(1, kPieceDraws / draws),
                  std::max<int64_t>(1, kGrainDraws / draws), [&](int64_t begin, int64_t end) {
                    Shape shape = y.shape;
                    shape[longest] = end - begin;
                    draw_part(subview(y, begin * y.strides[longest], shape, y.strides),
                              global.begin + begin * global.strides[longest]);
                  });
}

void run_random_uniform(const KernelArgs& args) {
  const double low = args.attributes.get_double("low");
  const double high = args.attributes.get_double("high");
  run_draws(args, [&](const RandomStream& stream, uint64_t index) {
    return low + (high - low) * random_open_uniform(stream, index);
  });
}

void run_random_normal(const KernelArgs& args) {
  const double mean = args.attributes.get_double("mean");
  const double sigma = args.attributes.get_double("sigma");
  run_draws(args,
            [&](const RandomStream& stream, uint64_t index) { return mean + sigma * random_normal(stream, index); });
}

void run_random_truncated_normal(const KernelArgs& args) {
  const double sigma = args.attributes.get_double("sigma");
  run_draws(args, [&](const RandomStream& stream, uint64_t index) {
    return sigma * random_truncated_normal(stream, index, 2.0);
  });
}

void run_dropout(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& y = args.outputs[0];
  const double keep_prob = args.attributes.get_double("keep_prob");
  const RandomStream stream = stream_of(args, args.inputs[1]);
  const GlobalIndex global = global_index(args, y.shape);
  dispatch_floating(y.dtype, "dropout", [&](auto zero) {
    using T = decltype(zero);
    using C = ComputeType<T>;
    for_each_element<3>(y.shape, {x.strides, y.strides, global.strides}, [&](const std::array<int64_t, 3>& at) {
      const bool kept = random_uniform(stream, static_cast<uint64_t>(global.begin + at[2])) < keep_prob;
      y.as<T>()[at[1]] =
          kept ? static_cast<T>(static_cast<C>(x.as<T>()[at[0]]) / static_cast<C>(keep_prob)) : static_cast<T>(C(0));
    });
  });
}

}  // namespace

void add_creation(KernelRegistry& registry) {
  registry.add_function("fill", "reference", run_fill);
  registry.add_function("zeros_like", "reference", run_zeros, {{0, 0}});
  registry.add_function("ones_like", "reference", run_ones, {{0, 0}});
  registry.add_function("constant", "reference", run_constant);
  registry.add_function("range", "reference", run_range);
  registry.add_function("random_uniform", "reference", run_random_uniform);
  registry.add_function("random_normal", "reference", run_random_normal);
  registry.add_function("random_truncated_normal", "reference", run_random_truncated_normal);
  registry.add_function("dropout", "reference", run_dropout, {{0, 0}});
}

}  // namespace tessera::kernels::reference
