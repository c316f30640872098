// What a model is told of its pipeline. Which cell is on which stage, cells say: nn::Cell::set_stage.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/mesh/stage_ranks.h"
#include "tessera/train/options/option_info.h"

namespace tessera::train {

// Into how many stages a network is cut: a number, or as many as a search finds.
class StageCount {
 public:
  StageCount(int count = 0) : count_(count) {}  // NOLINT: a number is a count; 0: none is given
  static StageCount automatic() { return {kAutomatic}; }

  bool is_automatic() const { return count_ == kAutomatic; }
  // 0 of what a search finds.
  int count() const { return is_automatic() ? 0 : count_; }
  // "auto" or a number.
  std::string to_string() const { return is_automatic() ? "auto" : std::to_string(count_); }
  bool operator==(const StageCount&) const = default;

 private:
  static constexpr int kAutomatic = std::numeric_limits<int>::min();
  int count_;
};

// for_each_option() says what its members mean.
struct PipelineOptions {
  StageCount stages = {};
  std::vector<int> ranks = {};
  int64_t micro_batches = 0;
  bool sum_losses = false;
  std::string schedule = "auto";
  int segments = 0;
  int receive_ahead = 1;
  std::optional<compiler::MachineProfile> profile = std::nullopt;
};

// Calls visit(OptionInfo, member) for each option.
template <typename Visit>
void for_each_option(PipelineOptions& options, const Visit& visit) {
  constexpr int64_t kMostInt = std::numeric_limits<int>::max();
  visit(
      OptionInfo{.name = "stages",
                 .doc = "Into how many stages the network is cut; not given: as many as \"ranks\" names; \"auto\", in "
                        "automatic parallelism: as many as a search finds to be fastest, with so many ranks each, and "
                        "so many micro-batches if their number is not given.",
                 .member = "pipeline.stages",
                 .least = 1,
                 .most = kMostInt},
      options.stages);
  visit(OptionInfo{.name = "ranks",
                   .doc = "How many ranks each stage has, such as [3, 1]: stage 0 has the first ones, stage 1 those "
                          "after them. Not given: equally many, so that the stages must divide the ranks, or, where "
                          "\"stages\" is \"auto\", as many as are found.",
                   .member = "pipeline.ranks",
                   .least = 1,
                   .most = kMostInt},
        options.ranks);
  visit(OptionInfo{.name = "micro_batches",
                   .doc = "Into how many parts of equal rows a batch is cut, at least as many as there are stages; not "
                          "given: as many.",
                   .least = 1,
                   .most = kMostInt},
        options.micro_batches);
  visit(
      OptionInfo{.name = "sum_losses",
                 .doc = "The loss of a step is the sum of the micro-batches' losses, and so are its gradients, instead "
                        "of their mean."},
      options.sum_losses);
  visit(OptionInfo{.name = "schedule",
                   .doc = "In what order the stages work on micro-batches: \"gpipe\", \"1f1b\", "
                          "\"interleaved_1f1b\", \"zb_h1\", \"zb_h2\", \"zb_v\", or \"auto\", the best that a search "
                          "finds. Changes no result."},
        options.schedule);
  visit(OptionInfo{.name = "segments",
                   .doc = "In automatic parallelism, how often the network goes over the stages; not given: twice for "
                          "interleaved_1f1b and zb_v, else once. Elsewhere cells say it.",
                   .least = 1,
                   .most = kMostInt},
        options.segments);
  visit(OptionInfo{.name = "receive_ahead",
                   .doc = "For how many micro-batches more than those in work a stage has memory, so that messages "
                          "arrive while it computes.",
                   .least = 0,
                   .most = kMostInt},
        options.receive_ahead);
  visit(OptionInfo{.name = "profile",
                   .doc = "The file of a machine profile, or the name of a machine, as h100-80gb, which says how long "
                          "phases take. Absent: the machine is measured briefly where a schedule or cuts are searched "
                          "for; what is only told of a schedule that has a name is of no machine in particular."},
        options.profile);
}

// Whether a model is told of a pipeline.
inline bool is_set(const PipelineOptions& options) {
  return options.stages != StageCount() || !options.ranks.empty() || options.micro_batches != 0 || options.sum_losses ||
         options.schedule != "auto" || options.segments != 0 || options.receive_ahead != 1 ||
         options.profile.has_value();
}

// 0: none is given, or a search finds it.
inline int num_stages(const PipelineOptions& options) {
  return options.stages == StageCount() ? static_cast<int>(options.ranks.size()) : options.stages.count();
}

// The ranks of the stages. Throws InvalidArgument where there are no stages, or they cannot have so many ranks in all.
mesh::StageRanks stage_ranks(const PipelineOptions& options, int num_ranks);

}  // namespace tessera::train
