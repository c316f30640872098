// What a JobScheduler keeps for its peers: values of a generation, and states of the job.
#include <memory>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/cluster/rendezvous/membership/job_parts.h"
#include "tessera/cluster/rendezvous/membership/job_scheduler.h"

namespace tessera::cluster::rendezvous {

void JobScheduler::take(Peer& peer, const SetValue& message) {
  auto value = std::make_shared<const std::string>(message.value);
  if (const std::string why = values_.set(peer.node_ids.front(), message.name, std::move(value)); !why.empty()) {
    return refuse(peer, why);
  }
  for (const PeerId id : values_.take_waiters(message.name)) tell(id, ValueAnswer{message.name, message.value});
}

void JobScheduler::take(Peer& peer, const GetValue& message) {
  if (const auto found = values_.find(message.name)) return tell(peer.id, ValueAnswer{message.name, *found});
  if (const std::string why = values_.wait(peer.id, message.name); !why.empty()) refuse(peer, why);
}

void JobScheduler::take(Peer& peer, const ForgetValue& message) { values_.forget(peer.node_ids.front(), message.name); }

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

}  // namespace tessera::cluster::rendezvous
