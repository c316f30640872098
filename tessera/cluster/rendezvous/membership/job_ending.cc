// How a job ends by a loss: by way of a last generation, of those nodes that are left, where these save.
#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/cluster/rendezvous/membership/job_parts.h"
#include "tessera/cluster/rendezvous/membership/job_scheduler.h"

namespace tessera::cluster::rendezvous {
namespace {

constexpr const char* kLastFollows = "; the ranks that are left save what they have kept, and the job ends";

}  // namespace

void JobScheduler::take(Peer& peer, const TellLastSave& message) {
  if (is_ending() || peer.generation < state_.generation) return;
  last_save_ = message.is_training ? std::optional(message) : std::nullopt;
}

int64_t JobScheduler::num_with_rank() const {
  return std::ranges::count_if(nodes_, [](const auto& entry) { return entry.second.rank.has_value(); });
}

// While ranks meet, some may have been lost before. Where the time to meet is over, who is not there does not come.
std::vector<std::string> JobScheduler::find_gone(const std::string& node_id) const {
  std::vector<std::string> gone;
  for (const auto& [id, node] : nodes_) {
    const bool is_late = node_id.empty() && !node.is_present();
    if (node.rank && (id == node_id || node.is_lost || is_late)) gone.push_back(id);
  }
  return gone;
}

void JobScheduler::end_by_loss(const std::string& node_id, const std::string& reason, LostBy by) {
  if (is_ending()) return go_on_ending(node_id, reason);
  const std::vector<std::string> gone = find_gone(node_id);
  const bool is_any_left = num_with_rank() > std::ssize(gone);
  if (!last_save_ || !is_any_left || gone.empty() || state_.generation == 0) {
    return end_job(/*failed=*/true, node_id, reason);
  }
  if (!last_save_->unsaved_for.empty()) {
    return end_job(
        /*failed=*/true, node_id,
        fmt::format("{}; what the ranks that are left have kept is not saved: {}", reason, last_save_->unsaved_for));
  }
  last_reason_ = stop_reason_ = node_id.empty() ? reason : fmt::format("{} is lost: {}", named(node_id), reason);
  has_ended_by_itself_ = false;
  const std::string words = reason + kLastFollows;
  // Before the end of the generation, at which a launcher starts again what it has not heard this of.
  for (const std::string& id : gone) tell_dropped(id, words);
  if (phase_ == JobPhase::kRunning) {
    end_generation(node_id, /*is_lost=*/true, words, by);
  } else {
    news_.push_back(last_reason_ + kLastFollows);
  }
  for (const std::string& id : gone) forget_dropped(id, words);
  waiting_since_ms_ = now_ms();
  if (is_complete()) begin_generation();
}

// While those that are left meet, they go on without those that are lost, or that have not come when the time to meet
// is over. Once they save, nothing is begun again.
void JobScheduler::go_on_ending(const std::string& node_id, const std::string& reason) {
  if (is_over()) return;
  const auto found = nodes_.find(node_id);
  const bool is_known = found != nodes_.end();
  const std::string who = is_known ? named(node_id) + ": " : "";
  const bool may_go_on = phase_ == JobPhase::kWaiting && (node_id.empty() || is_known);
  const std::vector<std::string> gone = may_go_on ? find_gone(node_id) : std::vector<std::string>();
  const bool is_any_left = num_with_rank() > std::ssize(gone);
  const std::string words = reason + (is_any_left ? kLastFollows : "");
  for (const std::string& id : gone) {
    news_.push_back(fmt::format("{} is lost, too: {}", named(id), reason));
    tell_dropped(id, words);
    forget_dropped(id, words);
  }
  if (!gone.empty() && num_with_rank() > 0) {
    if (is_complete()) begin_generation();
    return;
  }
  if (may_go_on && is_known && gone.empty()) return;  // it had no rank to save
  // One of them may have saved, and have been lost before it said so.
  end_job(/*failed=*/true, "",
          why_last(fmt::format("the ranks that were left have not said that what they had kept is saved: {}{}", who,
                               reason)));
}

std::string JobScheduler::why_last(const std::string& otherwise) const {
  const auto saved = state_.blobs.find(std::string(kLastSave));
  return fmt::format("{}; {}", last_reason_, saved != state_.blobs.end() ? saved->second : otherwise);
}

}  // namespace tessera::cluster::rendezvous
