// From a network to one rank's schedule, or its program of a pipeline, for benchmarks/run compile: tracing, gradients,
// optimizer, plan, local graph, memory plan; of a pipeline also the order of its phases. Kernels are only named, not
// created.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>

#include "benchmarks/protocol.h"
#include "benchmarks/transformer.h"
#include "tessera/compiler/stages/choose_schedule.h"
#include "tessera/compiler/stages/cut_staged_plan.h"
#include "tessera/compiler/stages/make_programs.h"
#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::benchmarks {
namespace {

struct Options {
  std::string network = "resnet50";
  int data = 8;
  int model = 1;
  bool optimizer_shards = false;
  int stages = 1;
  int micro_batches = 1;
  std::string schedule = "auto";
};

// A cell and the inputs that it is traced with; batches of 32 for each part of the data, of a pipeline micro-batches of
// one row.
struct Network {
  std::unique_ptr<nn::Cell> cell;
  std::vector<session::InputSpec> inputs;
};

Network make_network(const Options& options) {
  const int64_t batch = int64_t{options.stages > 1 ? 1 : 32} * options.data;
  if (options.network == "resnet50") {
    return {nn::resnet50(1000), {{"x", {DType::kF32, {batch, 3, 224, 224}}}, {"label", {DType::kI32, {batch}}}}};
  }
  TransformerOptions transformer{
      .strategies = true, .data = options.data, .model = options.model, .stages = options.stages};
  if (options.network == "gpt3") {
    transformer.num_layers = 96;
    transformer.width = 12288;
    transformer.num_heads = 96;
    transformer.num_tokens = 2048;
    transformer.vocab_size = 50264;  // a multiple of eight
  }
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

// What was compiled, in numbers.
struct Size {
  int nodes = 0;
  size_t steps = 0;
  double over_live = 0;  // planned memory over what is alive at the peak; 0: not looked at
};

Size compile_one_stage(const Options& options) {
  const auto compiled = compile(options);
  const auto& schedule = compiled.schedule;
  return {
      compiled.logical.num_nodes(), schedule.steps.size(),
      static_cast<double>(schedule.arena_bytes - schedule.persistent_bytes) / static_cast<double>(schedule.peak_bytes)};
}

// The plan of all stages, the programs of all of them, and the phases of one rank in the middle, down to bytes.
Size compile_stages(const Options& options) {
  const auto network = make_network(options);
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
  const auto micro =
      session::trace_train_step(*network.cell, &loss, optimizer, network.inputs, {.training = true},
                                {.sens = 1.0 / options.micro_batches, .part = session::StepPart::kAccumulate});
  const auto update = session::trace_update(*network.cell, &loss, optimizer, {.training = true});
  compiler::StageOptions stages{.num_stages = options.stages};
  compiler::CompileOptions compile_options;
  compile_options.plan.batch_by_default = true;
  const auto trainable = network.cell->trainable_parameters();
  const auto accumulators = nn::gradient_accumulators(trainable);
  for (size_t i = 0; i < trainable.size(); ++i) {
    stages.accumulators[accumulators[i].full_name()] = trainable[i]->full_name();
    compile_options.plan.partial_states.insert(accumulators[i].full_name());
  }
  const mesh::Mesh mesh({{"data", options.data * options.model}});
  auto plan = compiler::plan_stages(micro, &update, mesh, {}, stages, compile_options);
  const auto chosen =
      compiler::choose_schedule(plan, options.micro_batches, options.schedule, compiler::example_profile());
  const auto messages = chunk_messages(plan.micro, plan.placement);
  const auto programs = make_programs(chosen.found.schedule, plan.placement, messages,
                                      {.micro_batches = options.micro_batches, .receive_ahead = 1});
  const int stage = options.stages / 2;
  const auto ranks = plan.ranks_of(stage);
  Size size{.nodes = micro.num_nodes() + update.num_nodes()};
  size.steps = programs[static_cast<size_t>(stage)].items.size();
  const auto add = [&](const compiler::PlannedPart& part) {
    if (part.graph.num_nodes() == 0) return;
    compiler::Compiled compiled;
    compiled.logical = part.graph;
    compiled.plan = part.plan;
    compile_rank(compiled, ranks[0], layout_of(compiled, ranks[0]), ops::FakeKernelCatalogue(), compile_options);
    size.steps += compiled.schedule.steps.size();
  };
  for (const int chunk : plan.placement.chunks_of(stage)) {
    for (const auto& phase : cut_chunk(plan, chunk).phases) add(phase.part);
  }
  for (const auto& round : cut_update(plan, stage)) add(round);
  return size;
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
  app.add_option("--network", options.network)->check(CLI::IsMember({"resnet50", "transformer", "gpt3"}));
  app.add_option("--data", options.data)->check(CLI::Range(1, 1 << 20));
  app.add_option("--model", options.model)->check(CLI::Range(1, 1 << 20));
  app.add_flag("--optimizer_shards", options.optimizer_shards);
  app.add_option("--stages", options.stages, "of a pipeline; --data and --model are those of a stage")
      ->check(CLI::Range(1, 1024));
  app.add_option("--micro_batches", options.micro_batches)->check(CLI::Range(1, 1 << 16));
  app.add_option("--schedule", options.schedule, "of a pipeline");
  app.add_flag("--memory", memory, "the peak of the process instead of the time");
  CLI11_PARSE(app, argc, argv);

  const auto compile_all = [&] { return options.stages > 1 ? compile_stages(options) : compile_one_stage(options); };
  const auto first = compile_all();
  if (first.steps == 0) throw Error("the schedule is empty");
  auto about = fmt::format("{} logical nodes, {} steps", first.nodes, first.steps);
  if (first.over_live > 0)
    about += fmt::format(", planned memory {:.4f} of what is alive at the peak", first.over_live);
  serve_rounds(memory ? "MiB" : "s", about, [&] {
    const int64_t begin = Clock::system().monotonic_ns();
    if (compile_all().steps != first.steps) throw Error("two compilations differ");
    return memory ? peak_mib() : static_cast<double>(Clock::system().monotonic_ns() - begin) / 1e9;
  });
  return 0;
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::benchmarks::run); }
