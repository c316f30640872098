#include <map>
#include <optional>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/pipeline/schedule_text.h"
#include "tessera/train/modes/decisions.h"
#include "tessera/train/modes/measured_profile.h"
#include "tessera/train/modes/mode_options.h"
#include "tessera/train/modes/stages/found_cuts.h"
#include "tessera/train/modes/stages/staged.h"

namespace tessera::train {
namespace {

// The ranks of the stages, or one stage of all until it is found how many there are.
mesh::StageRanks ranks_of_stages(const ModelOptions& options, int num_ranks) {
  const bool is_searched = options.parallel_mode == ParallelMode::kAutomatic && options.pipeline.stages.is_automatic();
  if (is_searched && options.pipeline.ranks.empty()) return mesh::StageRanks({num_ranks});
  return stage_ranks(options.pipeline, num_ranks);
}

// The network's stages lie on ranks of their own, as its cells say or a search finds.
class Pipeline final : public Staged {
 public:
  explicit Pipeline(const ModeParts& parts) : Staged(parts, ranks_of_stages(parts.options, parts.context.size())) {
    if (const auto count = options_.pipeline.micro_batches; count != 0) {
      compiler::require_micro_batches({.num_stages = num_stages()}, static_cast<int>(count));
    }
  }

 private:
  int64_t micro_batches() const override {
    if (found_micro_batches_ > 0) return found_micro_batches_;
    return options_.pipeline.micro_batches != 0 ? options_.pipeline.micro_batches : num_stages();
  }
  bool is_placed_by_training() const override { return finds_cuts(); }
  void place(ir::Graph& graph) const override {
    if (!finds_cuts()) return;
    if (found_micro_batches_ == 0) {
      throw InvalidArgument(
          "auto_parallel finds where a network is cut into stages for its training step, and there is none yet: train "
          "first, or use pipeline_parallel with set_stage()");
    }
    compiler::set_stages(graph, cuts_);
  }
  compiler::StepGraphs graphs_of_step(const InputSpecs& inputs) const override {
    if (finds_cuts() && found_micro_batches_ == 0) find(inputs);
    auto traced = std::exchange(traced_, {});
    const auto known = traced.find(micro_batches());
    return known == traced.end() ? Staged::graphs_of_step(inputs) : std::move(known->second);
  }
  session::PipelinedOptions pipelined(const ir::Graph& micro) const override {
    return {.micro_batches = static_cast<int>(micro_batches()),
            .schedule = options_.pipeline.schedule,
            .receive_ahead = options_.pipeline.receive_ahead,
            .profile = profile(micro)};
  }

  // What the training step is planned by, where none is given: measured once, when the first is, if a search goes by
  // it. The times of a schedule that has a name are only told.
  const compiler::MachineProfile& profile(const ir::Graph& micro) const {
    if (options_.pipeline.profile) return *options_.pipeline.profile;
    if (!planned_by_) {
      const bool is_searched = finds_cuts() || options_.pipeline.schedule == "auto";
      planned_by_ = is_searched ? measure_briefly(context_, micro) : compiler::example_profile();
    }
    return *planned_by_;
  }

  void find(const InputSpecs& inputs) const {
    const auto graphs_of = [&](int64_t count) -> const compiler::StepGraphs& {
      const auto it = traced_.find(count);
      if (it != traced_.end()) return it->second;
      return traced_.emplace(count, step_graphs(micro_inputs(inputs, count), count)).first->second;
    };
    const auto& micro = graphs_of(micro_batches()).micro;
    const std::string subject = fmt::format(
        "stages of {} on {} by {} {} {} {}", compiler::hash_of(compiler::simplify(micro)), context_.size(),
        num_stages(), options_.pipeline.segments, options_.pipeline.schedule, options_.session.memory_limit_bytes);
    const std::string known = find_decision(context_, subject);
    auto found = !known.empty() ? parse_cuts(known)
                                : find_cuts(context_, inputs.at(0).type.shape[0], graphs_of, options_, profile(micro));
    if (known.empty()) keep_decision(context_, subject, print_cuts(found));
    cuts_ = std::move(found.cells);
    ranks_ = found.ranks;
    found_micro_batches_ = found.micro_batches;
  }

  // Automatic parallelism says how many stages there are, not where they begin.
  bool finds_cuts() const { return options_.parallel_mode == ParallelMode::kAutomatic; }

  void say(const session::PipelinedStep& step, const std::string& profile) const override {
    const auto& found = step.schedule();
    const pipeline::PictureOptions options{.max_width = 150};
    log_info("pipeline of {} stages, {} micro-batches, {}: by the profile \"{}\" idle {:.1f} % of the time\n{}{}",
             num_stages(), micro_batches(), found.origin, profile, found.bubble * 100,
             pipeline::picture(found.schedule, options), pipeline::legend(found.schedule, options));
  }

  mutable int64_t found_micro_batches_ = 0;                 // 0: none were searched for
  mutable std::map<int64_t, compiler::StepGraphs> traced_;  // by number of micro-batches, while a step is planned
  mutable compiler::CellStages cuts_;                       // that were found
  mutable std::optional<compiler::MachineProfile> planned_by_;
};

}  // namespace

std::unique_ptr<Mode> make_pipeline(const ModeParts& parts) { return std::make_unique<Pipeline>(parts); }

}  // namespace tessera::train
