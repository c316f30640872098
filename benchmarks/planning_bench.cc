// From a network to the plan of its training step, for benchmarks/run planning: tracing with gradients and optimizer,
// simplifying, making the search's problems and solving them. Nothing is computed and no device takes part.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <numeric>

#include "benchmarks/protocol.h"
#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::benchmarks {
namespace {

struct Options {
  std::string model = "llama_8b";
  int devices = 64;
  std::string memory_limit;
  bool choose = false;  // what tessera plan does: plans are simulated and searched for again, too
};

struct Planned {
  double trace_seconds = 0;
  double simplify_seconds = 0;
  ir::Graph graph;
  double plan_seconds = 0;
  compiler::SearchResult search;

  double seconds() const { return trace_seconds + simplify_seconds + plan_seconds; }
};

double now() { return static_cast<double>(Clock::system().monotonic_ns()) / 1e9; }

ir::Graph trace(const Options& options) {
  const auto& model = nn::find_model(options.model);
  const int64_t rows = model.samples_per_part * options.devices;
  std::vector<session::InputSpec> inputs;
  for (const auto& input : model.batch_inputs(rows)) inputs.push_back({input.name, input.type});
  inputs.push_back({"label", model.batch_labels(rows)});
  const auto network = nn::make_model(model.name, model.num_classes);
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  return session::trace_train_step(*network, &loss, *model.make_optimizer(), inputs, {.training = true});
}

compiler::SearchResult search(const ir::Graph& graph, const Options& options, compiler::SearchOptions searching) {
  std::vector<int> ranks(static_cast<size_t>(options.devices));
  std::iota(ranks.begin(), ranks.end(), 0);
  if (!options.memory_limit.empty()) searching.memory_limit_bytes = parse_bytes(options.memory_limit, "--memory_limit");
  if (options.choose) return compiler::choose_plan(graph, ranks, compiler::example_profile(), searching).search;
  return compiler::search(graph, ranks, compiler::example_profile(), searching);
}

Planned plan(const Options& options) {
  Planned planned;
  double begin = now();
  const auto traced = trace(options);
  planned.trace_seconds = now() - begin;
  begin = now();
  planned.graph = compiler::simplify(traced);
  planned.simplify_seconds = now() - begin;
  begin = now();
  planned.search = search(planned.graph, options, {});
  planned.plan_seconds = now() - begin;
  return planned;
}

// Once more on the grid that was chosen, with the first product as it is in data parallel training.
double replan_seconds(const Planned& planned, Options options) {
  options.choose = false;
  const auto& choices = planned.search.choices;
  for (ir::NodeId n = 0; n < planned.graph.num_nodes(); ++n) {
    const auto& op = planned.graph.node(n).op;
    if (op != "matmul" && op != "conv2d") continue;
    const double begin = now();
    search(planned.graph, options, {.meshes = {choices.mesh}, .fixed = {{n, compiler::NodeChoice{}}}});
    return now() - begin;
  }
  throw Error("the network has no product");
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Planning a train step; see benchmarks/README.md");
  app.add_option("--model", options.model);
  app.add_option("--devices", options.devices)->check(CLI::Range(2, 1 << 20));
  app.add_option("--memory_limit", options.memory_limit, "of a device, as 80GiB");
  app.add_flag("--choose", options.choose, "also simulate plans and search again, as tessera plan does");
  CLI11_PARSE(app, argc, argv);

  const auto first = plan(options);
  const auto& found = first.search;
  double problem_seconds = 0;
  double solve_seconds = 0;
  for (const auto& mesh : found.meshes) {
    problem_seconds += mesh.problem_seconds;
    solve_seconds += mesh.solve_seconds;
  }
  const auto about = fmt::format(
      "{} operators on {} of {} grids; trace {:.3f}, simplify {:.3f}, problems {:.3f}, solve {:.3f} s; cost {:.6g} s, "
      "bound {:.6g}, gap {:.2f} %; one operator fixed: {:.3f} s",
      first.graph.num_nodes(), found.choices.mesh.to_string(), found.meshes.size(), first.trace_seconds,
      first.simplify_seconds, problem_seconds, solve_seconds, found.cost, found.bound, 100 * found.gap(),
      replan_seconds(first, options));
  serve_rounds("s", about, [&] {
    const auto planned = plan(options);
    if (planned.search.cost != found.cost) throw Error("two searches differ");
    return planned.seconds();
  });
  return 0;
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::benchmarks::run); }
