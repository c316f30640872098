// What a JobScheduler keeps for its peers: values of a generation, and states of the job.
#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/cluster/rendezvous/membership/job_parts.h"
#include "tessera/cluster/rendezvous/membership/job_scheduler.h"

namespace tessera::cluster::rendezvous {

void JobScheduler::take(Peer& peer, const SetValue& message) {
  const std::string& owner = peer.node_ids.front();
  const auto found = values_.find(message.name);
  if (found != values_.end() && found->second.owner != owner) {
    return refuse(peer, fmt::format("the value \"{}\" is another node's", message.name));
  }
  const auto cost = [&](const std::string& value) { return message.name.size() + value.size() + quotas_.entry_bytes; };
  const size_t before = found == values_.end() ? 0 : cost(found->second.value);
  const size_t after = cost(message.value);
  size_t& own_bytes = stored_of_[owner];
  if (own_bytes - before + after > quotas_.stored_bytes_of_peer) {
    return refuse(peer, fmt::format("its values have more than {} bytes", quotas_.stored_bytes_of_peer));
  }
  if (stored_bytes_ - before + after > quotas_.stored_bytes) {
    return refuse(peer, fmt::format("the job's values have more than {} bytes", quotas_.stored_bytes));
  }
  own_bytes += after - before;
  stored_bytes_ += after - before;
  values_[message.name] = {message.value, owner};
  const auto waiting = wanted_.find(message.name);
  if (waiting == wanted_.end()) return;
  for (const PeerId id : waiting->second) {
    --peers_.at(id).num_wanted;
    tell(id, ValueAnswer{message.name, message.value});
  }
  wanted_.erase(waiting);
}

void JobScheduler::take(Peer& peer, const GetValue& message) {
  if (const auto found = values_.find(message.name); found != values_.end()) {
    return tell(peer.id, ValueAnswer{message.name, found->second.value});
  }
  const auto waiting = wanted_.find(message.name);
  if (waiting != wanted_.end() && waiting->second.contains(peer.id)) return;
  if (peer.num_wanted >= quotas_.wanted_names_of_peer) {
    return refuse(peer, fmt::format("it waits for more than {} values", quotas_.wanted_names_of_peer));
  }
  wanted_[message.name].insert(peer.id);
  ++peer.num_wanted;
}

void JobScheduler::take(Peer& peer, const SetBlob& message) {
  const BlobRules* rules = find_blob_rules(message.name);
  if (rules == nullptr || message.bytes.size() > rules->max_bytes) {
    return refuse(peer, rules == nullptr ? "the job has no state of that name"
                                         : fmt::format("the job's state \"{}\" has at most {} bytes", rules->name,
                                                       rules->max_bytes));
  }
  const auto [blob, is_new] = state_.blobs.emplace(message.name, message.bytes);
  const bool is_changed = blob->second != message.bytes;
  if (is_changed) blob->second = message.bytes;
  is_dirty_ = is_dirty_ || is_new || is_changed;
  tell(peer.id, BlobAnswer{message.name, true, state_.blobs.at(message.name)});
}

void JobScheduler::take(Peer& peer, const GetBlob& message) {
  if (find_blob_rules(message.name) == nullptr) return refuse(peer, "the job has no state of that name");
  const auto found = state_.blobs.find(message.name);
  const bool is_there = found != state_.blobs.end();
  tell(peer.id, BlobAnswer{message.name, is_there, is_there ? found->second : std::string()});
}

void JobScheduler::forget_values() {
  values_.clear();
  stored_of_.clear();
  stored_bytes_ = 0;
  wanted_.clear();
  for (auto& [id, peer] : peers_) peer.num_wanted = 0;
}

}  // namespace tessera::cluster::rendezvous
