// What a JobScheduler says of its job.
#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/cluster/rendezvous/membership/job_parts.h"
#include "tessera/cluster/rendezvous/membership/job_scheduler.h"

namespace tessera::cluster::rendezvous {
namespace {

constexpr size_t kMaxNamed = 8;

}  // namespace

void JobScheduler::take(Peer& peer, const AskStatus& /*message*/) {
  if (!may_be(peer.identity, PeerRole::kObserver)) return refuse(peer, "its certificate does not let it ask");
  tell(peer.id, status());
}

std::string JobScheduler::who_is_missing() const {
  std::vector<std::string> there, missing;
  for (const auto& [id, node] : nodes_) {
    const bool is_there = node.is_present();
    (is_there ? there : missing).push_back(is_there ? fmt::format("{} on {}", id, node.host) : id);
  }
  const auto name = [](std::vector<std::string> ids) {
    const size_t count = ids.size();
    if (count > kMaxNamed) ids.resize(kMaxNamed);
    return fmt::format("{}{}", fmt::join(ids, ", "),
                       count > kMaxNamed ? fmt::format(" and {} more", count - kMaxNamed) : "");
  };
  return fmt::format("{} of {} {} come{}{}", there.size(), plural(static_cast<int64_t>(num_wanted()), "worker"),
                     num_wanted() == 1 ? "has" : "have", there.empty() ? "" : ": " + name(there),
                     missing.empty() ? "" : "; not there: " + name(missing));
}

std::string JobScheduler::figures_of(const std::string& node_id) const {
  const auto found = nodes_.find(node_id);
  return found == nodes_.end() ? "" : found->second.figures;
}

JobStatus JobScheduler::status() const {
  const bool is_running = phase_ == JobPhase::kRunning;
  const size_t num_workers = is_running ? state_.num_ranks : num_wanted();
  const size_t num_there = num_present() - num_newcomers();
  JobStatus status{.phase = phase_,
                   .num_workers = static_cast<uint32_t>(num_workers),
                   .num_missing = static_cast<uint32_t>(num_workers - std::min(num_workers, num_there)),
                   .up_ms = static_cast<uint64_t>(now_ms() - started_ms_),
                   .reason = is_over() ? failure_ : stop_reason_,
                   .nodes = {},
                   .blobs = {}};
  for (const auto& [id, node] : nodes_) {
    const NodeState state = node.has_left         ? NodeState::kLeft
                            : node.is_lost        ? NodeState::kLost
                            : is_behind(node)     ? NodeState::kBehind
                            : node.is_connected() ? NodeState::kPresent
                                                  : NodeState::kSilent;
    status.nodes.push_back({.node_id = id,
                            .host = node.host,
                            .state = state,
                            .has_rank = node.rank.has_value(),
                            .rank = node.rank.value_or(0),
                            .is_started = node.is_started,
                            .is_server = node.is_server,
                            .heard_ms_ago = now_ms() - node.heard_ms,
                            .said = node.said});
  }
  for (const auto& [name, bytes] : state_.blobs) status.blobs.push_back({name, bytes.size()});
  return status;
}

}  // namespace tessera::cluster::rendezvous
