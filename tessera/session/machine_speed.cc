#include "tessera/session/machine_speed.h"

#include <algorithm>
#include <limits>

#include "tessera/ops/functions.h"
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

}  // namespace

double fastest_run_seconds(cluster::Context& context, const ir::Graph& graph) {
  Session session(context, {.fusions = compiler::Fusions::none()});
  const auto executable = session.compile_local(graph);
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run <= kRuns; ++run) {
    const int64_t begin = context.clock().monotonic_ns();
    executable->run();
    const double seconds = std::max(static_cast<double>(context.clock().monotonic_ns() - begin) / 1e9, kLeastSeconds);
    // The first run touches the memory; of what takes long it is near enough.
    if (run > 0 || seconds > kTooLong) best = std::min(best, seconds);
    if (seconds > kTooLong) break;
  }
  return best;
}

Measured measure_matmul(cluster::Context& context, DType dtype, int64_t size) {
  ir::Graph graph("product");
  const auto a = input(graph, "a", {dtype, {size, size}});
  const auto b = input(graph, "b", {dtype, {size, size}});
  graph.add_output("c", ops::matmul(a, b));
  const auto n = static_cast<double>(size);
  return {2 * n * n * n, fastest_run_seconds(context, graph)};
}

Measured measure_convolution(cluster::Context& context, DType dtype, int64_t num_images) {
  constexpr int64_t kChannels = 128;
  constexpr int64_t kSize = 28;
  constexpr int64_t kPerImage = 2 * kSize * kSize * kChannels * kChannels * 9;
  ir::Graph graph("convolution");
  const auto x = input(graph, "x", {dtype, {num_images, kChannels, kSize, kSize}});
  const auto weight = input(graph, "weight", {dtype, {kChannels, kChannels, 3, 3}});
  graph.add_output("y", ops::conv2d(x, weight, {.pad_mode = ops::PadMode::kSame}));
  return {static_cast<double>(num_images * kPerImage), fastest_run_seconds(context, graph)};
}

Measured measure_memory(cluster::Context& context, int64_t count) {
  ir::Graph graph("copy");
  graph.add_output("y", ops::neg(input(graph, "x", {DType::kF32, {count}})));
  return {2.0 * static_cast<double>(count) * sizeof(float), fastest_run_seconds(context, graph)};
}

Measured measure_kernels(cluster::Context& context, int num_kernels) {
  ir::Graph graph("kernels");
  auto x = input(graph, "x", {DType::kF32, {8}});
  for (int i = 0; i < num_kernels; ++i) x = ops::neg(x);
  graph.add_output("y", x);
  return {static_cast<double>(num_kernels), fastest_run_seconds(context, graph)};
}

compiler::Link link_of(const comm::GroupSpeed& speed, int num_ranks) {
  const double received = 2.0 * (num_ranks - 1) / num_ranks;
  return {speed.bytes_per_second * received, speed.latency_seconds / 2};
}

}  // namespace tessera::session
