// OneGraph: what the modes have in common that train one logical graph, of global shapes, spread over all ranks by a
// plan. Where nothing else is said, rows are split.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "tessera/train/modes/mode.h"

namespace tessera::train {

class OneGraph : public Mode {
 public:
  using Mode::Mode;

  // Where Tessera splits, a slice has no meaning of its own.
  void check_parameter(const nn::Parameter& parameter) const override;
  mesh::Mesh mesh() const override { return mesh::Mesh({{"data", context_.size()}}); }
  void compare_data(const data::Dataset& dataset) const override;
  // A data set that is one shard already has the rows of this rank.
  int64_t global_rows(const data::Dataset& dataset, int64_t rows) const override;
  // A vector loss is split over the ranks: the mean over all its elements.
  double mean_loss(const TensorView& loss) const override;
  std::optional<compiler::Compiled> plan_training(session::Session& session, const ir::Graph& graph,
                                                  const InputSpecs& inputs) override;
  std::unique_ptr<session::Executable> compile(session::Session& session, const ir::Graph& graph,
                                               const InputSpecs& inputs) const override;
  std::unique_ptr<session::Executable> compile_prediction(session::Session& session, const ir::Graph& graph,
                                                          bool values_are_placed) const override;
  void record(const session::Executable& executable, bool is_training, checkpoint::Barrier& ranks) override;
  SaveForm form_of_save(bool integrated) const override { return integrated ? SaveForm::kWhole : SaveForm::kSlices; }

 protected:
  // How the inputs of a step lie.
  virtual compiler::ShardingHints input_hints(const InputSpecs& inputs) const;
  // How the inputs of a prediction lie; those that are not named are whole on every rank.
  virtual compiler::ShardingHints prediction_hints(const ir::Graph&) const { return {}; }
  // How a step is planned.
  virtual compiler::PlanOptions plan_options(const session::Session& session) const;
  // How a prediction is planned: nothing splits its batch but prediction_hints().
  compiler::PlanOptions prediction_options(const session::Session& session, bool values_are_placed) const;
  // Of how many parts a batch is whose rows the ranks give: ranks [0, n) give each a part, others what these give.
  virtual int num_parts() const { return context_.size(); }
  // The parameters whose rows the replicas share.
  virtual std::set<std::string> optimizer_shards() const;

 private:
  mutable bool has_warned_of_equal_rows_ = false;
};

}  // namespace tessera::train
