// How automatic parallelism looks for a plan.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/compiler/search/plan_record.h"
#include "tessera/compiler/search/search.h"
#include "tessera/train/options/option_info.h"

namespace tessera::train {

// for_each_option() says what its members mean.
struct AutomaticPlanOptions {
  // What is put in order by a simulation, and stands against data parallel by a percent, need not be proven further.
  compiler::SearchOptions search = {.rounds = 16, .gap = 5e-3};
  std::optional<compiler::MachineProfile> profile = std::nullopt;
  // A planner of one's own, in place of the search: from the step as it is planned to the choices for it.
  std::function<compiler::PlanRecord(const ir::Graph&)> planner = {};
  std::string load_file = {};
  std::string save_file = {};
};

// Calls visit(OptionInfo, member) for each option that has a name in Python.
template <typename Visit>
void for_each_option(AutomaticPlanOptions& options, const Visit& visit) {
  using enum OptionUse;
  constexpr int64_t kMostInt = std::numeric_limits<int>::max();
  visit(OptionInfo{.name = "algorithm",
                   .doc = "How to search: \"certified\", \"dynamic_programming\" or \"recursive_programming\"."},
        options.search.algorithm);
  visit(OptionInfo{.name = "rounds", .doc = "How long the solver tries, for each grid.", .least = 1, .most = kMostInt},
        options.search.rounds);
  visit(
      OptionInfo{.name = "timeout",
                 .doc = "After so many seconds the best of what was found is taken; plans then differ from run to run.",
                 .member = "timeout_seconds"},
      options.search.timeout_seconds);
  visit(
      OptionInfo{
          .name = "max_axes", .doc = "With up to so many axes the ranks form a grid.", .least = 1, .most = kMostInt},
      options.search.max_axes);
  visit(OptionInfo{.name = "fully_use_devices",
                   .doc = "Operators that can be split over all ranks are.",
                   .member = "use_all_ranks"},
        options.search.use_all_ranks);
  visit(
      OptionInfo{
          .name = "slice_align_size", .doc = "The dims of a matrix product's pieces are multiples of it.", .least = 1},
      options.search.slice_align_size);
  visit(
      OptionInfo{.name = "profile",
                 .doc = "The file of a machine profile, as `tessera calibrate` writes it, or the name of a machine, as "
                        "h100-80gb; absent: the machine is measured briefly."},
      options.profile);
  visit(
      OptionInfo{.name = "load",
                 .doc = "The file of a plan, which `tessera plan --out` or an earlier run wrote, in place of a search.",
                 .uses = OptionUses{kUnused, kUnused, kUnused, kUnused, kRead, kUnused},
                 .member = "automatic.load_file",
                 .names_file = true},
      options.load_file);
  visit(OptionInfo{.name = "save",
                   .doc = "The file into which rank 0 writes the plan.",
                   .uses = OptionUses{kUnused, kUnused, kUnused, kUnused, kRead, kUnused},
                   .member = "automatic.save_file",
                   .names_file = true},
        options.save_file);
}

// Whether anything but the files is set.
bool is_set(const AutomaticPlanOptions& options);

}  // namespace tessera::train
