// How long a collective takes by a machine profile: what its busiest member receives, over which links. Internal to the
// compiler.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/ops/registry/collective_def.h"

namespace tessera::compiler {

using ops::Packed;

// What a member of a group receives in one collective.
struct Received {
  int64_t from_host = 0;   // bytes from ranks of its own host
  int64_t from_other = 0;  // and of others
  int rounds = 1;
  std::vector<Packed> packed = {};
};

// A group as one of its members sees it.
class GroupMembers {
 public:
  // `ranks` are the world ranks of the group; `rank` must be one of them: else own() == size().
  GroupMembers(std::vector<int> ranks, int rank, const MachineProfile& profile);

  const std::vector<int>& ranks() const { return ranks_; }
  int64_t size() const { return static_cast<int64_t>(ranks_.size()); }
  // Its place among the members.
  int64_t own() const { return own_; }
  // Peers of its own host, and others.
  int64_t num_near() const { return num_near_; }
  int64_t num_far() const { return size() - 1 - num_near_; }
  bool is_near(int64_t member) const {
    return profile_.host_of(ranks_[static_cast<size_t>(member)]) == profile_.host_of(rank_);
  }
  // `bytes` that come from all peers alike.
  Received from_all(int64_t bytes, int rounds = 1) const;
  // A latency for each round, the bytes at the speed of the links that they come over, and those that are packed, read
  // and written, as copies of such pieces.
  double seconds_of(const Received& received) const;

 private:
  const MachineProfile& profile_;
  int rank_;
  std::vector<int> ranks_;
  int64_t own_ = 0;
  int64_t num_near_ = 0;
};

}  // namespace tessera::compiler
