// What running an operator costs beside its arithmetic, for benchmarks/run step_overhead: 1,000 matrix products of 4x4
// in a row, as a graph.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "benchmarks/device.h"
#include "benchmarks/protocol.h"
#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::benchmarks {
namespace {

constexpr int kOperators = 1000;
constexpr int kRepetitions = 20;

ir::Graph chain() {
  ir::Graph graph("chain");
  const Type type{DType::kF32, {4, 4}};
  const ir::Value weight = graph.add_input(ir::InputKind::kInput, "weight", type);
  ir::Value x = graph.add_input(ir::InputKind::kInput, "x", type);
  for (int i = 0; i < kOperators; ++i) x = ops::matmul(x, weight);
  graph.add_output("y", x);
  return graph;
}

int run(int argc, char** argv) {
  int threads = 2;
  int warmup_steps = 20;
  CLI::App app("The cost of an operator; see benchmarks/README.md");
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024));
  app.add_option("--warmup_steps", warmup_steps)->check(CLI::Range(0, 1000));
  std::string device;
  app.add_option("--device", device, "cpu, cuda:0, ...; dry: no device, kernels are compiled and nothing is computed");
  CLI11_PARSE(app, argc, argv);

  const auto context = cluster::single_context(threads);
  session::SessionOptions options{.num_threads = threads, .arena_capacity_bytes = int64_t{64} << 20};
  use_device(device, options);
  session::Session session(*context, options);
  const auto executable = session.compile_local(chain());
  Tensor weight = Tensor::zeros({DType::kF32, {4, 4}});
  Tensor x(DType::kF32, {4, 4});
  for (size_t i = 0; i < 16; ++i) x.values<float>()[i] = static_cast<float>(i);
  for (size_t i = 0; i < 4; ++i) weight.values<float>()[5 * i] = 1;
  const auto step = [&] {
    copy_elements(weight.view(), executable->input("weight"));
    copy_elements(x.view(), executable->input("x"));
    const int64_t begin = Clock::system().monotonic_ns();
    executable->run();
    const auto ns = static_cast<double>(Clock::system().monotonic_ns() - begin);
    if (device != "dry" && !bit_equal(Tensor::copy_of(executable->output("y")), x)) throw Error("wrong result");
    return ns / 1000 / kOperators;
  };
  for (int i = 0; i < warmup_steps; ++i) step();
  serve_rounds("us", fmt::format("{} threads", threads), [&] {
    double best = step();
    for (int i = 1; i < kRepetitions; ++i) best = std::min(best, step());
    return best;
  });
  return 0;
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::benchmarks::run); }
