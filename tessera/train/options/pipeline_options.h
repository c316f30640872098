// What a model is told of its pipeline. Which cell is on which stage, cells say: nn::Cell::set_stage.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/compiler/cost/machine_profile.h"

namespace tessera::train {

struct PipelineOptions {
  // Stage s has the ranks [s n, (s + 1) n), where n is their number divided by that of the stages, which must divide
  // it.
  int stages = 0;
  // Into how many parts of equal rows a batch is cut; at least as many as there are stages. 0: as many.
  int64_t micro_batches = 0;
  // The loss of a step is the sum of the micro-batches' losses, and so are its gradients, instead of their mean.
  bool sum_losses = false;
  // In what order the stages work on micro-batches: "gpipe", "1f1b", "zb_h1", "zb_h2", or "auto", the best that a
  // search finds (docs/pipelines.md). Changes no result.
  std::string schedule = "auto";
  // For how many micro-batches more than those in work a stage has memory, so that messages arrive while it computes.
  int receive_ahead = 1;
  // How long phases take. Absent: measure_briefly() (modes/measured_profile.h), where a schedule or cuts are searched
  // for; a profile of no machine in particular for what is only told of a schedule that has a name.
  std::optional<compiler::MachineProfile> profile = std::nullopt;
};

}  // namespace tessera::train
