// How nodes come to a job and get their ranks.
#include <algorithm>
#include <iterator>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/cluster/rendezvous/membership/job_parts.h"
#include "tessera/cluster/rendezvous/membership/job_scheduler.h"
#include "tessera/cluster/rendezvous/membership/natural_order.h"

namespace tessera::cluster::rendezvous {

void JobScheduler::take(Peer& peer, const Register& message) {
  // A rank that began anew when the job failed must know whose failure it was, and one that lost the scheduler at the
  // end that it is the end.
  const auto is_of_job = [&](const std::string& id) { return nodes_.contains(id); };
  if (phase_ == JobPhase::kFailed ||
      (phase_ == JobPhase::kFinished && std::ranges::any_of(message.node_ids, is_of_job))) {
    return tell(peer.id, ended_, /*ends=*/true);
  }
  const std::vector<std::string> node_ids = without_dropped(message);
  if (std::string reason = why_not(peer, message, node_ids); !reason.empty()) return refuse(peer, reason);
  if (node_ids.empty()) {
    return tell(peer.id,
                Fenced{is_ending() ? "the job ends: its ranks save what they have kept"
                                   : fmt::format("the job goes on without node {}", message.node_ids.front())},
                /*ends=*/true);
  }
  for (const std::string& id : node_ids) {
    const auto found = nodes_.find(id);
    if (found == nodes_.end()) continue;
    const Node& node = found->second;
    const Incarnation incarnation = node.incarnation_of(message);
    const bool is_older_process =
        incarnation == Incarnation::kSame && message.role == PeerRole::kWorker && message.started_ns < node.started_ns;
    if (incarnation == Incarnation::kOlder || is_older_process) {
      return tell(peer.id, Fenced{fmt::format("a newer process is node {} now", id)}, /*ends=*/true);
    }
  }
  const auto is_new = [&](const std::string& id) { return !nodes_.contains(id); };
  drop_lost_for(static_cast<size_t>(std::ranges::count_if(node_ids, is_new)));
  // A launcher's nodes have one token.
  const auto& of_first = nodes_[node_ids.front()];
  const bool is_known = of_first.token != 0 && of_first.incarnation_of(message) == Incarnation::kSame;
  const uint64_t token = is_known ? of_first.token : ++state_.last_token;
  for (const std::string& id : node_ids) {
    attach(peer, id, message);
    nodes_[id].token = token;
    if (is_over()) return tell(peer.id, ended_, /*ends=*/true);
    std::erase_if(state_.dropped, [&](const DroppedNode& node) { return node.node_id == id; });
  }
  peer.role = message.role;
  peer.node_ids = message.node_ids;
  tell(peer.id, Welcome{.token = token,
                        .heartbeat_ms = static_cast<uint32_t>(options_.heartbeat_ms),
                        .timeout_ms = static_cast<uint32_t>(options_.node_timeout_ms),
                        .max_restarts = static_cast<uint64_t>(options_.max_restarts),
                        .min_ranks = static_cast<uint32_t>(options_.min_ranks),
                        .is_newcomer = is_newcomer(nodes_[node_ids.front()]),
                        .is_spare = options_.spares > 0 && is_newcomer(nodes_[node_ids.front()]) &&
                                    state_.num_ranks >= most_ranks(),
                        .wants_figures = options_.wants_figures,
                        .keeps_state = options_.keeps_state});
  if (message.role == PeerRole::kWorker && is_of_ended_generation(peer)) {
    return tell(peer.id, GenerationEnded{message.node_ids.front(), rank_of(message.node_ids.front()), /*is_lost=*/false,
                                         /*ends_by_itself=*/false, state_.num_losses,
                                         "it ended while this process was not connected"});
  }
  // Between two generations, too: an older process of a node, or of another host, is known by who has come since.
  if (state_.generation > 0) record();
  if (phase_ == JobPhase::kRunning) {
    tell_ranks(peer, is_one_host());
    if (is_newcomer(nodes_[node_ids.front()])) tell_workers();
  } else if (is_complete()) {
    begin_generation();
  }
}

// Why a peer may not register so; "" where it may.
std::string JobScheduler::why_not(const Peer& peer, const Register& message,
                                  const std::vector<std::string>& node_ids) const {
  if (is_over()) return "the job is over";
  if (message.role == PeerRole::kObserver) return "an observer has no node";
  if (!may_be(peer.identity, message.role)) {
    return fmt::format("its certificate is of role {}, which is no {}", name_of(peer.identity.role),
                       name_of(message.role));
  }
  if (message.node_ids.empty() || (message.role == PeerRole::kWorker && message.node_ids.size() != 1)) {
    return "a worker has one node, a launcher one or more";
  }
  if (message.num_servers > message.node_ids.size()) return "it has more servers than nodes";
  if (message.num_servers > 0 && options_.is_elastic()) {
    return "ranks that keep parameters are of jobs whose number of ranks stays: start the scheduler without "
           "--min_ranks and --spares";
  }
  if (message.num_workers != 0 && message.num_workers != state_.num_workers) {
    return fmt::format("the job has {}, this peer says {}", plural(state_.num_workers, "worker"), message.num_workers);
  }
  if (peer.role && (peer.role != message.role || peer.node_ids != message.node_ids)) {
    return "it has registered other nodes before";
  }
  const std::set<std::string> ids(message.node_ids.begin(), message.node_ids.end());
  if (ids.size() != message.node_ids.size()) return "it registers a node twice";
  size_t num_new = 0;
  for (const std::string& id : node_ids) {
    if (!peer.identity.may_be_node(id)) return fmt::format("its certificate does not name node {}", id);
    const auto found = nodes_.find(id);
    if (found == nodes_.end()) {
      ++num_new;
      continue;
    }
    const Node& node = found->second;
    if (node.incarnation_of(message) != Incarnation::kNewer) continue;
    if (node.has_left) return fmt::format("node {} has left the job", id);
    const bool may_fail = options_.recovers() && state_.num_losses < static_cast<uint64_t>(options_.max_restarts);
    if (phase_ == JobPhase::kRunning && node.rank && !may_fail) {
      return fmt::format("node {} takes part in the job already{}", id,
                         options_.recovers() ? ", which has no restarts left" : "");
    }
  }
  if (num_new > 0 && is_ending()) return "the job ends: its ranks save what they have kept";
  const auto num_lost = std::ranges::count_if(nodes_, [](const auto& entry) { return entry.second.is_lost; });
  const size_t places = num_places() + static_cast<size_t>(num_lost) - std::min(nodes_.size(), num_places());
  if (num_new > places) {
    return fmt::format(
        "the job has {}{}, and {}", may_resize() ? "up to " : "", plural(static_cast<int64_t>(num_places()), "worker"),
        places == 0 ? "all places are taken"
                    : fmt::format("{} {} free, of {} that are asked for", places, places == 1 ? "is" : "are", num_new));
  }
  // A launcher's nodes get ranks together.
  const size_t taken = std::max<size_t>(nodes_.size(), state_.num_ranks);
  const size_t num_free = most_ranks() - std::min(most_ranks(), taken);
  if (options_.spares > 0 && num_new > 1 && num_new > num_free) {
    return fmt::format(
        "it brings {} workers, and the job has room for {}: start each spare by a launcher of its own, `tessera run "
        "--join ... -n 1`",
        num_new, num_free);
  }
  if (num_new > 0 && is_other_program(message)) {
    return "a spare takes the place of a rank, and must be started as the job's ranks were: its program or its "
           "arguments are none of theirs. What differs from host to host, as a path, may be an environment variable";
  }
  return "";
}

// Of a spare: whether none of the job's ranks was started so, as far as that is known of all of them.
bool JobScheduler::is_other_program(const Register& message) const {
  if (options_.spares == 0 || state_.generation == 0 || message.program == 0) return false;
  return std::ranges::all_of(nodes_, [&](const auto& entry) {
    const Node& node = entry.second;
    return !node.rank || (node.program != 0 && node.program != message.program);
  });
}

// Makes room where nodes that were lost still have their places.
void JobScheduler::drop_lost_for(size_t num_new) {
  if (may_resize() && state_.generation > 0) return replace_lost(num_new);
  for (auto node = nodes_.begin(); node != nodes_.end();) {
    const bool is_full = nodes_.size() + num_new > num_places();
    node = is_full && node->second.is_lost ? nodes_.erase(node) : std::next(node);
  }
}

// Whether the peer still works in a generation that is over.
bool JobScheduler::is_of_ended_generation(const Peer& peer) const {
  return peer.generation != 0 && (phase_ != JobPhase::kRunning || peer.generation < state_.generation);
}

// Gives the node to the peer. Whoever has it as an older incarnation, or as an older process of this one, is fenced.
void JobScheduler::attach(Peer& peer, const std::string& id, const Register& message) {
  Node& node = nodes_[id];
  if (!node.rank) {
    const auto place = std::ranges::find(message.node_ids, id) - message.node_ids.begin();
    node.is_server = place < static_cast<int64_t>(message.num_servers);
  }
  if (node.incarnation_of(message) != Incarnation::kSame) {
    const std::string reason = fmt::format("a newer process is node {} now", id);
    for (const PeerId old : {node.worker, node.launcher}) {
      if (old != 0 && old != peer.id) fence(old, reason);
    }
    if (phase_ == JobPhase::kRunning && node.rank) {
      if (is_ending()) return go_on_ending(id, "a newer process has taken its place");
      if (!count_loss()) return end_job(/*failed=*/true, id, "a newer process has taken its place");
      end_generation(id, /*is_lost=*/false, "a newer process has taken its place");
    }
    node.worker = node.launcher = 0;
    node.is_started = false;
    node.started_ns = 0;
    node.said = {};
    node.figures.clear();
    node.unsaved_for.reset();
  } else if (message.role == PeerRole::kWorker && node.started_ns != 0 && message.started_ns > node.started_ns) {
    if (const PeerId old = std::exchange(node.worker, 0); old != 0 && old != peer.id)
      fence(old, "its process has begun anew");
    node.said = {};
    node.figures.clear();
    node.unsaved_for.reset();
    if (phase_ == JobPhase::kRunning && node.rank && is_ending()) {
      return go_on_ending(id, "its process has begun anew");
    }
    if (phase_ == JobPhase::kRunning && node.rank) {
      // Newcomers are taken in so, also where they have died meanwhile.
      has_ended_by_itself_ = !state_.has_told_of_newcomers;
      const size_t count = num_newcomers();
      if (count == 0) {
        end_generation(id, /*is_lost=*/false, "its process has begun anew");
      } else {
        const auto reason = fmt::format("{} more rank{} taken in", count, count == 1 ? " is" : "s are");
        end_generation("", /*is_lost=*/false, reason);
      }
    }
  }
  PeerId& place = message.role == PeerRole::kWorker ? node.worker : node.launcher;
  // The same process has connected anew, before its old connection was seen to end.
  if (place != 0 && place != peer.id) {
    const PeerId old = std::exchange(place, 0);
    if (const auto found = peers_.find(old); found != peers_.end()) refuse(found->second, "it has connected anew");
  }
  place = peer.id;
  if (message.role == PeerRole::kWorker) {
    node.idle_since_ms.reset();
    node.is_started = true;
    node.is_taken_in = false;
    node.started_ns = message.started_ns;
  }
  node.host = message.host;
  node.address = peer.identity.address;
  node.incarnation = message.incarnation;
  if (message.role == PeerRole::kLauncher) node.program = message.program;
  node.clock_id = message.clock_id;
  // A launcher is ready for nodes that it will start; a process that has started is for itself.
  if (message.role == PeerRole::kWorker ? !is_of_ended_generation(peer) : !node.is_started) {
    node.is_ready = true;
    node.is_lost = node.is_end_awaited = false;
  }
  node.heard_ms = now_ms();
  node.deadline_ms = now_ms() + options_.node_timeout_ms;
}

void JobScheduler::fence(PeerId id, const std::string& reason) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  for (const std::string& node_id : found->second.node_ids) {
    const auto node = nodes_.find(node_id);
    if (node == nodes_.end()) continue;
    if (node->second.worker == id) node->second.worker = 0;
    if (node->second.launcher == id) node->second.launcher = 0;
  }
  tell(id, Fenced{reason}, /*ends=*/true);
}

size_t JobScheduler::num_present() const {
  return static_cast<size_t>(
      std::ranges::count_if(nodes_, [](const auto& entry) { return entry.second.is_present(); }));
}

void JobScheduler::begin_generation() {
  // Ranks whose generation ended by themselves would begin anew for ever where some do not reach each other.
  if (has_ended_by_itself_ && !count_loss()) {
    return end_job(
        /*failed=*/true, "",
        fmt::format("generation {} has ended, though no node of it was lost, as one of {} that have ended: do "
                    "all hosts reach each other? (`tessera cluster check`)",
                    state_.generation, state_.num_losses));
  }
  has_ended_by_itself_ = state_.has_told_of_newcomers = false;
  const std::set<std::string> members = next_members();
  const bool is_other_set = members.size() != state_.num_ranks ||
                            (options_.spares == 0 &&
                             std::ranges::any_of(members, [&](const std::string& id) { return !nodes_.at(id).rank; }));
  for (const std::string& id : members) {
    Node& node = nodes_.at(id);
    node.is_taken_in = node.is_taken_in || (state_.generation > 0 && !node.rank && !node.is_started);
    if ((may_resize() || is_ending()) && is_other_set) node.rank.reset();
  }
  give_ranks(members);
  values_.clear();
  ++state_.generation;
  state_.num_ranks = static_cast<uint32_t>(members.size());
  if (state_.num_first_ranks == 0) state_.num_first_ranks = state_.num_ranks;
  phase_ = JobPhase::kRunning;
  record();
  std::set<std::string> hosts;
  for (const std::string& id : members) hosts.insert(nodes_.at(id).host);
  news_.push_back(fmt::format("generation {} begins: {} rank{} at {} host{}", state_.generation, members.size(),
                              members.size() == 1 ? "" : "s", hosts.size(), hosts.size() == 1 ? "" : "s"));
  const bool one_host = is_one_host();
  for (auto& [id, peer] : peers_) {
    if (peer.role) tell_ranks(peer, one_host);
  }
}

// Those that have none get the least that are free, servers before workers, in the order of hosts and node ids.
void JobScheduler::give_ranks(const std::set<std::string>& members) {
  std::vector<bool> is_taken(members.size());
  struct Place {
    bool is_server = false;
    std::string host;
    std::string id;
  };
  std::vector<Place> without;
  for (const std::string& id : members) {
    const Node& node = nodes_.at(id);
    if (node.rank) {
      is_taken[*node.rank] = true;
    } else {
      without.push_back({node.is_server, node.host, id});
    }
  }
  std::ranges::sort(without, [](const Place& a, const Place& b) {
    if (a.is_server != b.is_server) return a.is_server;
    return a.host != b.host ? is_before(a.host, b.host) : is_before(a.id, b.id);
  });
  uint32_t rank = 0;
  for (const Place& place : without) {
    while (is_taken[rank]) ++rank;
    nodes_[place.id].rank = rank++;
  }
}

bool JobScheduler::is_one_host() const {
  const Node& first = nodes_.begin()->second;
  return std::ranges::all_of(nodes_, [&](const auto& entry) {
    const Node& node = entry.second;
    // After a restart a node has no address until it has connected again.
    const bool is_known = !node.address.empty() && !first.address.empty();
    return node.host == first.host && (!is_known || node.address == first.address);
  });
}

void JobScheduler::tell_ranks(Peer& peer, bool is_one_host) {
  Assigned assigned{.size = state_.num_ranks, .is_one_host = is_one_host, .nodes = {}, .last_reason = last_reason_};
  for (const std::string& id : peer.node_ids) {
    const auto found = nodes_.find(id);
    const bool has_rank = found != nodes_.end() && found->second.rank;
    if (!has_rank && !options_.is_elastic() && !is_ending()) return;
    if (has_rank) assigned.nodes.push_back({id, *found->second.rank});
  }
  if (assigned.nodes.empty()) return;
  assigned.num_servers =
      static_cast<uint32_t>(std::ranges::count_if(nodes_, [](const auto& entry) { return entry.second.is_server; }));
  tell(peer.id, std::move(assigned));
}

}  // namespace tessera::cluster::rendezvous
