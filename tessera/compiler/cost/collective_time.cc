#include "tessera/compiler/cost/collective_time.h"

#include <algorithm>
#include <utility>

namespace tessera::compiler {

GroupMembers::GroupMembers(std::vector<int> ranks, int rank, const MachineProfile& profile)
    : profile_(profile), rank_(rank), ranks_(std::move(ranks)) {
  own_ = std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin();
  for (int64_t i = 0; i < size(); ++i) num_near_ += i != own_ && is_near(i) ? 1 : 0;
}

Received GroupMembers::from_all(int64_t bytes, int rounds) const {
  const int64_t peers = size() - 1;
  if (peers == 0) return {0, 0, rounds};
  const int64_t from_host = bytes / peers * num_near_ + bytes % peers * num_near_ / peers;
  return {from_host, bytes - from_host, rounds};
}

double GroupMembers::seconds_of(const Received& received) const {
  const Link& near = profile_.intra_host_of(num_near() + 1);
  const double latency =
      std::max(num_near() > 0 ? near.latency_seconds : 0.0, num_far() > 0 ? profile_.inter_host.latency_seconds : 0.0);
  double packing = 0;
  for (const Packed& packed : received.packed) {
    packing += profile_.copy_seconds(2.0 * static_cast<double>(packed.bytes), packed.piece_bytes);
  }
  return received.rounds * latency + packing + static_cast<double>(received.from_host) / near.bytes_per_second +
         static_cast<double>(received.from_other) / profile_.inter_host.bytes_per_second;
}

}  // namespace tessera::compiler
