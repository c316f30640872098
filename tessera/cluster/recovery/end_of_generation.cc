#include "tessera/cluster/recovery/end_of_generation.h"

#include "tessera/comm/job_state.h"

namespace tessera::cluster {
namespace {

template <typename Kind>
bool is_of(const std::exception& error) {
  return dynamic_cast<const Kind*>(&error) != nullptr;
}

}  // namespace

bool is_end_of_generation(const Recovery& recovery, const std::exception& error) {
  if (is_of<Misfit>(error) || is_of<JobStopped>(error)) return false;
  return is_of<Resizing>(error) || is_of<comm::PeerSilence>(error) || recovery.has_failed();
}

}  // namespace tessera::cluster
