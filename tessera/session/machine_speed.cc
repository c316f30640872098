#include "tessera/session/machine_speed.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "tessera/base/function_ref.h"
#include "tessera/base/parallel_for.h"
#include "tessera/base/thread.h"
#include "tessera/compiler/autodiff.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/session/session.h"
#include "tessera/tensor/strided_copy.h"

namespace tessera::session {
namespace {

ir::Value input(ir::Graph& graph, const char* name, const Type& type) {
  return graph.add_input(ir::InputKind::kInput, name, type);
}

// Of `count` steps, one after the other, each on the result of the one before.
double chain_seconds(RunTimer& timer, const Type& type, int64_t count,
                     FunctionRef<ir::Value(ir::Value, ir::Value)> step) {
  ir::Graph graph("chain");
  const auto other = input(graph, "other", type);
  auto x = input(graph, "x", type);
  for (int64_t i = 0; i < count; ++i) x = step(x, other);
  graph.add_output("y", x);
  return fastest_run_seconds(timer, graph);
}

ir::Graph product_of(DType dtype, int64_t size) {
  ir::Graph graph("product");
  const auto a = input(graph, "a", {dtype, {size, size}});
  const auto b = input(graph, "b", {dtype, {size, size}});
  graph.add_output("c", ops::matmul(a, b));
  return graph;
}

// In a step, operands come from where other steps have left them: seldom from the cache that only this core has.
class OwnCache {
 public:
  // So that what lies in it must go.
  void fill() {
    for (auto& byte : memory_.bytes()) byte = std::byte{1};
  }

 private:
  static int64_t bytes() {
    const auto known = static_cast<int64_t>(sysconf(_SC_LEVEL2_CACHE_SIZE));
    return 2 * (known > 0 ? known : int64_t{1} << 20);
  }
  Tensor memory_{DType::kU8, {bytes()}};
};

// One convolution, or one gradient of one, of images whose results are of kSize x kSize pixels each.
struct OneConvolution {
  ir::Graph graph;
  double flops = 0;
};
OneConvolution convolution_of(const compiler::ConvolutionSize& size) {
  constexpr int64_t kSize = 8;
  const int64_t num_images = size.pixels / (kSize * kSize);
  const int64_t window = size.is_pointwise ? 1 : 3;
  const int64_t stride = size.is_strided ? 2 : 1;
  const int64_t padding = window / 2;
  const Type images{DType::kF32, {num_images, size.in_channels, kSize * stride, kSize * stride}};
  const Type results{DType::kF32, {num_images, size.out_channels, kSize, kSize}};
  const Type weight{DType::kF32, {size.out_channels, size.in_channels, window, window}};
  Attributes attributes = {{"strides", Ints{stride, stride}},
                           {"padding", Ints{padding, padding, padding, padding}},
                           {"dilation", Ints{1, 1}},
                           {"groups", int64_t{1}}};
  OneConvolution made{ir::Graph("convolution"), 2.0 * static_cast<double>(size.pixels * weight.shape.num_elements())};
  if (size.op == "conv2d") {
    const auto x = input(made.graph, "x", images);
    made.graph.add_output("y", ops::apply1(size.op, {x, input(made.graph, "weight", weight)}, attributes));
  } else if (size.op == "conv2d_grad_input") {
    attributes.set("input_size", Ints{images.shape[2], images.shape[3]});
    const auto dy = input(made.graph, "dy", results);
    made.graph.add_output("dx", ops::apply1(size.op, {dy, input(made.graph, "weight", weight)}, attributes));
  } else {
    attributes.set("kernel_size", Ints{window, window});
    const auto dy = input(made.graph, "dy", results);
    made.graph.add_output("dweight", ops::apply1(size.op, {dy, input(made.graph, "x", images)}, attributes));
  }
  return made;
}

}  // namespace

double fastest_run_seconds(RunTimer& timer, const ir::Graph& graph) {
  Session session(timer.context(), {.fusions = compiler::Fusions::none()});
  const auto executable = session.compile_local(graph);
  return timer.fastest_seconds([&] { executable->run(); });
}

Measured measure_matmul(RunTimer& timer, DType dtype, int64_t size) {
  const auto n = static_cast<double>(size);
  return {2 * n * n * n, fastest_run_seconds(timer, product_of(dtype, size))};
}

Measured measure_convolution(RunTimer& timer, DType dtype, int64_t num_images) {
  constexpr int64_t kChannels = 128;
  constexpr int64_t kSize = 14;
  const Shape images{num_images, kChannels, kSize, kSize};
  ir::Graph graph("convolution");
  const auto x = input(graph, "x", {dtype, images});
  const auto weight = input(graph, "weight", {dtype, {kChannels, kChannels, 3, 3}});
  const auto y = ops::conv2d(x, weight, {.pad_mode = ops::PadMode::kSame});
  graph.add_output("y", y);
  const auto gradients = compiler::gradients(y, std::vector<ir::Value>{x, weight}, y);
  graph.add_output("dx", gradients[0]);
  graph.add_output("dweight", gradients[1]);
  return {3.0 * 2 * 9 * static_cast<double>(images.num_elements() * kChannels), fastest_run_seconds(timer, graph)};
}

compiler::ConvolutionShares measure_convolution_shares(RunTimer& timer, double flops_per_second,
                                                       double overhead_seconds, const ConvolutionGrid& grid) {
  constexpr int kRuns = 3;
  OwnCache cache;
  compiler::ConvolutionShares shares{grid.in_channels, grid.out_channels, grid.pixels, {}};
  Session session(timer.context(), {.fusions = compiler::Fusions::none()});
  const auto measure = [&](const compiler::ConvolutionSize& size) {
    const auto one = convolution_of(size);
    const auto executable = session.compile_local(one.graph);
    const double measured = timer.fastest_seconds([&] { executable->run(); }, kRuns, [&] { cache.fill(); });
    // Most of a very small one is its overhead, which is not known so well that it could be taken off whole.
    const double seconds = std::max(measured - overhead_seconds, measured / 2);
    return one.flops / seconds / flops_per_second;
  };
  for (auto size : compiler::convolution_kinds()) {
    auto& row = shares.by_kind[size.kind()];
    for (const int64_t in_channels : grid.in_channels) {
      for (const int64_t out_channels : grid.out_channels) {
        for (const int64_t pixels : grid.pixels) {
          size.in_channels = in_channels;
          size.out_channels = out_channels;
          size.pixels = pixels;
          row.push_back(measure(size));
        }
      }
    }
  }
  return shares;
}

Measured measure_functions(RunTimer& timer, DType dtype) {
  constexpr int kSteps = 100;
  const std::vector<Type> type = {{dtype, {1 << 15}}};
  const double flops = ops::cost_of(ops::OpRegistry::instance().get("tanh"), {}, type, type).flops;
  return {kSteps * flops, chain_seconds(timer, type[0], kSteps, [](ir::Value x, ir::Value) { return ops::tanh(x); })};
}

Measured measure_memory(RunTimer& timer, int64_t bytes) {
  constexpr int64_t kBytesOfAll = int64_t{64} << 20;
  constexpr int64_t kOperands = 3;  // and results
  const int64_t steps = std::clamp<int64_t>(kBytesOfAll / bytes, 2, 1000);
  const Type type{DType::kF32, {bytes / kOperands / static_cast<int64_t>(sizeof(float))}};
  return {static_cast<double>(steps * bytes),
          chain_seconds(timer, type, steps, [](ir::Value x, ir::Value other) { return x + other; })};
}

std::map<int64_t, double> measure_caches(RunTimer& timer, double memory, std::span<const int64_t> sizes) {
  std::map<int64_t, double> speeds;
  double least = memory;
  for (const int64_t bytes : sizes) {
    // What is larger is not faster, but by noise.
    least = std::max(least, measure_memory(timer, bytes).per_second());
    speeds[bytes] = least;
  }
  return speeds;
}

std::map<int64_t, double> measure_copies(RunTimer& timer, std::span<const int64_t> piece_bytes) {
  // A value of a network's middle, once: pieces lie apart by what others have in between. Single elements change the
  // order of channels and pixels.
  constexpr int64_t kApart = 64;
  constexpr int64_t kPixels = 16;
  constexpr int64_t kElements = 1 << 17;
  constexpr int kRuns = 5;
  OwnCache cache;
  Tensor from(DType::kF32, {kElements});
  Tensor to(DType::kF32, {kElements});
  const ParallelFor parallel_for(timer.context().num_compute_threads());
  std::map<int64_t, double> speeds;
  double least = 0;
  for (const int64_t bytes : piece_bytes) {
    const int64_t piece = std::max<int64_t>(bytes / static_cast<int64_t>(sizeof(float)), 1);
    const int64_t apart = piece == 1 ? kPixels : kApart;
    const int64_t groups = std::max<int64_t>(kElements / piece / apart / kApart, 1);
    const int64_t rows = kElements / piece / apart / groups;
    const Shape shape{groups, rows, apart, piece};
    const StridedCopy copy(shape, dense_strides(shape), {rows * apart * piece, piece, rows * piece, 1}, sizeof(float));
    const double seconds = timer.fastest_seconds(
        [&] {
          parallel_for(copy.num_units(), copy.grain(), [&](int64_t begin, int64_t end) {
            copy.run(from.bytes().data(), to.bytes().data(), begin, end);
          });
        },
        kRuns, [&] { cache.fill(); });
    // Longer pieces are not slower, but by noise.
    least = std::max(least, 2.0 * sizeof(float) * kElements / seconds);
    speeds[bytes] = least;
  }
  return speeds;
}

Measured measure_rearranging(RunTimer& timer) {
  OwnCache cache;
  const Type images{DType::kF32, {32, 64, 8, 8}};
  const auto seconds = [&](ir::InputKind kind) {
    Session session(timer.context(), {.fusions = compiler::Fusions::none()});
    ir::Graph graph("convolution");
    // Inputs lie as their readers want them, parameters row by row.
    if (kind == ir::InputKind::kParameter) session.declare("x", images);
    const auto x = graph.add_input(kind, "x", images);
    graph.add_output("y", ops::conv2d(x, input(graph, "weight", {DType::kF32, {64, 64, 1, 1}})));
    const auto executable = session.compile_local(graph);
    return timer.fastest_seconds([&] { executable->run(); }, 5, [&] { cache.fill(); });
  };
  const double as_wanted = seconds(ir::InputKind::kInput);
  const double longer = seconds(ir::InputKind::kParameter) - as_wanted;
  return {2.0 * static_cast<double>(images.size_bytes()), std::max(longer, as_wanted / 100)};
}

Measured measure_kernels(RunTimer& timer, int num_kernels) {
  return {static_cast<double>(num_kernels),
          chain_seconds(timer, {DType::kF32, {8}}, num_kernels, [](ir::Value x, ir::Value) { return ops::neg(x); })};
}

double measure_communication_load(RunTimer& timer) {
  constexpr int64_t kCount = 1 << 20;
  Session session(timer.context(), {.fusions = compiler::Fusions::none()});
  const auto executable = session.compile_local(product_of(DType::kF32, 768));
  std::vector<float> data(kCount);
  const auto reduce = [&](int times) {
    for (int i = 0; i < times; ++i) {
      timer.context().world().all_reduce(data.data(), kCount, DType::kF32, comm::ReduceOp::kMax,
                                         "measuring the machine");
    }
  };
  const double compute = timer.fastest_seconds([&] { executable->run(); });
  // As many as take about as long.
  const double once = timer.fastest_seconds([&] { reduce(1); });
  const int times = static_cast<int>(std::clamp(compute / once, 1.0, 1000.0));
  const double communication = timer.fastest_seconds([&] { reduce(times); });
  const double together = timer.fastest_seconds([&] {
    ThreadGroup lane;
    lane.start("measuring communication", [&] { reduce(times); });
    executable->run();
    lane.join();
  });
  const double longer = together - std::max(compute, communication);
  return std::clamp(longer / std::min(compute, communication), 0.0, 1.0);
}

compiler::Link link_of(const comm::GroupSpeed& speed, int num_ranks) {
  const double received = 2.0 * (num_ranks - 1) / num_ranks;
  return {speed.bytes_per_second * received, speed.latency_seconds / 2};
}

}  // namespace tessera::session
