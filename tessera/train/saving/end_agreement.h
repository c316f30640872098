// EndAgreement: when a training ends because its process was sent SIGTERM, or because its job was asked for a number of
// ranks that it cannot have. Ranks that train together save after the same step, whichever of them was told, and end
// then. In a job that goes on after a loss only those end that were sent the signal: the others wait for their return.
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
  // Asked after each step: whether a rank was told to end, or has heard that all are to stop, so that all save now.
  // Ranks ask each other a few times a second, at steps that they have agreed on; each such time is collective.
  bool is_time_to_save();
  // Asked once all have saved: whether all are to stop, and whether this rank ends by the signal.
  bool stops() const { return stops_; }
  bool ends();
  // From now on no rank's word that all are to stop counts.
  void go_on() { heeds_stop_ = stops_ = false; }

 private:
  cluster::TerminationWatch watch_;
  cluster::Context& context_;
  bool together_;
  int64_t steps_between_ = 1;
  int64_t steps_left_ = 1;  // until they ask
  int64_t asked_ns_;
  bool heeds_stop_ = true;
  bool stops_ = false;
};

}  // namespace tessera::train
