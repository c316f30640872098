#include "tessera/train/modes/one_graph.h"

#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/session/agree/gather_texts.h"
#include "tessera/train/modes/common_data.h"
#include "tessera/train/modes/strategy_record.h"

namespace tessera::train {

void OneGraph::check_parameter(const nn::Parameter& parameter) const {
  if (!parameter.layerwise_parallel) return;
  throw InvalidArgument(
      "parameter \"{}\" is layerwise_parallel, a slice that the network combines by hand: that needs hybrid_parallel",
      parameter.full_name());
}

void OneGraph::compare_data(const data::Dataset& dataset) const {
  const bool is_common = takes_whole_batches() ? !gives_own_rows(dataset) : dataset.num_shards() == 1;
  const auto all = session::gather_texts(context_.world(), describe_data(dataset), "comparing the data of the ranks");
  require_all_parts(all, num_parts());
  require_common_data(all, is_common ? BatchParts::kOfCommon : BatchParts::kOfEachRank);
  if (is_common) return;
  require_equal_parts(all, num_parts());
  if (context_.rank() != 0) return;
  const std::vector<std::string> parts(all.begin(), all.begin() + num_parts());
  if (const auto doubled = find_doubled_shard(parts); !doubled.empty()) {
    log_warning("train: {}: they train on the same rows, and on others nobody does", doubled);
  } else if (const auto other_cut = find_other_cut(parts); !other_cut.empty()) {
    log_warning(
        "train: {}: they train on some rows more than once, or on others nobody does; make the data set with "
        "num_shards={}",
        other_cut, parts.size());
  } else if (give_equal_rows(parts) && !std::exchange(has_warned_of_equal_rows_, true)) {
    log_warning(
        "train: each of the {0} ranks trains on the same rows: the data set is not cut, though each rank gives rows of "
        "its own; make it with num_shards={0} and shard_id, the rank, or let the ranks share out its batches "
        "(full_batch)",
        parts.size());
  }
}

int64_t OneGraph::global_rows(const data::Dataset& dataset, int64_t rows) const {
  if (dataset.num_shards() <= 1) return rows;
  int64_t all = 0;
  if (!__builtin_mul_overflow(rows, int64_t{num_parts()}, &all)) return all;
  throw InvalidArgument("a batch of {} rows on each of {} ranks has more rows than an int64 counts", rows, num_parts());
}

double OneGraph::mean_loss(const TensorView& loss) const {
  if (loss.shape.ndim() == 0) return Mode::mean_loss(loss);
  const auto own = static_cast<double>(loss.num_elements());
  double sums[2] = {loss.num_elements() == 0 ? 0.0 : Mode::mean_loss(loss) * own, own};
  context_.world().all_reduce(sums, 2, DType::kF64, comm::ReduceOp::kSum, "loss");
  return sums[0] / sums[1];
}

compiler::ShardingHints OneGraph::input_hints(const InputSpecs& inputs) const {
  compiler::ShardingHints hints;
  for (const auto& input : inputs) {
    auto sharding = mesh::Sharding::replicated(input.type.shape.ndim());
    if (!sharding.dims.empty()) sharding.dims[0] = {0};
    hints[input.name] = {mesh(), sharding};
  }
  return hints;
}

std::set<std::string> OneGraph::optimizer_shards() const {
  std::set<std::string> names;
  if (!options_.parallel_optimizer) return names;
  for (const nn::Parameter* parameter : cells_.trainable_parameters()) {
    const bool is_large = parameter->type.size_bytes() >= options_.parallel_optimizer_threshold;
    if (parameter->parallel_optimizer && is_large) names.insert(parameter->full_name());
  }
  return names;
}

compiler::PlanOptions OneGraph::plan_options(const session::Session& session) const {
  compiler::PlanOptions options{.strategies = false};
  options.optimizer_shards = optimizer_shards();
  options.optimizer_shard_size = options_.optimizer_weight_shard_size;
  if (!options_.accumulates()) return options;
  for (const auto& name : session.names()) {
    if (nn::is_accumulated_gradient(name)) options.partial_states.insert(name);
  }
  return options;
}

compiler::PlanOptions OneGraph::prediction_options(const session::Session& session, bool values_are_placed) const {
  auto options = plan_options(session);
  options.batch_by_default = false;
  options.strategies = options.strategies && values_are_placed;  // until then all values are whole
  return options;
}

std::optional<compiler::Compiled> OneGraph::plan_training(session::Session& session, const ir::Graph& graph,
                                                          const InputSpecs& inputs) {
  return session.plan(graph, mesh(), input_hints(inputs), plan_options(session));
}

std::unique_ptr<session::Executable> OneGraph::compile(session::Session& session, const ir::Graph& graph,
                                                       const InputSpecs& inputs) const {
  return session.compile(graph, mesh(), input_hints(inputs), plan_options(session));
}

std::unique_ptr<session::Executable> OneGraph::compile_prediction(session::Session& session, const ir::Graph& graph,
                                                                  bool values_are_placed) const {
  return session.compile(graph, mesh(), prediction_hints(graph), prediction_options(session, values_are_placed));
}

void OneGraph::record(const session::Executable& executable, bool is_training, checkpoint::Barrier&) {
  const auto& compiled = executable.compiled();
  if (is_training || layouts_.empty()) layouts_ = record_layouts(compiled.logical, compiled.plan);
}

}  // namespace tessera::train
