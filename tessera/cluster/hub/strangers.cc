#include "tessera/cluster/hub/strangers.h"

#include <sys/resource.h>

#include <algorithm>

namespace tessera::cluster {
namespace {

constexpr size_t kMostStrangersAtOnce = 256;
constexpr size_t kFewestStrangersAtOnce = 16;

size_t num_descriptors() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

}  // namespace

Strangers::Strangers(const StrangerLimits& limits) : limits_(limits) {
  if (limits_.most == 0) {
    limits_.most = std::clamp(num_descriptors() / 4, kFewestStrangersAtOnce, kMostStrangersAtOnce);
  }
  if (limits_.most_of_address == 0) limits_.most_of_address = std::max<size_t>(limits_.most / 2, 1);
}

bool Strangers::has_room(int64_t now_ms) const {
  // They are in the order of their coming: the first one is the oldest.
  return since_.size() < limits_.most || now_ms - since_.begin()->second.since_ms >= limits_.grace_ms;
}

std::optional<uint64_t> Strangers::add(uint64_t id, const std::string& address, int64_t now_ms) {
  const std::optional<uint64_t> gone = choose_to_go(address);
  since_.emplace(id, Entry{address, now_ms});
  ++of_address_[address];
  return gone;
}

// Of an address that has its share one by chance, as a flood would displace the oldest on purpose; else the oldest.
std::optional<uint64_t> Strangers::choose_to_go(const std::string& address) {
  const auto share = of_address_.find(address);
  if (share != of_address_.end() && share->second >= limits_.most_of_address) {
    size_t skip = std::uniform_int_distribution<size_t>(0, share->second - 1)(draws_);
    for (const auto& [id, entry] : since_) {
      if (entry.address == address && skip-- == 0) return id;
    }
  }
  if (since_.size() < limits_.most || since_.empty()) return std::nullopt;
  return since_.begin()->first;
}

bool Strangers::remove(uint64_t id) {
  const auto found = since_.find(id);
  if (found == since_.end()) return false;
  const auto share = of_address_.find(found->second.address);
  if (--share->second == 0) of_address_.erase(share);
  since_.erase(found);
  return true;
}

std::vector<uint64_t> Strangers::overdue(int64_t now_ms) const {
  std::vector<uint64_t> ids;
  for (const auto& [id, entry] : since_) {
    if (now_ms - entry.since_ms >= limits_.deadline_ms) ids.push_back(id);
  }
  return ids;
}

}  // namespace tessera::cluster
