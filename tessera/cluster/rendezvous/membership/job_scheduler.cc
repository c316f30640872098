#include "tessera/cluster/rendezvous/membership/job_scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/cluster/rendezvous/membership/job_parts.h"
#include "tessera/cluster/rendezvous/membership/natural_order.h"

namespace tessera::cluster::rendezvous {
namespace {

// A scheduler that was stopped for so long has heard nobody meanwhile, which is nobody's silence.
constexpr int64_t kOwnPauseMs = 1000;

}  // namespace

JobScheduler::JobScheduler(const SchedulerOptions& options, Clock& clock, const SchedulerState& saved,
                           const Quotas& quotas)
    : options_(options), quotas_(quotas), clock_(clock), state_(saved) {
  const auto num_workers = static_cast<uint32_t>(options.num_workers);
  if (saved.num_workers != 0 && saved.num_workers != num_workers) {
    throw InvalidArgument("the scheduler's state is of a job with {} workers, this one has {}", saved.num_workers,
                          num_workers);
  }
  state_.num_workers = num_workers;
  started_ms_ = waiting_since_ms_ = ticked_ms_ = now_ms();
  for (const SavedNode& node : saved.nodes) {
    nodes_[node.node_id] = {.host = node.host,
                            .incarnation = node.incarnation,
                            .token = node.token,
                            .rank = node.rank,
                            .is_ready = saved.is_running,
                            .has_left = node.has_left,
                            .heard_ms = started_ms_,
                            .deadline_ms = started_ms_ + options_.node_timeout_ms};
  }
  if (saved.is_running) phase_ = JobPhase::kRunning;
}

JobScheduler::~JobScheduler() = default;

void JobScheduler::connect(PeerId peer, const PeerIdentity& identity) {
  peers_[peer] = {.id = peer, .identity = identity, .role = std::nullopt, .node_ids = {}};
}

void JobScheduler::receive(PeerId id, uint64_t generation, const Message& message) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  if (generation > state_.generation)
    return refuse(peer,
                  "it speaks of a generation that has not begun here: was the scheduler started without its state?");
  const bool may_come_first = std::holds_alternative<Register>(message) || std::holds_alternative<AskStatus>(message);
  if (!peer.role && !may_come_first) return refuse(peer, "it has not registered");
  // Values belong to a generation. What was on its way when one ended is of no use.
  const bool is_of_generation = std::holds_alternative<SetValue>(message) || std::holds_alternative<GetValue>(message);
  if (is_of_generation && (generation < state_.generation || phase_ != JobPhase::kRunning)) return;
  std::visit([&](const auto& body) { take(peer, body); }, message);
}

template <typename OfScheduler>
void JobScheduler::take(Peer& peer, const OfScheduler& /*message*/) {
  refuse(peer, "it says what only a scheduler says");
}

void JobScheduler::take(Peer& peer, const Register& message) {
  if (std::string reason = why_not(peer, message); !reason.empty()) return refuse(peer, reason);
  for (const std::string& id : message.node_ids) {
    const auto found = nodes_.find(id);
    if (found != nodes_.end() && message.token != 0 && message.incarnation != found->second.incarnation) {
      return tell(peer.id, Fenced{fmt::format("a newer process is node {} now", id)}, /*ends=*/true);
    }
  }
  const auto is_new = [&](const std::string& id) { return !nodes_.contains(id); };
  drop_lost_for(static_cast<size_t>(std::ranges::count_if(message.node_ids, is_new)));
  // A launcher's nodes have one token.
  const auto& of_first = nodes_[message.node_ids.front()];
  const bool is_known = of_first.token != 0 && of_first.incarnation == message.incarnation;
  const uint64_t token = is_known ? of_first.token : ++state_.last_token;
  for (const std::string& id : message.node_ids) {
    attach(peer, id, message);
    nodes_[id].token = token;
  }
  peer.role = message.role;
  peer.node_ids = message.node_ids;
  tell(peer.id, Welcome{.token = token,
                        .heartbeat_ms = static_cast<uint32_t>(options_.heartbeat_ms),
                        .timeout_ms = static_cast<uint32_t>(options_.node_timeout_ms)});
  if (phase_ == JobPhase::kRunning) {
    record();
    tell_ranks(peer, is_one_host());
  } else if (num_present() == static_cast<size_t>(options_.num_workers)) {
    begin_generation();
  }
}

// Why a peer may not register so; "" where it may.
std::string JobScheduler::why_not(const Peer& peer, const Register& message) const {
  if (is_over()) return "the job is over";
  if (message.role == PeerRole::kObserver) return "an observer has no node";
  if (!may_be(peer.identity, message.role)) {
    return fmt::format("its certificate is of role {}, which is no {}", name_of(peer.identity.role),
                       name_of(message.role));
  }
  if (message.node_ids.empty() || (message.role == PeerRole::kWorker && message.node_ids.size() != 1)) {
    return "a worker has one node, a launcher one or more";
  }
  if (message.num_workers != 0 && message.num_workers != state_.num_workers) {
    return fmt::format("the job has {} workers, this peer says {}", state_.num_workers, message.num_workers);
  }
  if (peer.role && (peer.role != message.role || peer.node_ids != message.node_ids)) {
    return "it has registered other nodes before";
  }
  const std::set<std::string> ids(message.node_ids.begin(), message.node_ids.end());
  if (ids.size() != message.node_ids.size()) return "it registers a node twice";
  size_t num_new = 0;
  for (const std::string& id : ids) {
    if (!peer.identity.may_be_node(id)) return fmt::format("its certificate does not name node {}", id);
    const auto found = nodes_.find(id);
    if (found == nodes_.end()) {
      ++num_new;
      continue;
    }
    const Node& node = found->second;
    if (node.incarnation == message.incarnation || message.token != 0) continue;
    if (node.has_left) return fmt::format("node {} has left the job", id);
    if (phase_ == JobPhase::kRunning && !options_.recovers) {
      return fmt::format("node {} takes part in the job already", id);
    }
  }
  const auto num_lost = std::ranges::count_if(nodes_, [](const auto& entry) { return entry.second.is_lost; });
  const size_t places = static_cast<size_t>(options_.num_workers) - nodes_.size() + static_cast<size_t>(num_lost);
  if (num_new > places) {
    return fmt::format(
        "the job has {} workers, and {}", options_.num_workers,
        places == 0 ? "all places are taken" : fmt::format("{} are free, of {} that are asked for", places, num_new));
  }
  return "";
}

// Makes room where nodes that were lost still have their places.
void JobScheduler::drop_lost_for(size_t num_new) {
  for (auto node = nodes_.begin(); node != nodes_.end();) {
    const bool is_full = nodes_.size() + num_new > static_cast<size_t>(options_.num_workers);
    node = is_full && node->second.is_lost ? nodes_.erase(node) : std::next(node);
  }
}

// Gives the node to the peer. Whoever has it as an older incarnation is fenced.
void JobScheduler::attach(Peer& peer, const std::string& id, const Register& message) {
  Node& node = nodes_[id];
  const bool is_other = node.incarnation != message.incarnation;
  if (is_other) {
    const std::string reason = fmt::format("a newer process is node {} now", id);
    for (const PeerId old : {node.worker, node.launcher}) {
      if (old != 0 && old != peer.id) fence(old, reason);
    }
    if (phase_ == JobPhase::kRunning && node.rank) end_generation(id, "a newer process has taken its place");
    node.worker = node.launcher = 0;
    node.is_started = false;
    node.step = 0;
  }
  PeerId& place = message.role == PeerRole::kWorker ? node.worker : node.launcher;
  // The same process has connected anew, before its old connection was seen to end.
  if (place != 0 && place != peer.id) {
    const PeerId old = std::exchange(place, 0);
    if (const auto found = peers_.find(old); found != peers_.end()) refuse(found->second, "it has connected anew");
  }
  place = peer.id;
  node.is_started = node.is_started || message.role == PeerRole::kWorker;
  node.host = message.host;
  node.address = peer.identity.address;
  node.incarnation = message.incarnation;
  node.is_ready = true;
  node.is_lost = false;
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
  give_ranks();
  forget_values();
  ++state_.generation;
  phase_ = JobPhase::kRunning;
  record();
  const bool one_host = is_one_host();
  for (auto& [id, peer] : peers_) {
    if (peer.role) tell_ranks(peer, one_host);
  }
}

// Those that have none get the least that are free, in the order of hosts and node ids.
void JobScheduler::give_ranks() {
  std::vector<bool> is_taken(static_cast<size_t>(options_.num_workers));
  std::vector<std::pair<std::string, std::string>> without;  // host and node id
  for (const auto& [id, node] : nodes_) {
    if (node.rank) {
      is_taken[*node.rank] = true;
    } else {
      without.emplace_back(node.host, id);
    }
  }
  std::ranges::sort(without, [](const auto& a, const auto& b) {
    return a.first != b.first ? is_before(a.first, b.first) : is_before(a.second, b.second);
  });
  uint32_t rank = 0;
  for (const auto& [host, id] : without) {
    while (is_taken[rank]) ++rank;
    nodes_[id].rank = rank++;
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
  Assigned assigned{.size = state_.num_workers, .is_one_host = is_one_host, .nodes = {}};
  for (const std::string& id : peer.node_ids) {
    const auto found = nodes_.find(id);
    if (found == nodes_.end() || !found->second.rank) return;
    assigned.nodes.push_back({id, *found->second.rank});
  }
  tell(peer.id, std::move(assigned));
}

void JobScheduler::take(Peer& peer, const Heartbeat& message) {
  for (const std::string& id : peer.node_ids) {
    const auto found = nodes_.find(id);
    if (found == nodes_.end()) continue;
    Node& node = found->second;
    // A launcher lives for those of its nodes that have not started.
    const bool is_heard = node.worker == peer.id || (node.launcher == peer.id && !node.is_started);
    if (!is_heard) continue;
    node.heard_ms = now_ms();
    node.deadline_ms = now_ms() + options_.node_timeout_ms;
    if (node.worker == peer.id) node.step = message.step;
  }
  tell(peer.id, HeartbeatAnswer{});
}

void JobScheduler::take(Peer& peer, const Leave& message) {
  const auto found = nodes_.find(message.node_id);
  const bool is_own = std::ranges::find(peer.node_ids, message.node_id) != peer.node_ids.end();
  if (found == nodes_.end() || !is_own || !may_speak_for(peer, found->second)) {
    return refuse(peer, "it speaks for a node that is not its own");
  }
  Node& node = found->second;
  if (node.has_left) return;
  if (message.failed || phase_ == JobPhase::kWaiting) {
    return lose(node, message.reason.empty() ? "it has left before the job began" : message.reason);
  }
  node.has_left = true;
  record();
  const bool all_left = std::ranges::all_of(nodes_, [](const auto& entry) { return entry.second.has_left; });
  if (all_left) end_job(/*failed=*/false, "", "");
}

bool JobScheduler::may_speak_for(const Peer& peer, const Node& node) const {
  return node.worker == peer.id || node.launcher == peer.id;
}

void JobScheduler::disconnect(PeerId id) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  for (const std::string& node_id : found->second.node_ids) {
    const auto entry = nodes_.find(node_id);
    if (entry == nodes_.end()) continue;
    Node& node = entry->second;
    if (node.worker != id && node.launcher != id) continue;
    if (node.worker == id) node.worker = 0;
    if (node.launcher == id) node.launcher = 0;
    if (!node.is_connected()) node.deadline_ms = std::min(node.deadline_ms, now_ms() + options_.reconnect_ms);
  }
  for (auto wanted = wanted_.begin(); wanted != wanted_.end();) {
    wanted->second.erase(id);
    wanted = wanted->second.empty() ? wanted_.erase(wanted) : std::next(wanted);
  }
  peers_.erase(found);
}

void JobScheduler::tick() {
  const int64_t now = now_ms();
  const int64_t pause = now - std::exchange(ticked_ms_, now);
  if (pause > kOwnPauseMs) {
    for (auto& [id, node] : nodes_) node.deadline_ms += pause;
    waiting_since_ms_ += pause;
    return;
  }
  std::vector<std::string> silent;
  for (const auto& [id, node] : nodes_) {
    if (!node.has_left && !node.is_lost && now >= node.deadline_ms) silent.push_back(id);
  }
  for (const std::string& id : silent) {
    const auto found = nodes_.find(id);
    if (is_over() || found == nodes_.end()) return;
    const int64_t silent_ms = now - found->second.heard_ms;
    lose(found->second,
         found->second.is_connected()
             ? fmt::format("it has said nothing for {} ms", silent_ms)
             : fmt::format("its connection has ended and it has not come back; it was heard {} ms ago", silent_ms));
  }
  if (phase_ == JobPhase::kWaiting && now - waiting_since_ms_ >= options_.join_timeout_ms) {
    end_job(/*failed=*/true, "", fmt::format("{} within {} ms", who_is_missing(), options_.join_timeout_ms));
  }
}

void JobScheduler::lose(Node& node, const std::string& reason) {
  const auto entry = std::ranges::find_if(nodes_, [&](const auto& other) { return &other.second == &node; });
  const std::string id = entry->first;
  node.is_lost = true;
  node.is_ready = false;
  if (phase_ == JobPhase::kRunning) {
    if (!options_.recovers) return end_job(/*failed=*/true, id, reason);
    return end_generation(id, reason);
  }
  if (!node.rank) nodes_.erase(entry);
}

void JobScheduler::end_generation(const std::string& node_id, const std::string& reason) {
  phase_ = JobPhase::kWaiting;
  waiting_since_ms_ = now_ms();
  forget_values();
  for (auto& [id, node] : nodes_) node.is_ready = false;
  record();
  tell_members(GenerationEnded{node_id, rank_of(node_id), reason});
}

void JobScheduler::end_job(bool failed, const std::string& node_id, const std::string& reason) {
  phase_ = failed ? JobPhase::kFailed : JobPhase::kFinished;
  failure_ = !failed ? "" : node_id.empty() ? reason : fmt::format("node {} failed: {}", node_id, reason);
  record();
  tell_members(JobEnded{failed, node_id, rank_of(node_id), reason}, /*ends=*/true);
}

int32_t JobScheduler::rank_of(const std::string& node_id) const {
  const auto found = nodes_.find(node_id);
  return found == nodes_.end() || !found->second.rank ? -1 : static_cast<int32_t>(*found->second.rank);
}

void JobScheduler::record() {
  state_.nodes.clear();
  for (const auto& [id, node] : nodes_) {
    if (node.rank) {
      state_.nodes.push_back({id, node.host, *node.rank, node.incarnation, node.token, node.has_left});
    }
  }
  state_.is_running = phase_ == JobPhase::kRunning;
  is_dirty_ = true;
}

void JobScheduler::tell(PeerId peer, Message message, bool ends) {
  messages_.push_back({peer, state_.generation, std::move(message), ends});
}

void JobScheduler::tell_members(const Message& message, bool ends) {
  for (const auto& [id, peer] : peers_) {
    if (peer.role) tell(id, message, ends);
  }
}

void JobScheduler::refuse(const Peer& peer, const std::string& reason) {
  tell(peer.id, Refused{reason}, /*ends=*/true);
}

std::vector<ToPeer> JobScheduler::take_messages() { return std::exchange(messages_, {}); }

bool JobScheduler::take_is_dirty() { return std::exchange(is_dirty_, false); }

bool JobScheduler::is_member(PeerId peer) const {
  const auto found = peers_.find(peer);
  return found != peers_.end() && found->second.role.has_value();
}

}  // namespace tessera::cluster::rendezvous
