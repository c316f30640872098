#include "tessera/session/agree/work_apart.h"

namespace tessera::session {

WorkApart::WorkApart(comm::Communicator& group, const char* who, comm::RankProgress* progress, Clock& clock)
    : group_(group), who_(who), progress_(progress), clock_(clock), met_ns_(clock.monotonic_ns()) {}

void WorkApart::after_piece() {
  // Whoever looks on sees another number of the progress.
  const comm::RankProgress::Phase phase(progress_, who_);
  if (group_.size() == 1 || clock_.monotonic_ns() - met_ns_ < kPauseMs * 1'000'000) return;
  meet(/*works=*/true);
  met_ns_ = clock_.monotonic_ns();
}

void WorkApart::finish() {
  if (group_.size() == 1) return;
  while (meet(/*works=*/false)) {
  }
}

bool WorkApart::meet(bool works) {
  int64_t any_works = works ? 1 : 0;
  group_.all_reduce(&any_works, 1, DType::kI64, comm::ReduceOp::kMax, who_);
  return any_works != 0;
}

}  // namespace tessera::session
