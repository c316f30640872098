#include "tessera/train/modes/semi_automatic.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/checkpoint/lock/find_writer.h"
#include "tessera/checkpoint/lock/share_outcome.h"
#include "tessera/checkpoint/strategy/group_file.h"
#include "tessera/mesh/batch_layout.h"
#include "tessera/train/modes/strategy_record.h"

namespace tessera::train {
namespace {

bool has_strategies(const ir::Graph& graph) {
  for (ir::NodeId node = 0; node < graph.num_nodes(); ++node) {
    if (!graph.node(node).strategy.empty()) return true;
  }
  return false;
}

}  // namespace

SemiAutomatic::SemiAutomatic(const ModeParts& parts) : OneGraph(parts) {
  if (options_.strategy_ckpt_load_file.empty()) return;
  strategies_ = checkpoint::read_strategy_file(context_.file_system(), options_.strategy_ckpt_load_file);
}

bool SemiAutomatic::gives_own_rows(const data::Dataset& dataset) const {
  if (dataset.num_shards() == 1) return false;
  if (options_.full_batch || !options_.dataset_strategy.empty()) {
    throw InvalidArgument(
        "{}: every rank must read the whole batch, but the data set is one rank's part of {} (num_shards)",
        options_.full_batch ? "full_batch" : "dataset_strategy", dataset.num_shards());
  }
  return true;
}

bool SemiAutomatic::predicts_one_batch(bool values_are_placed) const {
  const bool splits_columns = !options_.full_batch && !options_.dataset_strategy.empty();
  return splits_columns || (values_are_placed && has_strategies_);
}

std::optional<compiler::Compiled> SemiAutomatic::plan_training(session::Session& session, const ir::Graph& graph,
                                                               const InputSpecs& inputs) {
  has_strategies_ = has_strategies_ || has_strategies(graph);
  return OneGraph::plan_training(session, graph, inputs);
}

compiler::ShardingHints SemiAutomatic::input_hints(const InputSpecs& inputs) const {
  if (options_.full_batch) return {};
  const auto& strategy = options_.dataset_strategy;
  return strategy.empty() ? OneGraph::input_hints(inputs) : hints_of(strategy, inputs);
}

// Of the batch's first columns, which a network predicts from: the label comes behind them.
compiler::ShardingHints SemiAutomatic::prediction_hints(const ir::Graph& graph) const {
  if (options_.full_batch || options_.dataset_strategy.empty()) return {};
  InputSpecs inputs;
  for (const auto& input : graph.inputs()) {
    if (input.kind == ir::InputKind::kInput) inputs.push_back({input.name, graph.type(input.value)});
  }
  auto strategy = options_.dataset_strategy;
  strategy.resize(std::min(strategy.size(), inputs.size()));
  return hints_of(strategy, inputs);
}

compiler::ShardingHints SemiAutomatic::hints_of(const mesh::Strategy& strategy, const InputSpecs& inputs) const {
  std::vector<mesh::BatchColumn> columns;
  for (const auto& input : inputs) columns.push_back({input.name, input.type});
  const auto layouts = mesh::layouts_of_batch(strategy, columns, context_.size());
  compiler::ShardingHints hints;
  for (size_t i = 0; i < inputs.size(); ++i) hints[inputs[i].name] = layouts[i];
  return hints;
}

void SemiAutomatic::apply_strategies(ir::Graph& graph, bool is_training) const {
  if (!strategies_) return;
  if (is_training) {
    train::apply_strategies(graph, *strategies_, options_.strategy_ckpt_load_file);
  } else {
    apply_known_strategies(graph, *strategies_);
  }
}

std::set<std::string> SemiAutomatic::optimizer_shards() const {
  if (!strategies_) return OneGraph::optimizer_shards();
  const auto recorded = optimizer_shards_of(*strategies_);
  std::set<std::string> names;
  for (const nn::Parameter* parameter : cells_.trainable_parameters()) {
    if (recorded.contains(parameter->full_name())) names.insert(parameter->full_name());
  }
  return names;
}

compiler::PlanOptions SemiAutomatic::plan_options(const session::Session& session) const {
  auto options = OneGraph::plan_options(session);
  options.strategies = true;
  options.batch_by_default = true;
  options.propagate_strategies = options_.sharding_propagation;
  options.whole_results = true;
  return options;
}

std::optional<compiler::Compiled> SemiAutomatic::plan_prediction(session::Session& session,
                                                                 const ir::Graph& graph) const {
  has_strategies_ = has_strategies_ || has_strategies(graph);
  auto options = prediction_options(session, /*values_are_placed=*/true);
  options.optimizer_shards.clear();  // what predicts has no optimizer
  return session.plan(graph, mesh(), prediction_hints(graph), options);
}

void SemiAutomatic::record(const session::Executable& executable, bool is_training, checkpoint::Barrier& ranks) {
  OneGraph::record(executable, is_training, ranks);
  if (writes_done_ == Writes::kOfTraining || (writes_done_ == Writes::kOfPrediction && !is_training)) return;
  const auto& logical = executable.compiled().logical;
  const auto& plan = executable.compiled().plan;
  const auto& groups = executable.compiled().groups;
  if (strategies_ && is_training) require_recorded(*strategies_, logical, plan, options_.strategy_ckpt_load_file);
  FileSystem& files = context_.file_system();
  const bool writes_strategies = is_writer(options_.strategy_ckpt_save_file, ranks);
  const bool writes_groups = is_writer(options_.group_ckpt_save_file, ranks);
  checkpoint::run_together(ranks, "cannot record strategies", [&] {
    if (writes_strategies) {
      checkpoint::write_strategy_file(files, options_.strategy_ckpt_save_file, record_strategies(logical, plan));
    }
    if (writes_groups) {
      checkpoint::write_group_file(files, options_.group_ckpt_save_file,
                                   record_groups(logical, plan, groups, context_.rank()));
    }
    return std::string();
  });
  writes_done_ = is_training ? Writes::kOfTraining : Writes::kOfPrediction;
}

// Of the ranks that name one file, the first. Where all name one they may do so on several hosts.
bool SemiAutomatic::is_writer(const std::string& path, checkpoint::Barrier& ranks) const {
  const auto paths = ranks.exchange(path);
  if (std::find(paths.begin(), paths.end(), "") == paths.end()) {
    const int first = checkpoint::find_writer(context_.file_system(), ranks, parent_path(path));
    return first == context_.rank() || paths[static_cast<size_t>(first)] != path;
  }
  const auto own = paths.begin() + context_.rank();
  return !path.empty() && std::find(paths.begin(), own, path) == own;
}

std::unique_ptr<Mode> make_semi_automatic(const ModeParts& parts) { return std::make_unique<SemiAutomatic>(parts); }

}  // namespace tessera::train
