#include "tessera/cluster/hub/stored_values.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace tessera::cluster {

std::string StoredValues::set(const std::string& owner, const std::string& name, Value value) {
  const auto found = values_.find(name);
  if (found != values_.end() && found->second.owner != owner) return "it sets a value that another one has set";
  const size_t before = found == values_.end() ? 0 : cost_of(name, found->second.value);
  const size_t after = cost_of(name, value);
  size_t& own_bytes = bytes_of_[owner];
  if (own_bytes - before + after > quotas_.stored_bytes_of_peer) {
    return fmt::format("its values have more than {} bytes", quotas_.stored_bytes_of_peer);
  }
  if (bytes_ - before + after > quotas_.stored_bytes) {
    return fmt::format("the job's values have more than {} bytes", quotas_.stored_bytes);
  }
  values_[name] = {std::move(value), owner};
  own_bytes += after - before;
  bytes_ += after - before;
  return "";
}

void StoredValues::forget(const std::string& owner, const std::string& name) {
  const auto found = values_.find(name);
  if (found == values_.end() || found->second.owner != owner) return;
  const size_t cost = cost_of(name, found->second.value);
  bytes_of_[owner] -= cost;
  bytes_ -= cost;
  values_.erase(found);
}

StoredValues::Value StoredValues::find(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : found->second.value;
}

std::string StoredValues::wait(uint64_t waiter, const std::string& name) {
  const auto found = waiters_.find(name);
  if (found != waiters_.end() && found->second.contains(waiter)) return "";
  size_t& num_wanted = num_wanted_[waiter];
  if (num_wanted >= quotas_.wanted_names_of_peer) {
    return fmt::format("it waits for more than {} values", quotas_.wanted_names_of_peer);
  }
  waiters_[name].insert(waiter);
  ++num_wanted;
  return "";
}

std::set<uint64_t> StoredValues::take_waiters(const std::string& name) {
  const auto found = waiters_.find(name);
  if (found == waiters_.end()) return {};
  std::set<uint64_t> waiters = std::move(found->second);
  waiters_.erase(found);
  for (const uint64_t waiter : waiters) --num_wanted_[waiter];
  return waiters;
}

void StoredValues::remove_waiter(uint64_t waiter) {
  if (num_wanted_.erase(waiter) == 0) return;
  for (auto wanted = waiters_.begin(); wanted != waiters_.end();) {
    wanted->second.erase(waiter);
    wanted = wanted->second.empty() ? waiters_.erase(wanted) : std::next(wanted);
  }
}

void StoredValues::clear() {
  values_.clear();
  bytes_of_.clear();
  bytes_ = 0;
  waiters_.clear();
  num_wanted_.clear();
}

}  // namespace tessera::cluster
