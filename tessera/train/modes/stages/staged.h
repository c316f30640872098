// Staged: what the modes have in common in which ranks have stages of their own, and micro-batches of a batch pass
// through the stages one after the other. Every rank reads whole batches and takes of them what its stage reads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "tessera/compiler/pipelines/choose_stages.h"
#include "tessera/session/pipelined_step.h"
#include "tessera/train/modes/one_graph.h"

namespace tessera::train {

class Staged : public OneGraph {
 public:
  Staged(const ModeParts& parts, mesh::StageRanks ranks);

  bool agrees_on_values() const override { return true; }
  bool gives_own_rows(const data::Dataset& dataset) const override;
  bool takes_whole_batches() const override { return true; }
  bool predicts_together() const override { return true; }
  // Until values lie on stages each rank has all of them, and predicts alone.
  bool predicts_one_batch(bool values_are_placed) const override {
    return values_are_placed || places_for_predictions();
  }
  compiler::StageLayouts plan_values(session::Session& session, const InputSpecs& inputs) override;
  std::optional<compiler::Compiled> plan_training(session::Session&, const ir::Graph&, const InputSpecs&) override {
    return std::nullopt;
  }
  compiler::StageLayouts plan_values_of_prediction(session::Session& session, const ir::Graph& graph) override;
  std::unique_ptr<session::Executable> compile(session::Session& session, const ir::Graph& graph,
                                               const InputSpecs& inputs) const override;
  // Until values lie on stages each rank has all of them.
  std::unique_ptr<session::Executable> compile_prediction(session::Session& session, const ir::Graph& graph,
                                                          bool values_are_placed) const override;
  // The first rank of each stage writes how that is split.
  void record(const session::Executable& executable, bool is_training, checkpoint::Barrier& ranks) override;

 protected:
  // Each stage's ranks give whole batches together.
  int num_parts() const override { return ranks_.count(0); }

  // What a mode says of its stages.

  virtual int64_t micro_batches() const = 0;
  // Gives the operators of a micro-batch's graph the stages that cells have not named.
  virtual void place(ir::Graph&) const {}
  // Whether only a training step says what place() goes by.
  virtual bool is_placed_by_training() const { return false; }
  // The graphs of a training step of such batches.
  virtual compiler::StepGraphs graphs_of_step(const InputSpecs& inputs) const;
  // The parameters, by name, that another stage keeps than the one that reads them.
  virtual std::set<std::string> served() const { return {}; }
  // StageOptions::reads_rows_in_place. Every rank calls it.
  virtual bool reads_rows_in_place(const session::Session&) const { return false; }
  // Whether each stage is planned by itself; else those of equally many ranks have one plan.
  virtual bool plans_each_stage() const { return false; }
  // Changes how values lie on the stages that are planned as this one is.
  virtual void adapt(compiler::WithinStage&, int /*stage*/) const {}
  virtual session::PipelinedOptions pipelined(const ir::Graph& micro) const = 0;
  // Compiles the training step of this plan. Collective.
  virtual std::unique_ptr<session::Executable> make_step(session::Session& session, compiler::StagedPlan staged,
                                                         const InputSpecs& inputs) const;
  // Says on rank 0 what was compiled.
  virtual void say(const session::PipelinedStep& step, const std::string& profile) const = 0;

  int num_stages() const { return ranks_.num_stages(); }
  int stage() const { return ranks_.stage_of(context_.rank()); }
  compiler::StepGraphs step_graphs(const InputSpecs& micro, int64_t micro_batches) const;
  static InputSpecs micro_inputs(const InputSpecs& inputs, int64_t micro_batches);

  mutable mesh::StageRanks ranks_;

 private:
  compiler::StageOptions stage_options() const;
  compiler::StageOptions stage_options(const session::Session& session) const;
  compiler::PlanOptions stage_plan_options() const;
  std::map<int, compiler::WithinStage> within(const InputSpecs& inputs, const compiler::PlanOptions& plan) const;
  compiler::StagedPlan plan_step(session::Session& session, const InputSpecs& inputs, bool trains) const;
  compiler::StagedPlan plan_forward(session::Session& session, const ir::Graph& graph, const InputSpecs& inputs) const;
  checkpoint::StrategyFile strategies_of(const compiler::StagedPlan& staged) const;

  // The training step by whose plan the values have been placed, for what is compiled next.
  mutable std::optional<compiler::StagedPlan> planned_;
  bool are_placed_ = false;                    // whether each rank has the values of its stage
  bool are_placed_by_step_ = false;            // where a training step or an evaluation wants them
  mutable checkpoint::StrategyFile recorded_;  // of the latest training step that was compiled
  bool is_recorded_ = false;
};

}  // namespace tessera::train
