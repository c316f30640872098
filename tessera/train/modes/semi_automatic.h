// SemiAutomatic: operators are split as the user says, by strategies in the network or in a file; the others split the
// batch.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/train/modes/one_graph.h"

namespace tessera::train {

class SemiAutomatic : public OneGraph {
 public:
  // Reads the file of strategies. Throws what reading it throws.
  explicit SemiAutomatic(const ModeParts& parts);

  bool agrees_on_values() const override { return true; }
  bool gives_own_rows(const data::Dataset& dataset) const override;
  bool takes_whole_batches() const override { return true; }
  // Strategies hold once values are placed, those of the data set always. Without any a prediction is each rank's own.
  bool predicts_one_batch(bool values_are_placed) const override;
  std::optional<compiler::Compiled> plan_training(session::Session& session, const ir::Graph& graph,
                                                  const InputSpecs& inputs) override;
  void apply_strategies(ir::Graph& graph, bool is_training) const override;
  std::optional<compiler::Compiled> plan_prediction(session::Session& session, const ir::Graph& graph) const override;
  void record(const session::Executable& executable, bool is_training, checkpoint::Barrier& ranks) override;

 protected:
  compiler::ShardingHints input_hints(const InputSpecs& inputs) const override;
  compiler::ShardingHints prediction_hints(const ir::Graph& graph) const override;
  compiler::PlanOptions plan_options(const session::Session& session) const override;
  std::set<std::string> optimizer_shards() const override;

  // Whether a graph by which values were placed has strategies: all ranks have planned it, so all know.
  mutable bool has_strategies_ = false;

 private:
  // How the inputs lie by a strategy with a tuple for each.
  compiler::ShardingHints hints_of(const mesh::Strategy& strategy, const InputSpecs& inputs) const;
  bool is_writer(const std::string& path, checkpoint::Barrier& ranks) const;

  std::optional<checkpoint::StrategyFile> strategies_;  // what strategy_ckpt_load_file says
  enum class Writes { kNone, kOfPrediction, kOfTraining };
  Writes writes_done_ = Writes::kNone;  // a training's are written once, instead of a prediction's
};

}  // namespace tessera::train
