// EndAgreement: when a training ends because its process was sent SIGTERM. Ranks that train together save after the
// same step, whichever of them was told, and end then. In a job that goes on after a loss only those end that were
// told: the others wait for their return.
#pragma once

#include <cstdint>

#include "tessera/cluster/ranks/context.h"
#include "tessera/cluster/termination.h"

namespace tessera::train {

class EndAgreement {
 public:
  // `together`: all ranks train one network, in the same steps; else this rank decides by itself. The context must
  // outlive it.
  EndAgreement(cluster::Context& context, bool together);
  // Asked after each step: whether a rank was told to end, so that all save now. Ranks ask each other a few times a
  // second, at steps that they have agreed on; each such time is collective.
  bool is_time_to_save();
  // Asked once all have saved: whether this rank ends.
  bool ends();

 private:
  cluster::TerminationWatch watch_;
  cluster::Context& context_;
  bool together_;
  int64_t steps_between_ = 1;
  int64_t steps_left_ = 1;  // until they ask
  int64_t asked_ns_;
};

}  // namespace tessera::train
