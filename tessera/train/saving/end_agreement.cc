#include "tessera/train/saving/end_agreement.h"

#include <algorithm>

namespace tessera::train {
namespace {

// So often they ask: what that costs is not seen beside a step, and who is told to end has seconds.
constexpr int64_t kSoonestNs = 100'000'000;
constexpr int64_t kLatestNs = 500'000'000;
constexpr int64_t kMostSteps = 1 << 20;

}  // namespace

EndAgreement::EndAgreement(cluster::Context& context, bool together)
    : context_(context), together_(together && context.size() > 1), asked_ns_(context.clock().monotonic_ns()) {}

bool EndAgreement::ends() {
  if (context_.recovery() != nullptr && !watch_.has_come()) return false;
  watch_.answer();
  return true;
}

bool EndAgreement::is_time_to_save() {
  const auto* recovery = context_.recovery();
  const bool hears_of_stop = heeds_stop_ && recovery != nullptr && !recovery->stop_reason().empty();
  if (!together_) {
    stops_ = hears_of_stop;
    return stops_ || watch_.has_come();
  }
  if (--steps_left_ > 0) return false;
  const int64_t now_ns = context_.clock().monotonic_ns();
  const int64_t since_ns = now_ns - asked_ns_;
  asked_ns_ = now_ns;
  if (since_ns < kSoonestNs) steps_between_ = std::min(2 * steps_between_, kMostSteps);
  if (since_ns > kLatestNs) steps_between_ = std::max<int64_t>(steps_between_ / 2, 1);
  // Whether one was told, has heard of a stop, and the number of steps: clocks differ, rank 0's counts.
  int64_t said[] = {watch_.has_come() ? 1 : 0, hears_of_stop ? 1 : 0, context_.rank() == 0 ? steps_between_ : 0};
  context_.world().all_reduce(said, 3, DType::kI64, comm::ReduceOp::kMax, "whether training ends");
  stops_ = said[1] == 1;
  steps_between_ = steps_left_ = said[2];
  return said[0] == 1 || stops_;
}

}  // namespace tessera::train
