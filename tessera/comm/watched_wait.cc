#include "tessera/comm/watched_wait.h"

#include <algorithm>
#include <exception>
#include <span>

namespace tessera::comm {
namespace {

// A wait is known to others after kKnownMs and reported after kReportMs, both sooner where the deadline is near: a user
// who waits for a job that stands still looks for a reason after some seconds.
constexpr int64_t kKnownMs = 500;
constexpr int64_t kReportMs = 5000;
constexpr int64_t kReportsPerDeadline = 6;
// Shorter ones tell nothing of a rank that is slow, and are too many to be noted.
constexpr int64_t kNotedMs = 1;

int world_rank(const GroupInfo& group, int rank) { return rank < 0 ? -1 : group.ranks[static_cast<size_t>(rank)]; }

// The call's name without its number, as CallHeader::label() has it.
std::string_view label_of(const CallHeader& call, std::span<char> memory) {
  const std::string_view name(call.who);
  const std::string_view verb = to_string(call.kind);
  const bool is_whole = name.starts_with(verb) || call.kind == CallKind::kSend;
  const auto [end, size] = name.empty() ? fmt::format_to_n(memory.data(), memory.size(), "{}", verb)
                           : is_whole   ? fmt::format_to_n(memory.data(), memory.size(), "{}", name)
                                        : fmt::format_to_n(memory.data(), memory.size(), "{} \"{}\"", verb, name);
  return {memory.data(), std::min(size, memory.size())};
}

}  // namespace

WatchedWait::WatchedWait(const CallHeader& call, const GroupInfo& group, int peer, int64_t timeout_ms, JobState& job)
    : call_(call),
      group_(group),
      peer_(peer),
      timeout_ms_(timeout_ms),
      job_(job),
      num_exceptions_(std::uncaught_exceptions()) {}

WatchedWait::~WatchedWait() {
  if (number_ != 0) job_.remove_long_wait(number_);
  try {
    note_end();
  } catch (const std::exception&) {  // no memory: what ends the call says more than the note
  }
}

LongWait WatchedWait::description() const {
  LongWait wait{.rank = world_rank(group_, group_.rank),
                .place = place_of(call_, group_),
                .ranks = group_.ranks,
                .waited_ms = waited_ms_.load(std::memory_order_relaxed),
                .peer = world_rank(group_, peer_)};
  if (call_.kind == CallKind::kSend && peer_ >= 0) wait.ranks = {wait.rank, wait.peer};
  return wait;
}

void WatchedWait::note_end() const {
  const bool is_broken = std::uncaught_exceptions() > num_exceptions_;
  const int64_t waited_ms = waited_ms_.load(std::memory_order_relaxed);
  if (!is_broken && waited_ms < kNotedMs) return;
  // Who has no deadline waits for nothing that the peer owes it: another failure that ends the wait is none of the
  // peer's.
  if (timeout_ms_ >= kNoDeadlineMs && (!is_broken || job_.failed())) return;
  RankNotes* notes = job_.notes_of(world_rank(group_, group_.rank));
  if (notes == nullptr) return;
  if (is_broken) return notes->set_broken_call({.wait = description(), .line = {}, .is_mismatch = false});
  // Who is waited for once and for long is spoken of by itself, and stages of a pipeline wait for each other's messages
  // as their schedule has it.
  if (is_reported_ || call_.kind == CallKind::kSend || peer_ < 0) return;
  char memory[96];
  const int peer = world_rank(group_, peer_);
  int first = world_rank(group_, group_.rank);
  for (const int rank : group_.ranks) {
    if (rank != peer) first = std::min(first, rank);
  }
  notes->wait_times().add(
      {.label = label_of(call_, memory), .group = group_.name, .peer = peer, .first_waiting = first}, waited_ms);
}

void WatchedWait::look(int64_t waited_ms) {
  set_waited(waited_ms);
  if (timeout_ms_ >= kNoDeadlineMs) return;
  const int64_t report_ms = std::min(kReportMs, timeout_ms_ / kReportsPerDeadline);
  if (waited_ms < std::min(kKnownMs, report_ms / 2) || is_reported_) return;
  if (number_ == 0) number_ = job_.add_long_wait(description(), waited_ms_);
  if (waited_ms < report_ms) return;
  is_reported_ = true;
  job_.report_late(description());
}

}  // namespace tessera::comm
