#include <algorithm>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/ir/cell_name.h"
#include "tessera/train/modes/common_data.h"
#include "tessera/train/modes/mode.h"
#include "tessera/train/modes/mode_options.h"

namespace tessera::train {
namespace {

// Each rank by itself. On the only rank of a job, options of a pipeline have no effect; those that no number of ranks
// could have are refused as they are on many, for a script is tried on one first, or its launcher was forgotten.
class StandAlone final : public Mode {
 public:
  explicit StandAlone(const ModeParts& parts) : Mode(parts) {
    if (num_stages() < 2) return;
    check_stage_of(cells_.network);
    log_warning(
        "pipeline.stages = {} has no effect on one rank, which computes all stages: tessera run -n {} starts {} ranks",
        num_stages(), wanted_ranks(), wanted_ranks());
  }
  bool is_shared() const override { return false; }
  // On the only rank of a job in a mode whose ranks share batches. Else each rank's data is its own affair.
  void compare_data(const data::Dataset& dataset) const override {
    const auto mode = working_mode(options_);
    if (mode == ParallelMode::kStandAlone || mode == ParallelMode::kHybrid) return;
    const std::vector<std::string> all{describe_data(dataset)};
    require_all_parts(all, 1);
    const auto other_cut = find_other_cut(all);
    if (other_cut.empty()) return;
    log_warning(
        "train: {}: on other rows nobody trains; make the data set without num_shards and shard_id, or start "
        "as many ranks",
        other_cut);
  }
  // The only rank of an elastic job is what has been left of more, or more may come.
  std::string why_fixed(const data::Dataset& dataset) const override {
    return context_.size() > 1 ? "each rank trains by itself" : rows_of_ranks(dataset);
  }
  std::optional<compiler::Compiled> plan_training(session::Session& session, const ir::Graph& graph,
                                                  const InputSpecs& inputs) override {
    const int64_t micro_batches = num_stages() < 2 ? 1 : std::max<int64_t>(options_.pipeline.micro_batches, 1);
    for (const auto& input : inputs) {
      if (input.type.shape.ndim() > 0) rows_of_micro_batch(input.type.shape[0], micro_batches);
    }
    return Mode::plan_training(session, graph, inputs);
  }

 private:
  // 0 where this is no pipeline.
  int num_stages() const {
    return working_mode(options_) == ParallelMode::kPipeline ? train::num_stages(options_.pipeline) : 0;
  }
  int wanted_ranks() const {
    const auto& ranks = options_.pipeline.ranks;
    return ranks.empty() ? num_stages() : std::accumulate(ranks.begin(), ranks.end(), 0);
  }

  void check_stage_of(const nn::Cell& cell) const {
    if (cell.stage() >= num_stages()) {
      throw InvalidArgument(
          "cell \"{}\" is on stage {}, but the stages are 0 to {}: give it one of these by set_stage()",
          ir::cell_name(cell.path()), cell.stage(), num_stages() - 1);
    }
    for (const auto& [name, child] : cell.children()) check_stage_of(*child);
  }
};

}  // namespace

std::unique_ptr<Mode> make_stand_alone(const ModeParts& parts) { return std::make_unique<StandAlone>(parts); }

}  // namespace tessera::train
