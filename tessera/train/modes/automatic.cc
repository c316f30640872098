#include "tessera/train/modes/automatic_plan.h"
#include "tessera/train/modes/semi_automatic.h"

namespace tessera::train {
namespace {

// A search decides how the training step is split, in place of rules; strategies hold.
class Automatic final : public SemiAutomatic {
 public:
  using SemiAutomatic::SemiAutomatic;

  std::optional<compiler::Compiled> plan_training(session::Session& session, const ir::Graph& graph,
                                                  const InputSpecs& inputs) override {
    AutomaticPlanOptions options = options_.automatic;
    options.search.hints = input_hints(inputs);
    options.search.whole_results = true;
    options.search.memory_limit_bytes = options_.session.memory_limit_bytes;
    options.search.partition = options_.session.partition;
    plan_ = plan_automatically(context_, graph, options);
    return SemiAutomatic::plan_training(session, graph, inputs);
  }
  std::shared_ptr<const compiler::PlanRecord> plan() const override { return plan_; }
  // The plan of the training step holds for predictions.
  bool predicts_one_batch(bool values_are_placed) const override {
    return values_are_placed || SemiAutomatic::predicts_one_batch(values_are_placed);
  }
  bool may_be_resized() const override { return true; }
  std::string why_fixed(const data::Dataset& dataset) const override {
    std::string why = why_not_held_by_fewer();
    return why.empty() ? rows_of_ranks(dataset) : why;
  }
  std::string why_not_held_by_fewer() const override {
    if (!options_.automatic.load_file.empty()) return "its plan is that of a file";
    if (has_strategies_) return "operators have strategies, which are for its number of ranks";
    if (!options_.dataset_strategy.empty()) return "dataset_strategy is for its number of ranks";
    return "";
  }

 protected:
  // Before the training step is known all values are whole.
  compiler::PlanOptions plan_options(const session::Session&) const override {
    return {.strategies = false, .whole_results = true, .record = plan_};
  }

 private:
  std::shared_ptr<const compiler::PlanRecord> plan_;  // of the training step, once it is known
};

}  // namespace

std::unique_ptr<Mode> make_automatic(const ModeParts& parts) { return std::make_unique<Automatic>(parts); }

}  // namespace tessera::train
