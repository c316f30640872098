#include "tessera/train/model.h"

#include "tessera/base/error.h"
#include "tessera/mesh/rank_limits.h"
#include "tessera/mesh/strategy_error.h"

namespace tessera::train {

std::vector<session::InputSpec> Model::input_specs(const data::Dataset& dataset, int64_t global_rows) const {
  std::vector<session::InputSpec> specs;
  for (const auto& column : dataset.columns()) {
    Type type = column.type;
    if (type.shape.ndim() == 0) {
      throw InvalidArgument("column \"{}\" is {}: the data set must be batched before it is trained on", column.name,
                            type);
    }
    type.shape[0] = global_rows;
    specs.push_back({column.name, type});
  }
  return specs;
}

int64_t Model::global_rows_of(const data::Dataset& dataset, int64_t rows) const {
  // A data set that is one shard already has the rows of this rank.
  return is_parallel() && !is_hybrid() && dataset.num_shards() > 1 ? rows * context_.size() : rows;
}

compiler::ShardingHints Model::input_hints(const std::vector<session::InputSpec>& inputs) const {
  compiler::ShardingHints hints;
  if (!is_parallel() || is_hybrid() || (is_semi_auto() && options_.full_batch)) return hints;
  const auto& strategy = options_.dataset_strategy;
  if (is_semi_auto() && !strategy.empty() && strategy.size() != inputs.size()) {
    throw mesh::StrategyError("dataset_strategy {} has {} tuples, there are {} inputs", mesh::to_string(strategy),
                              strategy.size(), inputs.size());
  }
  if (is_semi_auto()) {
    const auto fault = mesh::fault_of_counts(strategy, context_.size());
    if (!fault.empty()) throw mesh::StrategyError("dataset_strategy {} {}", mesh::to_string(strategy), fault);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int ndim = inputs[i].type.shape.ndim();
    auto sharding = mesh::Sharding::replicated(ndim);
    if (!is_semi_auto() || strategy.empty()) {
      if (ndim > 0) sharding.dims[0] = {0};
      hints[inputs[i].name] = {mesh(), sharding};
      continue;
    }
    // The tuple as a grid of ranks, repeated along a last axis.
    std::vector<mesh::Axis> axes;
    int left = context_.size();
    if (static_cast<int>(strategy[i].size()) != ndim) {
      throw mesh::StrategyError("dataset_strategy {} has {} counts for input \"{}\" {}", mesh::to_string(strategy),
                                strategy[i].size(), inputs[i].name, inputs[i].type);
    }
    for (int dim = 0; dim < ndim; ++dim) {
      const auto parts = static_cast<int>(strategy[i][static_cast<size_t>(dim)]);
      if (parts == 1) continue;
      if (left % parts != 0) {
        throw mesh::StrategyError("dataset_strategy {} does not divide {} ranks", mesh::to_string(strategy),
                                  context_.size());
      }
      left /= parts;
      sharding.dims[static_cast<size_t>(dim)] = {static_cast<int>(axes.size())};
      axes.push_back({fmt::format("dim{}", dim), parts});
    }
    if (left > 1) axes.push_back({"repeated", left});
    hints[inputs[i].name] = {mesh::Mesh(axes), sharding};
  }
  return hints;
}

bool Model::has_own_rows(const data::Dataset& dataset) const {
  if (!is_semi_auto()) return true;
  if (dataset.num_shards() == 1) return false;
  if (options_.full_batch || !options_.dataset_strategy.empty()) {
    throw InvalidArgument(
        "{}: every rank must read the whole batch, but the data set is one rank's part of {} (num_shards)",
        options_.full_batch ? "full_batch" : "dataset_strategy", dataset.num_shards());
  }
  return true;
}

BatchPlace Model::place_of_batch(session::Executable& executable, const std::vector<session::InputSpec>& inputs,
                                 bool has_own_rows) {
  BatchPlace place;
  for (const auto& input : inputs) {
    if (has_own_rows) {
      place.written.push_back(executable.input(input.name));
      continue;
    }
    auto& whole = whole_batches_[fmt::format("{} {}", input.name, input.type)];
    if (!(whole.type() == input.type)) whole = Tensor(input.type);
    place.written.push_back(whole.view());
    place.add_piece(executable, input.name, whole.view());
  }
  return place;
}

data::BatchIterator Model::batches_of(const data::Dataset& dataset, data::Position start, int64_t num_epochs,
                                      const TrainOptions& options, const session::Executable& executable) const {
  data::IterateOptions iterate{.start = start, .num_epochs = num_epochs, .num_workers = options.num_workers};
  if (is_data_parallel() && dataset.num_shards() == 1) {
    iterate.part = context_.rank();
    iterate.num_parts = context_.size();
  }
  const auto& schedule = executable.compiled().schedule;
  for (const auto& [name, v] : schedule.inputs) {
    const auto& value = schedule.values[static_cast<size_t>(v)];
    if (value.type.shape.ndim() == 4 && !is_dense(value.type.shape, value.strides)) iterate.channels_last = true;
  }
  return dataset.batches(iterate);
}

}  // namespace tessera::train
