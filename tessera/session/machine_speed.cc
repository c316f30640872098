#include "tessera/session/machine_speed.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "tessera/base/function_ref.h"
#include "tessera/base/thread.h"
#include "tessera/compiler/autodiff.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/session/session.h"

namespace tessera::session {
namespace {

constexpr int kRuns = 5;
constexpr double kTooLong = 0.5;
// What the clock cannot see still takes time.
constexpr double kLeastSeconds = 1e-9;

ir::Value input(ir::Graph& graph, const char* name, const Type& type) {
  return graph.add_input(ir::InputKind::kInput, name, type);
}

// From when all ranks have come until the last is done, at best.
double fastest_seconds(cluster::Context& context, FunctionRef<void()> run) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= kRuns; ++i) {
    context.world().barrier("measuring the machine");
    const int64_t begin = context.clock().monotonic_ns();
    run();
    double seconds = std::max(static_cast<double>(context.clock().monotonic_ns() - begin) / 1e9, kLeastSeconds);
    context.world().all_reduce(&seconds, 1, DType::kF64, comm::ReduceOp::kMax, "measuring the machine");
    // The first run touches the memory; of what takes long it is near enough.
    if (i > 0 || seconds > kTooLong) best = std::min(best, seconds);
    if (seconds > kTooLong) break;
  }
  return best;
}

// Of `count` steps, one after the other, each on the result of the one before.
double chain_seconds(cluster::Context& context, const Type& type, int64_t count,
                     FunctionRef<ir::Value(ir::Value, ir::Value)> step) {
  ir::Graph graph("chain");
  const auto other = input(graph, "other", type);
  auto x = input(graph, "x", type);
  for (int64_t i = 0; i < count; ++i) x = step(x, other);
  graph.add_output("y", x);
  return fastest_run_seconds(context, graph);
}

ir::Graph product_of(DType dtype, int64_t size) {
  ir::Graph graph("product");
  const auto a = input(graph, "a", {dtype, {size, size}});
  const auto b = input(graph, "b", {dtype, {size, size}});
  graph.add_output("c", ops::matmul(a, b));
  return graph;
}

// Operations of a 3x3 convolution of images x as wide as its results, and of its two gradients.
Measured measure_convolution_of(cluster::Context& context, DType dtype, const Shape& images) {
  const int64_t channels = images[1];
  ir::Graph graph("convolution");
  const auto x = input(graph, "x", {dtype, images});
  const auto weight = input(graph, "weight", {dtype, {channels, channels, 3, 3}});
  const auto y = ops::conv2d(x, weight, {.pad_mode = ops::PadMode::kSame});
  graph.add_output("y", y);
  const auto gradients = compiler::gradients(y, std::vector<ir::Value>{x, weight}, y);
  graph.add_output("dx", gradients[0]);
  graph.add_output("dweight", gradients[1]);
  return {3.0 * 2 * 9 * static_cast<double>(images.num_elements() * channels), fastest_run_seconds(context, graph)};
}

}  // namespace

double fastest_run_seconds(cluster::Context& context, const ir::Graph& graph) {
  Session session(context, {.fusions = compiler::Fusions::none()});
  const auto executable = session.compile_local(graph);
  return fastest_seconds(context, [&] { executable->run(); });
}

Measured measure_matmul(cluster::Context& context, DType dtype, int64_t size) {
  const auto n = static_cast<double>(size);
  return {2 * n * n * n, fastest_run_seconds(context, product_of(dtype, size))};
}

Measured measure_convolution(cluster::Context& context, DType dtype, int64_t num_images) {
  constexpr int64_t kChannels = 128;
  constexpr int64_t kSize = 14;
  return measure_convolution_of(context, dtype, {num_images, kChannels, kSize, kSize});
}

std::map<int64_t, std::map<int64_t, double>> measure_convolution_shares(cluster::Context& context,
                                                                        double flops_per_second,
                                                                        double overhead_seconds,
                                                                        std::span<const int64_t> channels,
                                                                        std::span<const int64_t> pixels) {
  constexpr int64_t kSize = 8;
  constexpr double kNumKernels = 3;
  constexpr double kLeastShare = 1e-3;
  std::map<int64_t, std::map<int64_t, double>> shares;
  for (const int64_t c : channels) {
    for (const int64_t p : pixels) {
      const auto measured = measure_convolution_of(context, DType::kF32, {p / (kSize * kSize), c, kSize, kSize});
      // Most of a very small one is its overhead, which is not known so well that it could be taken off whole.
      const double seconds = std::max(measured.seconds - kNumKernels * overhead_seconds, measured.seconds / 2);
      shares[c][p] = std::clamp(measured.amount / seconds / flops_per_second, kLeastShare, 1.0);
    }
  }
  // More channels or pixels are not slower, but by noise.
  const std::map<int64_t, double>* fewer = nullptr;
  for (auto& [c, row] : shares) {
    double least = 0;
    for (auto& [p, share] : row) {
      least = std::max({least, share, fewer != nullptr ? fewer->at(p) : 0.0});
      share = least;
    }
    fewer = &row;
  }
  return shares;
}

Measured measure_functions(cluster::Context& context, DType dtype) {
  constexpr int kSteps = 100;
  const std::vector<Type> type = {{dtype, {1 << 15}}};
  const double flops = ops::cost_of(ops::OpRegistry::instance().get("tanh"), {}, type, type).flops;
  return {kSteps * flops, chain_seconds(context, type[0], kSteps, [](ir::Value x, ir::Value) { return ops::tanh(x); })};
}

Measured measure_memory(cluster::Context& context, int64_t bytes) {
  constexpr int64_t kBytesOfAll = int64_t{64} << 20;
  constexpr int64_t kOperands = 3;  // and results
  const int64_t steps = std::clamp<int64_t>(kBytesOfAll / bytes, 2, 1000);
  const Type type{DType::kF32, {bytes / kOperands / static_cast<int64_t>(sizeof(float))}};
  return {static_cast<double>(steps * bytes),
          chain_seconds(context, type, steps, [](ir::Value x, ir::Value other) { return x + other; })};
}

std::map<int64_t, double> measure_caches(cluster::Context& context, double memory, std::span<const int64_t> sizes) {
  std::map<int64_t, double> speeds;
  double least = memory;
  for (const int64_t bytes : sizes) {
    // What is larger is not faster, but by noise.
    least = std::max(least, measure_memory(context, bytes).per_second());
    speeds[bytes] = least;
  }
  return speeds;
}

Measured measure_kernels(cluster::Context& context, int num_kernels) {
  return {static_cast<double>(num_kernels),
          chain_seconds(context, {DType::kF32, {8}}, num_kernels, [](ir::Value x, ir::Value) { return ops::neg(x); })};
}

double measure_communication_load(cluster::Context& context) {
  constexpr int64_t kCount = 1 << 20;
  Session session(context, {.fusions = compiler::Fusions::none()});
  const auto executable = session.compile_local(product_of(DType::kF32, 768));
  std::vector<float> data(kCount);
  const auto reduce = [&](int times) {
    for (int i = 0; i < times; ++i) {
      context.world().all_reduce(data.data(), kCount, DType::kF32, comm::ReduceOp::kMax, "measuring the machine");
    }
  };
  const double compute = fastest_seconds(context, [&] { executable->run(); });
  // As many as take about as long.
  const double once = fastest_seconds(context, [&] { reduce(1); });
  const int times = static_cast<int>(std::clamp(compute / once, 1.0, 1000.0));
  const double communication = fastest_seconds(context, [&] { reduce(times); });
  const double together = fastest_seconds(context, [&] {
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
