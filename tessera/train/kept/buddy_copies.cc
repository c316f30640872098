#include "tessera/train/kept/buddy_copies.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/workers/thread_cpu.h"

namespace tessera::train {
namespace {

constexpr const char* kCopies = "copies for buddies";

std::string host_of(const std::string& keeper) { return keeper.substr(0, keeper.find('/')); }

}  // namespace

std::vector<int> find_buddies(const std::vector<std::string>& keepers) {
  struct Together {
    std::string keeper;
    std::vector<int> ranks;
  };
  std::vector<Together> groups;
  for (size_t rank = 0; rank < keepers.size(); ++rank) {
    const auto it = std::ranges::find(groups, keepers[rank], &Together::keeper);
    Together& group = it == groups.end() ? groups.emplace_back(Together{keepers[rank], {}}) : *it;
    group.ranks.push_back(static_cast<int>(rank));
  }
  std::vector<int> buddies(keepers.size(), -1);
  for (size_t at = 0; at < groups.size(); ++at) {
    const Together* best = nullptr;
    for (size_t further = 1; further < groups.size(); ++further) {
      const Together& other = groups[(at + further) % groups.size()];
      const bool is_elsewhere = host_of(other.keeper) != host_of(groups[at].keeper);
      if (best == nullptr || is_elsewhere) best = &other;
      if (is_elsewhere) break;
    }
    if (best == nullptr) continue;
    for (size_t i = 0; i < groups[at].ranks.size(); ++i) {
      buddies[static_cast<size_t>(groups[at].ranks[i])] = best->ranks[i % best->ranks.size()];
    }
  }
  return buddies;
}

BuddyCopies::BuddyCopies(cluster::Context& context, cluster::KeptMemory& memory, const std::vector<int>& buddies,
                         const std::vector<int64_t>& sizes)
    : context_(context), memory_(memory), group_(context.new_group_name(kCopies)) {
  context.create_group(group_, context.world().ranks())->share_core();
  const auto own = static_cast<size_t>(context.rank());
  to_.resize(buddies.size());
  from_.resize(buddies.size());
  if (buddies[own] >= 0) to_[static_cast<size_t>(buddies[own])] = own_size_ = sizes[own];
  for (size_t rank = 0; rank < buddies.size(); ++rank) {
    if (buddies[rank] == context.rank()) from_[rank] = sizes[rank];
  }
  others_size_ = std::accumulate(from_.begin(), from_.end(), int64_t{0});
}

BuddyCopies::~BuddyCopies() {
  wait();
  context_.destroy_group(group_);
}

void BuddyCopies::start(std::span<const std::byte> own) {
  wait();
  if (has_failed_) return;
  check(static_cast<int64_t>(own.size()) >= own_size_, "a rank gives its buddy what it has said");
  std::span<std::byte> others;
  if (others_size_ > 0) {
    try {
      others = memory_.begin(static_cast<size_t>(others_size_));
    } catch (const IoError& error) {
      if (scratch_.empty()) log_warning("{}; this rank keeps nothing for others", error.what());
      scratch_.resize(static_cast<size_t>(others_size_));
      others = scratch_;
    }
  }
  worker_.start([this, from = own.data(), others] { exchange(from, others); });
}

void BuddyCopies::exchange(const std::byte* own, std::span<std::byte> others) {
  const int64_t begin = thread_cpu_ns();
  comm::Communicator& group = context_.group(group_);
  group.all_to_all(own, to_, others.data(), from_, DType::kU8, kCopies);
  if (!others.empty() && others.data() != scratch_.data()) memory_.commit();
  // Who has kept a step knows that all copies of the step before are there: so there is a step that all have.
  group.barrier(kCopies);
  cpu_ns_ += thread_cpu_ns() - begin;
}

void BuddyCopies::wait() {
  if (has_failed_) return;
  try {
    worker_.finish();
  } catch (const Error& error) {
    has_failed_ = true;
    const auto* recovery = context_.recovery();
    if (recovery != nullptr && recovery->has_failed()) return;
    log_warning("{}: what only this rank keeps is lost together with its launcher or its host", error.what());
  }
}

}  // namespace tessera::train
