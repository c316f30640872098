// From a network to one rank's schedule, for benchmarks/run compile: tracing, gradients, optimizer, plan, local graph,
// memory plan. Kernels are only named, not created.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>

#include "benchmarks/protocol.h"
#include "benchmarks/transformer.h"
#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::benchmarks {
namespace {

struct Options {
  std::string network = "resnet50";
  int data = 8;
  int model = 1;
  bool optimizer_shards = false;
};

// A cell and the inputs that it is traced with; batches of 32 for each part of the data.
struct Network {
  std::unique_ptr<nn::Cell> cell;
  std::vector<session::InputSpec> inputs;
};

Network make_network(const Options& options) {
  const int64_t batch = int64_t{32} * options.data;
  if (options.network == "resnet50") {
    return {nn::resnet50(1000), {{"x", {DType::kF32, {batch, 3, 224, 224}}}, {"label", {DType::kI32, {batch}}}}};
  }
  TransformerOptions transformer{.strategies = true, .data = options.data, .model = options.model};
  return {make_transformer(transformer),
          {{"x", {DType::kI32, {batch, transformer.num_tokens}}},
           {"label", {DType::kI32, {batch * transformer.num_tokens}}}}};
}

compiler::Compiled compile(const Options& options) {
  const auto network = make_network(options);
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
  const auto graph = session::trace_train_step(*network.cell, &loss, optimizer, network.inputs, {.training = true});

  const mesh::Mesh mesh({{"data", options.data}, {"model", options.model}});
  compiler::ShardingHints hints;
  compiler::CompileOptions compile_options;
  for (const auto& input : graph.inputs()) {
    if (input.kind == ir::InputKind::kInput) {
      hints[input.name] = {mesh, mesh::Sharding::replicated(graph.type(input.value).shape.ndim())};
      hints[input.name].sharding.dims[0] = {0};
    } else if (input.kind == ir::InputKind::kParameter && options.optimizer_shards) {
      compile_options.plan.optimizer_shards.insert(input.name);
    }
  }
  return compiler::compile(graph, mesh, hints, 0, ops::FakeKernelCatalogue(), compile_options);
}

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

int run(int argc, char** argv) {
  Options options;
  bool memory = false;
  CLI::App app("Compiling a train step; see benchmarks/README.md");
  app.add_option("--network", options.network)->check(CLI::IsMember({"resnet50", "transformer"}));
  app.add_option("--data", options.data)->check(CLI::Range(1, 1 << 20));
  app.add_option("--model", options.model)->check(CLI::Range(1, 1 << 20));
  app.add_flag("--optimizer_shards", options.optimizer_shards);
  app.add_flag("--memory", memory, "the peak of the process instead of the time");
  CLI11_PARSE(app, argc, argv);

  const auto first = compile(options);
  if (first.schedule.steps.empty()) throw Error("the schedule is empty");
  const auto planned = static_cast<double>(first.schedule.arena_bytes - first.schedule.persistent_bytes);
  const auto about = fmt::format("{} logical nodes, {} steps, planned memory {:.4f} of what is alive at the peak",
                                 first.logical.num_nodes(), first.schedule.steps.size(),
                                 planned / static_cast<double>(first.schedule.peak_bytes));
  serve_rounds(memory ? "MiB" : "s", about, [&] {
    const int64_t begin = Clock::system().monotonic_ns();
    const auto steps = compile(options).schedule.steps.size();
    if (steps != first.schedule.steps.size()) throw Error("two compilations differ");
    return memory ? peak_mib() : static_cast<double>(Clock::system().monotonic_ns() - begin) / 1e9;
  });
  return 0;
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::benchmarks::run); }
