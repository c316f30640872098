// BuddyCopies: what only one rank keeps of a training, kept by another rank, too: its buddy, whose memory is not lost
// together with its own. The copies go there beside the computing of the next step.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/workers/worker.h"
#include "tessera/cluster/ranks/context.h"

namespace tessera::train {

// By rank, which rank is its buddy; -1: it has none. Ranks of equal `keepers`, HOST/KEEPER, lose what they keep
// together: a buddy has another one, on another host where there is one. Ranks of one keeper have buddies of one
// keeper, each another one where that has as many ranks.
std::vector<int> find_buddies(const std::vector<std::string>& keepers);

// Made by all ranks of the context, in which each knows the buddy of every rank and how many bytes it copies.
class BuddyCopies {
 public:
  // What others give this rank goes into `memory`; a version of it has the bytes of each, in the order of their ranks.
  BuddyCopies(cluster::Context& context, cluster::KeptMemory& memory, const std::vector<int>& buddies,
              const std::vector<int64_t>& sizes);
  // Waits, as wait() does.
  ~BuddyCopies();

  // Begins to copy the first bytes of what this rank keeps, which stays as it is until wait() has returned. All ranks
  // call it equally often.
  void start(std::span<const std::byte> own);
  // Until all ranks have what the latest start() of each gives them. Where that fails, a warning says so, and nothing
  // is copied any more: whoever has failed ends this rank's training elsewhere.
  void wait();
  // What this rank has computed for it.
  int64_t cpu_ns() const { return cpu_ns_; }

 private:
  void exchange(const std::byte* own, std::span<std::byte> others);

  cluster::Context& context_;
  cluster::KeptMemory& memory_;
  std::string group_;
  std::vector<int64_t> to_;    // bytes for each rank
  std::vector<int64_t> from_;  // bytes of each rank
  int64_t own_size_ = 0;
  int64_t others_size_ = 0;
  std::vector<std::byte> scratch_;  // in place of memory that there is not
  bool has_failed_ = false;
  std::atomic<int64_t> cpu_ns_ = 0;
  Worker worker_{{.purpose = "copies for other ranks"}};
};

}  // namespace tessera::train
