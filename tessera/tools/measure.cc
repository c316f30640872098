#include "tessera/tools/measure.h"

#include <algorithm>
#include <limits>
#include <thread>

namespace tessera::tools {
namespace {

constexpr int kRuns = 5;

// The fastest of some runs of a graph, on inputs that are zero.
double seconds_of(const ir::Graph& graph, int num_threads) {
  const auto context = cluster::single_context(num_threads);
  session::Session session(*context, {.fusions = compiler::Fusions::none()});
  const auto executable = session.compile_local(graph);
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run <= kRuns; ++run) {
    const int64_t begin = Clock::system().monotonic_ns();
    executable->run();
    // The first run touches the memory.
    if (run > 0) best = std::min(best, static_cast<double>(Clock::system().monotonic_ns() - begin) / 1e9);
  }
  return best;
}

double flops_per_second(DType dtype, int num_threads) {
  constexpr int64_t kSize = 1024;
  ir::Graph graph("product");
  const auto a = graph.add_input(ir::InputKind::kInput, "a", {dtype, {kSize, kSize}});
  const auto b = graph.add_input(ir::InputKind::kInput, "b", {dtype, {kSize, kSize}});
  graph.add_output("c", ops::matmul(a, b));
  return 2.0 * kSize * kSize * kSize / seconds_of(graph, num_threads);
}

double memory_bytes_per_second(int num_threads) {
  constexpr int64_t kSize = 1 << 25;  // beyond every cache
  ir::Graph graph("copy");
  const auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {kSize}});
  graph.add_output("y", ops::neg(x));
  return 2.0 * kSize * sizeof(float) / seconds_of(graph, num_threads);
}

double kernel_overhead_seconds(int num_threads) {
  constexpr int kSteps = 1000;
  ir::Graph graph("steps");
  auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {8}});
  for (int i = 0; i < kSteps; ++i) x = ops::neg(x);
  graph.add_output("y", x);
  return seconds_of(graph, num_threads) / kSteps;
}

// Between two ranks of this host: an all_reduce of two receives as many bytes as its buffer has, in two rounds.
compiler::Link link_within_host() {
  compiler::Link link;
  const auto result = cluster::run_threads(2, {.num_compute_threads = 1}, [&](cluster::Context& context) {
    const auto& speed = context.speed();
    if (context.rank() == 0) link = {speed.bytes_per_second, speed.latency_seconds / 2};
    return 0;
  });
  for (const auto& error : result.errors) {
    if (error) std::rethrow_exception(error);
  }
  return link;
}

}  // namespace

compiler::MachineProfile measure_machine(int num_threads) {
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const double memory = memory_bytes_per_second(num_threads);
  const double overhead = kernel_overhead_seconds(num_threads);
  return {.name = fmt::format("measured, ranks of {} thread{}", num_threads, num_threads == 1 ? "" : "s"),
          .flops_per_second = {{DType::kF32, flops_per_second(DType::kF32, num_threads)},
                               {DType::kBF16, flops_per_second(DType::kBF16, num_threads)}},
          .memory_bytes_per_second = memory,
          .kernel_overhead_seconds = overhead,
          .ranks_per_host = std::max(1, cores / num_threads),
          .intra_host = link_within_host(),
          // One host cannot tell: 10 Gbit/s.
          .inter_host = {1.25e9, 50e-6}};
}

}  // namespace tessera::tools
