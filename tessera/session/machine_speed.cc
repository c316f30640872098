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

double seconds_together(cluster::Context& context, FunctionRef<void()> run) {
  context.world().barrier("measuring the machine");
  const int64_t begin = context.clock().monotonic_ns();
  run();
  double seconds = std::max(static_cast<double>(context.clock().monotonic_ns() - begin) / 1e9, kLeastSeconds);
  context.world().all_reduce(&seconds, 1, DType::kF64, comm::ReduceOp::kMax, "measuring the machine");
  return seconds;
}

}  // namespace

double least_seconds(cluster::Context& context, FunctionRef<void()> run) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= kRuns; ++i) {
    const double seconds = seconds_together(context, run);
    // The first run touches the memory; of what takes long it is near enough.
    if (i > 0 || seconds > kTooLong) best = std::min(best, seconds);
    if (seconds > kTooLong) break;
  }
  return best;
}

double least_seconds(cluster::Context& context, const ir::Graph& graph) {
  Session session(context, {.fusions = compiler::Fusions::none()});
  const auto executable = session.compile_local(graph);
  return least_seconds(context, [&] { executable->run(); });
}

ir::Graph product_graph(DType dtype, int64_t size) {
  ir::Graph graph("product");
  const auto a = graph.add_input(ir::InputKind::kInput, "a", {dtype, {size, size}});
  const auto b = graph.add_input(ir::InputKind::kInput, "b", {dtype, {size, size}});
  graph.add_output("c", ops::matmul(a, b));
  return graph;
}

Measured measure_matmul(cluster::Context& context, DType dtype, int64_t size) {
  const auto n = static_cast<double>(size);
  return {2 * n * n * n, least_seconds(context, product_graph(dtype, size))};
}

Measured measure_memory(cluster::Context& context, int64_t bytes, int count) {
  // Two operands and a result.
  const Type type{DType::kF32, {bytes / 3 / static_cast<int64_t>(sizeof(float))}};
  const double seconds = chain_seconds(context, type, count, [](ir::Value x, ir::Value other) { return x + other; });
  return {static_cast<double>(bytes) * count, seconds * count};
}

double chain_seconds(cluster::Context& context, const Type& type, int count,
                     FunctionRef<ir::Value(ir::Value x, ir::Value other)> step) {
  ir::Graph graph("chain");
  const auto other = graph.add_input(ir::InputKind::kInput, "other", type);
  auto x = graph.add_input(ir::InputKind::kInput, "x", type);
  for (int i = 0; i < count; ++i) x = step(x, other);
  graph.add_output("y", x);
  return least_seconds(context, graph) / count;
}

double kernel_overhead_seconds(cluster::Context& context, int count) {
  return chain_seconds(context, {DType::kF32, {8}}, count, [](ir::Value x, ir::Value) { return ops::neg(x); });
}

compiler::Link link_of(const comm::GroupSpeed& speed, int num_ranks) {
  const double received = 2.0 * (num_ranks - 1) / num_ranks;
  return {speed.bytes_per_second * received, speed.latency_seconds / 2};
}

}  // namespace tessera::session
