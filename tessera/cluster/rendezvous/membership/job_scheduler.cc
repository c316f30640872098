#include "tessera/cluster/rendezvous/membership/job_scheduler.h"

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/cluster/rendezvous/membership/job_parts.h"

namespace tessera::cluster::rendezvous {
namespace {

// A scheduler that was stopped for so long has heard nobody meanwhile, which is nobody's silence.
constexpr int64_t kOwnPauseMs = 1000;

// About so much memory takes a message that waits; those that are always small count as nothing.
size_t bytes_of(const Message& message) {
  if (const auto* value = std::get_if<ValueAnswer>(&message)) return value->value.size();
  if (const auto* blob = std::get_if<BlobAnswer>(&message)) return blob->bytes.size();
  if (const auto* status = std::get_if<JobStatus>(&message)) return status->nodes.size() * sizeof(NodeStatus);
  return 0;
}

}  // namespace

JobScheduler::JobScheduler(const SchedulerOptions& options, Clock& clock, const SchedulerState& saved,
                           const Quotas& quotas)
    : options_(options), clock_(clock), state_(saved), values_(quotas) {
  const auto num_workers = static_cast<uint32_t>(options.num_workers);
  if (saved.num_workers != 0 && saved.num_workers != num_workers) {
    throw InvalidArgument("the scheduler's state is of a job with {}, this one has {}",
                          plural(saved.num_workers, "worker"), num_workers);
  }
  state_.num_workers = num_workers;
  started_ms_ = waiting_since_ms_ = ticked_ms_ = now_ms();
  for (const SavedNode& node : saved.nodes) {
    nodes_[node.node_id] = {.host = node.host,
                            .incarnation = node.incarnation,
                            .clock_id = node.clock_id,
                            .started_ns = node.started_ns,
                            .token = node.token,
                            .rank = node.rank,
                            .is_started = node.started_ns != 0,
                            .is_ready = saved.is_running,
                            .is_lost = node.is_lost && !saved.is_running,
                            .is_end_awaited = node.is_end_awaited,
                            .has_left = node.has_left,
                            .is_server = node.is_server,
                            .has_finished = node.has_finished,
                            .heard_ms = started_ms_,
                            .deadline_ms = started_ms_ + options_.node_timeout_ms,
                            .lost_ms = started_ms_,
                            .ended_ns = node.ended_ns};
  }
  is_started_again_ = saved.is_running;
  has_ended_by_itself_ = saved.has_ended_by_itself;
  if (saved.is_running) phase_ = JobPhase::kRunning;
  if (state_.num_ranks == 0 && state_.generation > 0) state_.num_ranks = state_.num_first_ranks = num_workers;
  if (!saved.is_over) return;
  take_end(saved.end);
  news_.emplace_back("the job has ended before, as the scheduler's state says: remove that to begin a new job");
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
  const bool may_come_first = std::holds_alternative<Register>(message) || std::holds_alternative<AskStatus>(message) ||
                              std::holds_alternative<ResizeJob>(message);
  if (!peer.role && !may_come_first) return refuse(peer, "it has not registered");
  // Values belong to a generation. What was on its way when one ended is of no use.
  const bool is_of_generation = std::holds_alternative<SetValue>(message) ||
                                std::holds_alternative<GetValue>(message) ||
                                std::holds_alternative<ForgetValue>(message);
  if (is_of_generation && (generation < state_.generation || phase_ != JobPhase::kRunning)) return;
  peer.generation = generation;
  std::visit([&](const auto& body) { take(peer, body); }, message);
}

template <typename OfScheduler>
void JobScheduler::take(Peer& peer, const OfScheduler& /*message*/) {
  refuse(peer, "it says what only a scheduler says");
}

void JobScheduler::take(Peer& peer, const Heartbeat& message) {
  std::vector<bool> is_idle(peer.node_ids.size());
  for (const uint32_t place : message.idle) {
    if (place >= is_idle.size()) return refuse(peer, "it speaks for a node that is not its own");
    is_idle[place] = true;
  }
  std::vector<std::string> hanging;
  for (size_t place = 0; place < peer.node_ids.size(); ++place) {
    const auto found = nodes_.find(peer.node_ids[place]);
    if (found == nodes_.end()) continue;
    Node& node = found->second;
    if (node.worker == peer.id) {
      node.said = message;
      note_heard(node);
    } else if (node.launcher == peer.id && node.worker == 0 && !node.has_left && hangs(node, is_idle[place])) {
      hanging.push_back(found->first);
    }
  }
  tell(peer.id, heartbeat_answer());
  for (const std::string& id : hanging) lose_hanging(id);
}

void JobScheduler::take(Peer& peer, const TellFigures& message) {
  for (const std::string& id : peer.node_ids) {
    const auto found = nodes_.find(id);
    if (found != nodes_.end() && found->second.worker == peer.id) found->second.figures = message.figures;
  }
}

void JobScheduler::note_heard(Node& node) const {
  node.heard_ms = now_ms();
  node.deadline_ms = now_ms() + options_.node_timeout_ms;
}

// A launcher speaks for a process that is not connected: `is_idle` where it runs and does nothing. A start may take as
// long as it likes, up to the time to join, as long as something happens; and before any process has come, nobody waits
// for one that waits for something itself. Returns whether the process has held others up for too long.
bool JobScheduler::hangs(Node& node, bool is_idle) {
  const auto has_come = [](const auto& entry) { return entry.second.worker != 0; };
  if (!is_idle) {
    node.idle_since_ms.reset();
  } else if (!node.idle_since_ms && (node.is_started || std::ranges::any_of(nodes_, has_come))) {
    node.idle_since_ms = now_ms();
  }
  if (!is_idle || !node.is_started) note_heard(node);
  return node.idle_since_ms && now_ms() - *node.idle_since_ms >= options_.node_timeout_ms;
}

void JobScheduler::take(Peer& peer, const Leave& message) {
  const auto found = nodes_.find(message.node_id);
  const bool is_own = std::ranges::find(peer.node_ids, message.node_id) != peer.node_ids.end();
  const bool is_gone =
      std::ranges::any_of(state_.dropped, [&](const DroppedNode& node) { return node.node_id == message.node_id; });
  if (found == nodes_.end() && is_own && is_gone) return;  // that its process has ended is no news
  if (found == nodes_.end() || !is_own || !may_speak_for(peer, found->second)) {
    return refuse(peer, "it speaks for a node that is not its own");
  }
  Node& node = found->second;
  if (node.has_left) return;
  if (message.at_ns < node.started_ns) return;  // it has been started again since
  // All ranks have saved and stop, as they were asked to: no spare and no restart is of use.
  const bool may_have_saved = !is_ending() || phase_ == JobPhase::kRunning;
  if (!stop_reason_.empty() && may_have_saved && message.failed && message.for_good && node.worker == peer.id &&
      !is_over()) {
    // Who ends in the last generation may not have said why it was the last, or that all have saved.
    const bool says_loss = message.reason.find(last_reason_) != std::string::npos;
    const bool says_all = !is_ending() || (says_loss && !state_.blobs.contains(std::string(kLastSave)));
    return end_job(/*failed=*/true, "", says_all ? message.reason : why_last(message.reason));
  }
  if (is_ending() && message.failed && node.rank && !is_over()) return go_on_ending(message.node_id, message.reason);
  if (message.failed && awaits_spares()) return static_cast<void>(held_losses_.emplace_back(peer.id, message));
  const bool is_waiting = phase_ == JobPhase::kWaiting;
  const bool is_own_word = !message.failed && node.worker == peer.id && state_.generation > 0;
  if (!is_own_word && (message.failed || is_waiting)) {
    const std::string reason = message.reason.empty() ? "it has left before the job began" : message.reason;
    // One process is one loss: what is said again is known, and so is the end of a process that was silent, or that has
    // said itself that it fails.
    const bool is_later = message.at_ns > node.ended_ns;
    const bool is_news = is_later && !node.is_end_awaited;
    const LostBy by = is_later && node.worker == peer.id ? LostBy::kOwnWord : LostBy::kEnd;
    node.ended_ns = std::max(node.ended_ns, message.at_ns);
    // What a job that runs has taken in and what cannot even join is no loss of the job's.
    const bool for_good = message.for_good || node.is_taken_in;
    // Nobody starts it again, and the others cannot do without it.
    const bool has_any_finished =
        std::ranges::any_of(nodes_, [](const auto& other) { return other.second.has_finished; });
    if (message.for_good && !options_.is_elastic() && !is_over() && !has_any_finished) {
      return end_by_loss(message.node_id, reason, by);
    }
    // Ranks that fail together, as in a save on a full disk, fail by one event: after the loss that has ended their
    // generation, what a process of it says of itself is that event, or comes of it.
    const bool is_same_event = by == LostBy::kOwnWord && is_of_ended_generation(peer) && !has_ended_by_itself_;
    if (is_waiting && node.rank && is_news && !has_spare()) {
      const bool is_over = (for_good && can_drop()) || (!is_same_event && !count_loss());
      if (is_over && can_drop()) return drop(message.node_id, reason);
      if (is_over) return end_by_loss(message.node_id, why_over(reason), by);
    }
    return lose(node, reason, by, for_good);
  }
  // Others train, and wait for it: it has ended well before it was one of them.
  const auto trains = [](const auto& entry) { return entry.second.worker != 0; };
  const bool has_not_joined = node.worker == 0 && !node.is_started && std::ranges::any_of(nodes_, trains);
  if (is_newcomer(node) || (may_resize() && !is_own_word && has_not_joined)) {
    return lose(node, "its process has ended before it joined", LostBy::kEnd, /*for_good=*/true);
  }
  node.has_left = true;
  node.has_finished = is_own_word;
  node.ended_ns = std::max(node.ended_ns, message.at_ns);  // which is no news either where it is said again
  if (is_waiting) return end_job(/*failed=*/false, "", "");
  end_if_all_left();
}

bool JobScheduler::may_speak_for(const Peer& peer, const Node& node) const {
  return node.worker == peer.id || node.launcher == peer.id;
}

bool JobScheduler::is_behind(const Node& node) const {
  return phase_ == JobPhase::kWaiting && node.rank && !node.is_ready && node.worker != 0;
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
    // A launcher says when a process has ended: one that is not connected is about to be, after it has begun anew.
    const bool is_watched = node.worker != 0 || node.launcher != 0;
    if (!is_watched) node.deadline_ms = std::min(node.deadline_ms, now_ms() + options_.reconnect_ms);
  }
  values_.remove_waiter(id);
  peers_.erase(found);
}

void JobScheduler::tick() {
  const int64_t now = now_ms();
  const int64_t pause = now - std::exchange(ticked_ms_, now);
  if (pause > kOwnPauseMs) {
    for (auto& [id, node] : nodes_) {
      node.deadline_ms += pause;
      if (node.idle_since_ms) *node.idle_since_ms += pause;
      node.lost_ms += pause;
    }
    waiting_since_ms_ += pause;
    return;
  }
  take_held_losses();
  std::vector<std::string> silent;
  for (const auto& [id, node] : nodes_) {
    if (!node.has_left && !node.is_lost && now >= node.deadline_ms) silent.push_back(id);
  }
  for (const std::string& id : silent) {
    const auto found = nodes_.find(id);
    if (is_over() || found == nodes_.end()) return;
    const int64_t silent_ms = now - found->second.heard_ms;
    const std::string reason =
        found->second.is_connected()
            ? fmt::format("it has said nothing for {} ms", silent_ms)
            : fmt::format("its connection has ended and it has not come back; it was heard {} ms ago", silent_ms);
    // The others have heard of the loss first, and wait.
    const bool waits = phase_ == JobPhase::kWaiting && found->second.rank && may_resize() && !has_spare();
    const bool is_over_without = waits && !count_loss();
    if (is_over_without && !can_drop()) return end_by_loss(id, why_over(reason), LostBy::kSilence);
    if (is_over_without) {
      drop(id, reason);
    } else {
      lose(found->second, reason, LostBy::kSilence);
    }
  }
  drop_late();
  if (phase_ == JobPhase::kWaiting && now - waiting_since_ms_ >= options_.join_timeout_ms) {
    end_by_loss("", fmt::format("{} within {} ms", who_is_missing(), options_.join_timeout_ms));
  }
}

void JobScheduler::lose(Node& node, const std::string& reason, LostBy by, bool for_good) {
  const auto entry = std::ranges::find_if(nodes_, [&](const auto& other) { return &other.second == &node; });
  const std::string id = entry->first;
  if (is_newcomer(node)) return static_cast<void>(nodes_.erase(entry));
  // A process says that it leaves when all ranks have finished: what is lost then had nothing left to do.
  if (std::ranges::any_of(nodes_, [](const auto& other) { return other.second.has_finished; })) {
    node.has_left = true;
    return end_if_all_left();
  }
  if (is_ending() && node.rank) return go_on_ending(id, reason);
  const bool was_lost = std::exchange(node.is_lost, true);
  if (!was_lost) node.lost_ms = now_ms();
  node.is_ready = false;
  node.is_end_awaited = by != LostBy::kEnd;
  if (phase_ == JobPhase::kRunning) {
    // Who leaves for good is no loss, where there are enough others.
    if ((for_good && can_drop()) || has_spare()) return go_on_without(id, reason, by);
    if (count_loss()) return end_generation(id, /*is_lost=*/true, reason, by);
    return can_drop() ? go_on_without(id, reason, by) : end_by_loss(id, why_over(reason), by);
  }
  if (!node.rank) {
    // The others may have waited for this one alone.
    nodes_.erase(entry);
    if (is_complete()) begin_generation();
    return;
  }
  if (has_spare()) return drop(id, reason);
  record();
  if (!was_lost) news_.push_back(fmt::format("{} is lost, too: {}", named(id), reason));
  // While others come back: who starts it must know.
  tell(node.launcher, GenerationEnded{id, rank_of(id), !was_lost, by == LostBy::kOwnWord, state_.num_losses, reason});
}

// The process of a node hangs that was to join. Where others come back it was started in place of another one, or has
// not come since: it is a loss of its own, and its launcher must hear of it as of a first one.
void JobScheduler::lose_hanging(const std::string& id) {
  const auto found = nodes_.find(id);
  if (is_over() || found == nodes_.end()) return;
  Node& node = found->second;
  const int64_t idle_ms = now_ms() - *node.idle_since_ms;
  const std::string reason = fmt::format("its process has not joined, and has done nothing for {} ms", idle_ms);
  node.idle_since_ms.reset();
  if (phase_ == JobPhase::kWaiting) {
    if (node.rank && !has_spare() && !count_loss())
      return can_drop() ? drop(id, reason) : end_by_loss(id, why_over(reason), LostBy::kSilence);
    node.is_lost = false;
  }
  lose(node, reason, LostBy::kSilence);
}

bool JobScheduler::count_loss() {
  has_ended_by_itself_ = false;
  ++state_.num_losses;
  return state_.num_losses <= static_cast<uint64_t>(options_.max_restarts);
}

void JobScheduler::end_if_all_left() {
  record();
  const bool all_left = std::ranges::all_of(
      nodes_, [&](const auto& entry) { return entry.second.has_left || is_newcomer(entry.second); });
  if (!all_left) return;
  if (is_ending()) return go_on_ending("", "its ranks have ended without it");
  end_job(/*failed=*/false, "", "");
}

void JobScheduler::end_generation(const std::string& node_id, bool is_lost, const std::string& reason, LostBy by) {
  phase_ = JobPhase::kWaiting;
  waiting_since_ms_ = now_ms();
  values_.clear();
  for (auto& [id, node] : nodes_) {
    if (!node.rank) continue;  // it has waited for this
    node.is_ready = false;
    if (!node.is_lost) node.lost_ms = now_ms();
    node.is_lost = node.is_lost || node.has_left;  // that has ended with exit code 0 before the others had
    node.has_left = false;
    // Its process begins anew, which its launcher watches. One that has been silent for long stands still: the others
    // may have waited for it for as long, and have ended the generation before it is lost.
    const bool is_alive = now_ms() - node.heard_ms <= options_.node_timeout_ms / 2;
    if (!node.is_lost && node.launcher != 0 && is_alive) node.deadline_ms = now_ms() + options_.node_timeout_ms;
  }
  record();
  if (node_id.empty()) {
    news_.push_back(fmt::format("generation {} has ended: {}", state_.generation, reason));
  } else if (is_lost) {
    const bool is_counted = !nodes_.at(node_id).is_dropped;
    news_.push_back(fmt::format(
        "{} is lost: {}; generation {} has ended ({})", named(node_id), reason, state_.generation,
        is_counted    ? fmt::format("{} of {} losses that the job survives", state_.num_losses, options_.max_restarts)
        : is_ending() ? "its last one follows"
                      : "the job goes on without it"));
  } else {
    news_.push_back(fmt::format("{} has ended generation {}: {}", named(node_id), state_.generation, reason));
  }
  tell_members(GenerationEnded{node_id, rank_of(node_id), is_lost, by == LostBy::kOwnWord, state_.num_losses, reason});
}

void JobScheduler::end_job(bool failed, const std::string& node_id, const std::string& reason) {
  take_end({failed, node_id, rank_of(node_id), reason});
  // A job that has not begun has lost nothing: who starts its scheduler again waits for its workers again.
  state_.is_over = state_.generation > 0;
  if (state_.is_over) state_.end = ended_;
  record();
  tell_members(ended_, /*ends=*/true);
}

void JobScheduler::take_end(const JobEnded& end) {
  ended_ = end;
  phase_ = end.failed ? JobPhase::kFailed : JobPhase::kFinished;
  failure_ = !end.failed           ? ""
             : end.node_id.empty() ? end.reason
                                   : fmt::format("node {} failed: {}", end.node_id, end.reason);
}

std::string JobScheduler::named(const std::string& node_id) const {
  const auto found = nodes_.find(node_id);
  if (found == nodes_.end()) return fmt::format("node {}", node_id);
  const std::string rank = found->second.rank ? fmt::format("rank {}", *found->second.rank) : "no rank yet";
  return fmt::format("node {} ({} at {})", node_id, rank, found->second.host);
}

int32_t JobScheduler::rank_of(const std::string& node_id) const {
  const auto found = nodes_.find(node_id);
  return found == nodes_.end() || !found->second.rank ? -1 : static_cast<int32_t>(*found->second.rank);
}

void JobScheduler::record() {
  state_.nodes.clear();
  for (const auto& [id, node] : nodes_) {
    if (node.rank) {
      state_.nodes.push_back({id, node.host, *node.rank, node.incarnation, node.clock_id, node.started_ns, node.token,
                              node.has_left, node.is_server, node.has_finished, node.is_lost, node.is_end_awaited,
                              node.ended_ns});
    }
  }
  state_.is_running = phase_ == JobPhase::kRunning;
  state_.has_ended_by_itself = has_ended_by_itself_;
  is_dirty_ = true;
}

void JobScheduler::tell(PeerId peer, Message message, bool ends) {
  untold_bytes_ += bytes_of(message);
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

std::vector<ToPeer> JobScheduler::take_messages() {
  untold_bytes_ = 0;
  return std::exchange(messages_, {});
}

bool JobScheduler::take_is_dirty() { return std::exchange(is_dirty_, false); }

std::vector<std::string> JobScheduler::take_news() { return std::exchange(news_, {}); }

bool JobScheduler::is_member(PeerId peer) const {
  const auto found = peers_.find(peer);
  return found != peers_.end() && found->second.role.has_value();
}

}  // namespace tessera::cluster::rendezvous
