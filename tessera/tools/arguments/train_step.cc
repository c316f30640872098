#include "tessera/tools/arguments/train_step.h"

#include <algorithm>

namespace tessera::tools {
namespace {

// "NAME=VALUE" at the first '='.
std::pair<std::string, std::string> parse_pair(const std::string& text, const char* option, const char* form) {
  const auto at = text.find('=');
  if (at == std::string::npos || at == 0) throw UsageError("--{} {}: must be {}", option, text, form);
  return {text.substr(0, at), text.substr(at + 1)};
}

ir::Graph parse_file(const std::string& path) {
  const std::string text = read_settings(FileSystem::local(), path, "graph");
  try {
    return ir::parse(text);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("{}: {}", path, error.what());
  }
}

ir::Graph read_graph(const StepOptions& options) {
  ir::Graph graph = parse_file(options.model);
  ops::verify_or_throw(graph);
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    ir::Node& node = graph.mutable_node(n);
    node.attributes = ops::complete_attributes(ops::OpRegistry::instance().get(node.op), node.attributes);
  }
  return graph;
}

std::vector<session::InputSpec> input_specs(const StepOptions& options) {
  const auto& model = nn::find_model(options.model);
  const int64_t rows =
      options.batch_size > 0 ? options.batch_size : model.samples_per_part * mesh_of(options).axis(0).size;
  std::vector<session::InputSpec> specs;
  for (const auto& input : model.batch_inputs(rows)) specs.push_back({input.name, input.type});
  specs.push_back({"label", model.batch_labels(rows)});
  return specs;
}

std::unique_ptr<nn::Cell> make_network(const StepOptions& options) {
  const auto& model = nn::find_model(options.model);
  return nn::make_model(model.name, options.num_classes != 0 ? options.num_classes : model.num_classes);
}

compiler::Precision precision_of(const StepOptions& options) { return {.compute = parse_dtype(options.precision)}; }

const nn::Settings kTraining{.training = true};
const nn::SoftmaxCrossEntropyWithLogitsOptions kLoss{.sparse = true, .reduction = "mean"};

void add_strategies(ir::Graph& graph, const std::vector<std::string>& strategies) {
  for (const auto& text : strategies) {
    const auto [where, strategy] = parse_pair(text, "strategy", "CELL:OPERATOR=STRATEGY, as up:matmul=((4,1),(1,1))");
    const auto colon = where.rfind(':');
    const auto source = colon == std::string::npos ? "" : where.substr(0, colon);
    const auto op = colon == std::string::npos ? where : where.substr(colon + 1);
    int found = 0;
    for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
      ir::Node& node = graph.mutable_node(n);
      if (node.op != op || node.source != source || node.forward != ir::kNone) continue;
      node.strategy = from_user([&] { return mesh::parse_strategy(strategy); });
      node.grid = {};
      ++found;
    }
    if (found == 0) throw UsageError("--strategy {}: the graph has no {} of cell \"{}\"", text, op, source);
  }
}

}  // namespace

bool is_file(const StepOptions& options) {
  FileSystem& files = FileSystem::local();
  if (files.exists(options.model) && !files.is_directory(options.model)) return true;
  const bool is_model =
      std::ranges::any_of(nn::models(), [&](const auto& model) { return model.name == options.model; });
  if (is_model) return false;
  const auto text = fmt::format("\"{}\" is neither a file nor a built-in network; of these there are: {}",
                                options.model, model_names());
  // A word is a network that is not known, a path is a file that is not there.
  if (options.model.find_first_of("/.") != std::string::npos) throw IoError(text);
  throw UsageError(text);
}

std::string model_names() {
  std::string names;
  for (const auto& model : nn::models()) names += (names.empty() ? "" : ", ") + model.name;
  return names;
}

ir::Graph forward_graph(const StepOptions& options) {
  if (is_file(options)) {
    throw UsageError(
        "a file holds a logical graph: there is no stage \"forward\" before it; ask for backward, logical, plan, local "
        "or schedule");
  }
  const auto network = make_network(options);
  const auto inputs = input_specs(options);
  return session::trace_forward(*network, std::span(inputs).first(inputs.size() - 1), kTraining, precision_of(options));
}

ir::Graph backward_graph(const StepOptions& options) {
  ir::Graph graph;
  std::vector<std::string> parameters;
  if (is_file(options)) {
    graph = read_graph(options);
    for (const auto& input : graph.inputs()) {
      if (input.kind == ir::InputKind::kParameter) parameters.push_back(input.name);
    }
  } else {
    const auto network = make_network(options);
    nn::SoftmaxCrossEntropyWithLogits loss(kLoss);
    graph = session::trace_loss(*network, loss, input_specs(options), kTraining, std::nullopt, precision_of(options));
    for (const nn::Parameter* parameter : network->trainable_parameters()) {
      if (graph.find_input(parameter->full_name()) != nullptr) parameters.push_back(parameter->full_name());
    }
  }
  const ir::Output* loss = graph.find_output("loss");
  if (loss == nullptr) throw InvalidArgument("graph {} has no result \"loss\" to differentiate", graph.name());
  std::vector<ir::Value> values;
  for (const auto& name : parameters) values.push_back(graph.value(graph.find_input(name)->value));
  const auto gradients = compiler::gradients(graph.value(loss->value), values);
  for (size_t i = 0; i < parameters.size(); ++i) graph.add_output("d" + parameters[i], gradients[i]);
  return graph;
}

ir::Graph step_graph(const StepOptions& options) {
  ir::Graph graph;
  if (is_file(options)) {
    graph = read_graph(options);
  } else {
    const auto network = make_network(options);
    nn::SoftmaxCrossEntropyWithLogits loss(kLoss);
    const auto optimizer = nn::find_model(options.model).make_optimizer();
    graph = session::trace_train_step(*network, &loss, *optimizer, input_specs(options), kTraining,
                                      {.precision = precision_of(options)});
  }
  add_strategies(graph, options.strategies);
  return graph;
}

compiler::StepGraphs step_graphs(const StepOptions& options, int micro_batches) {
  if (is_file(options)) {
    throw UsageError(
        "a file holds the graph of a whole batch, which cannot be cut into micro-batches: --stages goes with a "
        "built-in "
        "network");
  }
  const auto network = make_network(options);
  nn::SoftmaxCrossEntropyWithLogits loss(kLoss);
  const auto optimizer = nn::find_model(options.model).make_optimizer();
  auto inputs = input_specs(options);
  for (auto& input : inputs) input.type.shape[0] /= micro_batches;
  compiler::StepGraphs graphs;
  graphs.micro = session::trace_train_step(
      *network, &loss, *optimizer, inputs, kTraining,
      {.sens = 1.0 / micro_batches, .part = session::StepPart::kAccumulate, .precision = precision_of(options)});
  add_strategies(graphs.micro, options.strategies);
  graphs.update = session::trace_update(*network, &loss, *optimizer, kTraining);
  graphs.stages.common_states = {nn::kRandomStep};
  const auto trainable = network->trainable_parameters();
  const auto accumulators = nn::gradient_accumulators(trainable);
  for (size_t i = 0; i < trainable.size(); ++i) {
    graphs.stages.accumulators[accumulators[i].full_name()] = trainable[i]->full_name();
  }
  return graphs;
}

bool has_any_strategy(const StepOptions& options) {
  if (!options.strategies.empty()) return true;
  if (!is_file(options)) return false;
  const ir::Graph graph = parse_file(options.model);
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (!graph.node(n).strategy.empty()) return true;
  }
  return false;
}

mesh::Mesh mesh_of(const StepOptions& options) {
  std::vector<mesh::Axis> axes;
  for (const auto text : split(options.mesh, ',')) {
    if (trim(text).empty()) continue;
    const auto [name, size] = parse_pair(std::string(trim(text)), "mesh", "AXIS=SIZE,..., as data=4,model=2");
    const int64_t parts = from_user([&] { return parse_int(size, "--mesh"); });
    if (parts < 1 || parts > mesh::kMaxRanks) {
      throw UsageError("--mesh {}: axis {} must have from 1 to {} ranks, got {}", options.mesh, name, mesh::kMaxRanks,
                       parts);
    }
    axes.push_back({name, static_cast<int>(parts)});
  }
  if (axes.empty()) axes.push_back({"data", std::max(options.ranks, 1)});
  const mesh::Mesh mesh = from_user([&] { return mesh::Mesh(axes); });
  if (options.ranks > 0 && mesh.size() != options.ranks) {
    throw UsageError("mesh {} has {}, --ranks says {}", mesh.to_string(), plural(mesh.size(), "rank"), options.ranks);
  }
  return mesh;
}

compiler::ShardingHints given_layouts(const StepOptions& options, const ir::Graph& step, const mesh::Mesh& mesh) {
  compiler::ShardingHints layouts;
  for (const auto& text : options.inputs) {
    const auto [name, sharding] = parse_pair(text, "input", "NAME=SHARDING, as x=[data,_]");
    if (step.find_input(name) == nullptr) throw UsageError("--input {}: the graph has no such input", text);
    layouts[name] = {mesh, from_user([&] { return mesh::parse_sharding(sharding, mesh); })};
  }
  return layouts;
}

Spread spread_of(const StepOptions& options, const ir::Graph& step) {
  Spread spread{.mesh = mesh_of(options)};
  auto& plan = spread.compile.plan;
  plan.batch_by_default = options.semi_auto;
  plan.propagate_strategies = options.propagate;
  plan.optimizer_shard_size = options.optimizer_shard_size;
  for (const auto& input : step.inputs()) {
    const int ndim = step.type(input.value).shape.ndim();
    if (input.kind == ir::InputKind::kInput) {
      auto sharding = mesh::Sharding::replicated(ndim);
      if (ndim > 0 && spread.mesh.axis(0).size > 1) sharding.dims[0] = {0};
      spread.hints[input.name] = {spread.mesh, sharding};
    } else if (input.kind == ir::InputKind::kParameter && options.optimizer_shards) {
      plan.optimizer_shards.insert(input.name);
    }
  }
  for (auto& [name, layout] : given_layouts(options, step, spread.mesh)) spread.hints[name] = layout;
  if ((options.recompute == "auto") == options.memory_limit.empty()) {
    throw UsageError("--recompute auto and --memory_limit belong together: one says how, the other how far");
  }
  if (!options.memory_limit.empty()) {
    spread.compile.memory_limit_bytes = memory_limit_of(options);
  }
  return spread;
}

int64_t memory_limit_of(const StepOptions& options) {
  return from_user([&] { return parse_bytes(options.memory_limit, "--memory_limit"); });
}

void require_rank(const mesh::Mesh& mesh, int rank) {
  if (rank >= 0 && rank < mesh.size()) return;
  throw UsageError("--rank {} must be one of the {} ranks of mesh {}", rank, mesh.size(), mesh.to_string());
}

compiler::Compiled plan_ranks(const StepOptions& options, const ir::Graph& step, const Spread& spread) {
  try {
    return compiler::plan_ranks(step, spread.mesh, spread.hints, spread.compile);
  } catch (const mesh::StrategyError& error) {
    if (options.strategies.empty()) throw;
    throw UsageError(error.what());
  }
}

const ops::KernelCatalogue& catalogue_of(const StepOptions& options) {
  static const ops::FakeKernelCatalogue fake;
  static const executor::KernelSelection live({&kernels::cpu_kernels(), &kernels::reference_kernels()}, 1);
  return options.fake_kernels ? static_cast<const ops::KernelCatalogue&>(fake) : live;
}

compiler::MachineProfile read_profile(const MachineOptions& options) {
  auto profile = options.machine.empty() ? compiler::example_profile()
                                         : compiler::read_machine(FileSystem::local(), options.machine);
  if (options.tf32) profile = profile.with_tf32();
  if (options.devices_per_host > 0) profile.ranks_per_host = options.devices_per_host;
  return profile;
}

bool is_of_busy_machine(const compiler::MachineProfile& profile) {
  // On a quiet machine with two cores one of some 370 measurements is disturbed, beside one busy loop one in 50.
  constexpr double kBusyShare = 0.01;
  return profile.disturbed_share >= kBusyShare;
}

std::string machines_text(const compiler::MachineProfile& profile) {
  const auto name = fmt::format("\"{}\"", profile.name);
  if (!is_of_busy_machine(profile)) return name;
  return fmt::format("{} (measured while others took the cores, in {:.0f} % of the measurements: calibrate again)",
                     name, 100 * profile.disturbed_share);
}

}  // namespace tessera::tools
