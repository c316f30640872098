// How the nodes of an elastic job come and go while it goes on.
#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/cluster/rendezvous/membership/job_parts.h"
#include "tessera/cluster/rendezvous/membership/job_scheduler.h"

namespace tessera::cluster::rendezvous {

size_t JobScheduler::num_places() const { return most_ranks() + static_cast<size_t>(options_.spares); }

size_t JobScheduler::most_ranks() const {
  if (!options_.is_elastic()) return static_cast<size_t>(options_.num_workers);
  if (may_resize()) return static_cast<size_t>(options_.max_ranks);
  return state_.num_ranks;
}

size_t JobScheduler::num_wanted() const {
  if (is_ending()) return static_cast<size_t>(std::max<int64_t>(num_with_rank(), 1));
  if (!may_resize()) return most_ranks();
  const int least = state_.generation == 0 ? options_.num_workers : options_.min_ranks;
  return std::max(std::min(nodes_.size(), most_ranks()), static_cast<size_t>(least));
}

// Those that have ranks keep them, the others come in while there is room.
std::set<std::string> JobScheduler::next_members() const {
  std::set<std::string> members;
  std::vector<std::string> others;
  for (const auto& [id, node] : nodes_) {
    if (node.rank) {
      members.insert(id);
    } else if (node.is_present() && !is_ending()) {
      others.push_back(id);
    }
  }
  for (const std::string& id : others) {
    if (members.size() < most_ranks()) members.insert(id);
  }
  return members;
}

bool JobScheduler::is_complete() const {
  const std::set<std::string> members = next_members();
  const auto is_present = [&](const std::string& id) { return nodes_.at(id).is_present(); };
  return members.size() >= num_wanted() && std::ranges::all_of(members, is_present);
}

// One that no rank waits for which was lost before.
bool JobScheduler::has_spare() const {
  if (options_.spares == 0 || state_.generation == 0) return false;
  const auto has_rank = [](const auto& entry) { return entry.second.rank.has_value(); };
  const auto waits = [](const auto& entry) { return !entry.second.rank && entry.second.is_present(); };
  const auto num_vacant = static_cast<int64_t>(state_.num_ranks) - std::ranges::count_if(nodes_, has_rank);
  return std::ranges::count_if(nodes_, waits) > num_vacant;
}

// The state says nothing of nodes without a rank.
bool JobScheduler::awaits_spares() const {
  const bool is_over_time = now_ms() - started_ms_ >= options_.reconnect_ms;
  return options_.spares > 0 && is_started_again_ && !is_over_time && !is_over() && !has_spare();
}

void JobScheduler::take_held_losses() {
  if (held_losses_.empty() || awaits_spares()) return;
  for (const auto& [id, message] : std::exchange(held_losses_, {})) {
    const auto peer = peers_.find(id);
    if (peer != peers_.end() && !is_over()) take(peer->second, message);
  }
}

bool JobScheduler::is_newcomer(const Node& node) const { return phase_ == JobPhase::kRunning && !node.rank; }

size_t JobScheduler::num_newcomers() const {
  return static_cast<size_t>(std::ranges::count_if(
      nodes_, [&](const auto& entry) { return is_newcomer(entry.second) && entry.second.is_present(); }));
}

// At once, for the job may save next before it shows that it lives.
void JobScheduler::tell_workers() {
  const HeartbeatAnswer answer = heartbeat_answer();
  for (const auto& [id, peer] : peers_) {
    if (peer.role == PeerRole::kWorker) tell(id, answer);
  }
}

// Another scheduler must know it, too: what ranks have been told they may do when this one has died.
HeartbeatAnswer JobScheduler::heartbeat_answer() {
  const size_t room = most_ranks() - std::min<size_t>(most_ranks(), state_.num_ranks);
  // The others are spares, and a job that ends needs nobody.
  const auto count = static_cast<uint32_t>(is_ending() ? 0 : std::min(num_newcomers(), room));
  if (count > 0 && !std::exchange(state_.has_told_of_newcomers, true)) is_dirty_ = true;
  return {count, stop_reason_};
}

bool JobScheduler::is_dropped(const std::string& node_id, uint64_t incarnation) const {
  return std::ranges::any_of(state_.dropped, [&](const DroppedNode& node) {
    return node.node_id == node_id && node.incarnation == incarnation;
  });
}

// A launcher that connects again speaks for those of its nodes that are left.
std::vector<std::string> JobScheduler::without_dropped(const Register& message) const {
  std::vector<std::string> rest;
  std::ranges::copy_if(message.node_ids, std::back_inserter(rest),
                       [&](const std::string& id) { return !is_dropped(id, message.incarnation); });
  return rest;
}

bool JobScheduler::can_drop(size_t count) const {
  // A newcomer that has gone helps nobody.
  const auto is_there = [](const auto& entry) { return entry.second.rank || entry.second.is_present(); };
  const auto num_there = static_cast<size_t>(std::ranges::count_if(nodes_, is_there));
  const bool has_others = may_resize() && num_there >= static_cast<size_t>(options_.min_ranks) + count;
  return state_.generation > 0 && (has_others || (count == 1 && has_spare()));
}

void JobScheduler::go_on_without(const std::string& node_id, const std::string& reason, LostBy by) {
  // Before the end of the generation, at which a launcher starts again what it has not heard this of.
  tell_dropped(node_id, reason);
  end_generation(node_id, /*is_lost=*/true, reason, by);
  forget_dropped(node_id, reason);
  if (is_complete()) begin_generation();
}

void JobScheduler::drop_late() {
  if (phase_ != JobPhase::kWaiting || state_.generation == 0) return;
  std::vector<std::string> late;
  for (const auto& [id, node] : nodes_) {
    if (node.is_lost && now_ms() - node.lost_ms >= options_.rank_timeout_ms) late.push_back(id);
  }
  for (const std::string& id : late) {
    if (phase_ != JobPhase::kWaiting || !can_drop()) return;
    drop(id, fmt::format("it has not come back within {} ms", options_.rank_timeout_ms));
  }
}

// While the others meet for the next generation, which may be complete then. Its leaving explains why they do.
void JobScheduler::drop(const std::string& node_id, const std::string& reason) {
  has_ended_by_itself_ = false;
  news_.push_back(fmt::format("the job goes on without {}: {}", named(node_id), reason));
  tell_dropped(node_id, reason);
  forget_dropped(node_id, reason);
  if (is_complete()) begin_generation();
}

// Their launchers hear of it, for they may have started them again.
void JobScheduler::replace_lost(size_t num_new) {
  std::vector<std::string> lost;
  for (const auto& [id, node] : nodes_) {
    const bool is_full = nodes_.size() - lost.size() + num_new > num_places();
    if (is_full && node.is_lost) lost.push_back(id);
  }
  for (const std::string& id : lost) {
    tell_dropped(id, "another one has taken its place");
    forget_dropped(id, "another one has taken its place");
  }
}

void JobScheduler::tell_dropped(const std::string& node_id, const std::string& reason) {
  Node& node = nodes_.at(node_id);
  node.is_dropped = true;
  for (const PeerId of_node : {node.launcher, node.worker}) {
    if (of_node != 0) tell(of_node, NodeDropped{node_id, reason, is_ending()});
  }
}

void JobScheduler::forget_dropped(const std::string& node_id, const std::string& reason) {
  const auto found = nodes_.find(node_id);
  const PeerId worker = found->second.worker;
  if (state_.dropped.size() >= kMaxNodes) state_.dropped.erase(state_.dropped.begin());
  state_.dropped.push_back({node_id, found->second.incarnation});
  nodes_.erase(found);
  record();
  const char* how = is_ending() ? "cannot go on" : "goes on";
  if (worker != 0) tell(worker, Fenced{fmt::format("the job {} without node {}: {}", how, node_id, reason)}, true);
}

std::string JobScheduler::why_over(const std::string& reason) const {
  if (!options_.is_elastic()) return reason;
  if (state_.generation == 0) return reason;
  if (!state_.fixed_by.empty()) {
    return fmt::format("{}; the job cannot go on with another number of ranks: {}", reason, state_.fixed_by);
  }
  return fmt::format("{}; the job needs {} at least", reason, plural(options_.min_ranks, "rank"));
}

void JobScheduler::take(Peer& peer, const FixRanks& message) {
  if (!options_.is_elastic() || is_ending() || peer.generation < state_.generation) return;
  for (const std::string& id : peer.node_ids) {
    const auto found = nodes_.find(id);
    // A later training may say it anew.
    if (found != nodes_.end() && found->second.worker == peer.id) found->second.unsaved_for = message.unsaved_for;
  }
  if (const std::string why = why_unsaved(); !stop_reason_.empty() && !why.empty()) {
    news_.push_back(fmt::format("the job goes on, for nothing of it would be saved: {}", why));
    stop_reason_.clear();
    tell_workers();
  }
  if (!state_.fixed_by.empty()) return;
  const std::string reason = message.reason.empty() ? "its ranks say so" : message.reason;
  if (state_.num_ranks != state_.num_first_ranks) {
    return end_job(/*failed=*/true, "",
                   fmt::format("there {} {}, the job has begun with {}, and its training cannot go on with "
                               "another number: {}",
                               state_.num_ranks == 1 ? "is" : "are", plural(state_.num_ranks, "rank"),
                               state_.num_first_ranks, reason));
  }
  state_.fixed_by = reason;
  is_dirty_ = true;
  news_.push_back(fmt::format("the job's number of ranks stays {}: {}", state_.num_ranks, reason));
  if (options_.spares > 0) return;  // those that wait do not change the number
  std::vector<PeerId> newcomers;
  for (const auto& [id, node] : nodes_) {
    if (!is_newcomer(node)) continue;
    for (const PeerId of_node : {node.worker, node.launcher}) {
      if (of_node != 0) newcomers.push_back(of_node);
    }
  }
  std::erase_if(nodes_, [&](const auto& entry) { return is_newcomer(entry.second); });
  std::ranges::sort(newcomers);
  newcomers.erase(std::ranges::unique(newcomers).begin(), newcomers.end());
  for (const PeerId id : newcomers) {
    refuse(peers_.at(id), fmt::format("the job's number of ranks stays {}: {}", state_.num_ranks, reason));
  }
}

std::string JobScheduler::why_unsaved() const {
  const std::string* first = nullptr;
  uint32_t rank = 0;
  bool has_any_said = false;
  for (const auto& [id, node] : nodes_) {
    if (!node.rank || !node.unsaved_for) continue;
    has_any_said = true;
    if (node.unsaved_for->empty() || (first != nullptr && *node.rank > rank)) continue;
    first = &*node.unsaved_for;
    rank = *node.rank;
  }
  if (first != nullptr) return *first;
  return has_any_said ? "" : "its ranks have not said yet whether they save";
}

std::string JobScheduler::why_not_resize(uint32_t num_ranks) const {
  if (!options_.is_elastic()) {
    return fmt::format("the job has {}, a number that stays: its scheduler was started without --min_ranks",
                       plural(state_.num_workers, "rank"));
  }
  if (is_ending()) return "the job ends: its ranks save what they have kept";
  if (phase_ != JobPhase::kRunning) return fmt::format("the job is {}: it is resized while it runs", name_of(phase_));
  if (num_ranks < static_cast<uint32_t>(options_.min_ranks) || num_ranks > static_cast<uint32_t>(options_.max_ranks)) {
    return fmt::format("the job has from {} to {} ranks, got {}", options_.min_ranks, options_.max_ranks, num_ranks);
  }
  if (!state_.fixed_by.empty()) {
    const std::string why = why_unsaved();
    if (num_ranks == state_.num_ranks || why.empty()) return "";
    return fmt::format(
        "the job's number of ranks stays {}: {}; it is not stopped for another number, for nothing of it would be "
        "saved: {}",
        state_.num_ranks, state_.fixed_by, why);
  }
  if (num_newcomers() > 0 && num_ranks != state_.num_ranks + num_newcomers()) {
    return fmt::format("the job has {}, and {} wait to be taken in: it can be resized to {}, got {}",
                       plural(state_.num_ranks, "rank"), num_newcomers(), state_.num_ranks + num_newcomers(),
                       num_ranks);
  }
  if (num_newcomers() == 0 && num_ranks > state_.num_ranks) {
    return fmt::format("the job has {}, and none wait to be taken in: start {} more by `tessera run --join` first",
                       plural(state_.num_ranks, "rank"), num_ranks - state_.num_ranks);
  }
  return "";
}

// Its ranks save the step that they are in, and say so when they leave. Another scheduler that stands in this one's
// place does not know of it: it may be asked again.
void JobScheduler::ask_to_stop(uint32_t num_ranks) {
  stop_reason_ = fmt::format("asked for {} in place of {}, which the job cannot have: {}", plural(num_ranks, "rank"),
                             state_.num_ranks, state_.fixed_by);
  news_.push_back(stop_reason_ + "; it saves what it has and stops");
  tell_workers();
}

void JobScheduler::take(Peer& peer, const ResizeJob& message) {
  if (!may_be(peer.identity, PeerRole::kWorker)) return refuse(peer, "its certificate does not let it resize the job");
  if (const std::string why = why_not_resize(message.num_ranks); !why.empty()) return refuse(peer, why);
  if (message.num_ranks != state_.num_ranks && !state_.fixed_by.empty()) {
    ask_to_stop(message.num_ranks);
  } else if (message.num_ranks != state_.num_ranks) {
    const std::string reason =
        fmt::format("the job is resized from {} to {}", state_.num_ranks, plural(message.num_ranks, "rank"));
    // Those with the highest ranks leave.
    std::vector<std::string> leaving;
    for (const auto& [id, node] : nodes_) {
      if (node.rank && *node.rank >= message.num_ranks) leaving.push_back(id);
    }
    for (const std::string& id : leaving) tell_dropped(id, reason);
    end_generation("", /*is_lost=*/false, reason);
    for (const std::string& id : leaving) forget_dropped(id, reason);
    if (is_complete()) begin_generation();
  }
  tell(peer.id, status());
}

}  // namespace tessera::cluster::rendezvous
