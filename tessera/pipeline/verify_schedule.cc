#include "tessera/pipeline/verify_schedule.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/pipeline/schedule_text.h"

namespace tessera::pipeline {
namespace {

using enum PhaseKind;

using Key = std::tuple<PhaseKind, int, int>;  // kind, chunk, micro-batch
Key key_of(const Phase& phase) { return {phase.kind, phase.chunk, phase.micro_batch}; }

class Verification {
 public:
  Verification(const PipelineProblem& problem, const PipelineSchedule& schedule)
      : problem_(problem), schedule_(schedule) {}

  std::vector<std::string> run() {
    if (schedule_.stages.size() != problem_.stages.size()) {
      fault("schedule: {} stages are in the problem, {} in it", problem_.stages.size(), schedule_.stages.size());
      return faults_;
    }
    for (int s = 0; s < problem_.num_stages(); ++s) check_stage(s);
    collect_transfers();
    for (int c = 0; c < problem_.num_chunks(); ++c) {
      for (int k = 0; k < problem_.micro_batches; ++k) check_dependencies(c, k);
    }
    check_lanes();
    check_slots();
    check_memory();
    return faults_;
  }

 private:
  template <typename... Parts>
  void fault(fmt::format_string<Parts...> format, Parts&&... parts) {
    faults_.push_back(fmt::format(format, std::forward<Parts>(parts)...));
  }

  bool exists(const Phase& phase) const {
    if (phase.kind == kWeightGradient && !problem_.split_backward) return false;
    return phase.kind != kUpdate && phase.chunk >= 0 && phase.chunk < problem_.num_chunks() && phase.micro_batch >= 0 &&
           phase.micro_batch < problem_.micro_batches;
  }
  int stage_of(int chunk) const { return problem_.chunks[static_cast<size_t>(chunk)].stage; }

  void check_stage(int s) {
    const auto& phases = schedule_.stages[static_cast<size_t>(s)];
    int updates = 0;
    int64_t end = 0;
    for (size_t i = 0; i < phases.size(); ++i) {
      const auto& timed = phases[i];
      if (timed.start_ns < end) {
        fault("{} on stage {}: starts at {}, before {}, when {}", to_string(timed.phase), s, timed.start_ns, end,
              i == 0 ? "the step begins" : "the phase before it ends");
      }
      end = std::max(end, timed.end_ns);
      if (timed.phase.kind == kUpdate) {
        ++updates;
        if (i + 1 != phases.size())
          fault("update on stage {}: must be its last phase, {} follow", s, phases.size() - 1 - i);
      } else if (!exists(timed.phase)) {
        fault("{} on stage {}: the problem has no such phase", to_string(timed.phase), s);
        continue;
      } else if (stage_of(timed.phase.chunk) != s) {
        fault("{} on stage {}: its chunk is on stage {}", to_string(timed.phase), s, stage_of(timed.phase.chunk));
      } else if (!phases_.emplace(key_of(timed.phase), timed).second) {
        fault("{} on stage {}: is there more than once", to_string(timed.phase), s);
      }
      if (const auto ns = phase_ns(problem_, timed.phase, s); timed.end_ns - timed.start_ns != ns) {
        fault("{} on stage {}: takes {}, the problem says {}", to_string(timed.phase), s, timed.end_ns - timed.start_ns,
              ns);
      }
    }
    if (updates != 1) fault("stage {}: must have one update, has {}", s, updates);
  }

  // The border that a phase sends over, if it does.
  std::optional<int> border_of(const Phase& sender) const {
    if (sender.kind == kForward && sender.chunk + 1 < problem_.num_chunks() && problem_.crosses(sender.chunk)) {
      return sender.chunk;
    }
    if (sender.kind == kBackward && sender.chunk > 0 && problem_.crosses(sender.chunk - 1)) return sender.chunk - 1;
    return std::nullopt;
  }
  const TransferTime& time_of(const Phase& sender) const {
    const auto& border = problem_.borders[static_cast<size_t>(*border_of(sender))];
    return sender.kind == kForward ? border.forward : border.backward;
  }
  static Phase receiver_of(const Phase& sender) {
    return {sender.kind, sender.chunk + (sender.kind == kForward ? 1 : -1), sender.micro_batch};
  }
  const TimedPhase* find(const Phase& phase) const {
    const auto found = phases_.find(key_of(phase));
    return found == phases_.end() ? nullptr : &found->second;
  }

  void collect_transfers() {
    for (const auto& transfer : schedule_.transfers) {
      const auto name = "transfer of " + to_string(transfer.sender);
      if (!exists(transfer.sender) || !border_of(transfer.sender)) {
        fault("{}: that phase sends nothing to another stage", name);
        continue;
      }
      if (!transfers_.emplace(key_of(transfer.sender), transfer).second) fault("{}: is there more than once", name);
      const auto& time = time_of(transfer.sender);
      if (transfer.arrival_ns - transfer.start_ns != time.duration_ns + time.latency_ns) {
        fault("{}: takes {}, the problem says {}", name, transfer.arrival_ns - transfer.start_ns,
              time.duration_ns + time.latency_ns);
      }
      const auto* sender = find(transfer.sender);
      if (sender != nullptr && transfer.start_ns < sender->end_ns) {
        fault("{}: starts at {}, its sender ends at {}", name, transfer.start_ns, sender->end_ns);
      }
    }
  }

  // That `phase` starts after `before`, and after its message has arrived.
  void require_after(const TimedPhase& phase, const Phase& before) {
    if (border_of(before) && before.kind == phase.phase.kind) {
      const auto transfer = transfers_.find(key_of(before));
      if (transfer == transfers_.end()) {
        fault("transfer of {}: is missing", to_string(before));
      } else if (phase.start_ns < transfer->second.arrival_ns) {
        fault("{}: starts at {}, its message arrives at {}", to_string(phase.phase), phase.start_ns,
              transfer->second.arrival_ns);
      }
      return;
    }
    const auto* earlier = find(before);
    if (earlier != nullptr && phase.start_ns < earlier->end_ns) {
      fault("{}: starts at {}, {} ends at {}", to_string(phase.phase), phase.start_ns, to_string(before),
            earlier->end_ns);
    }
  }

  // The phase where it is there, else a fault.
  const TimedPhase* require(const Phase& phase) {
    const auto* found = find(phase);
    if (found == nullptr) fault("{}: is missing", to_string(phase));
    return found;
  }

  void check_dependencies(int c, int k) {
    if (const auto* forward = require({kForward, c, k}); forward != nullptr && c > 0) {
      require_after(*forward, {kForward, c - 1, k});
    }
    if (const auto* backward = require({kBackward, c, k}); backward != nullptr) {
      require_after(*backward, {kForward, c, k});
      if (c + 1 < problem_.num_chunks()) require_after(*backward, {kBackward, c + 1, k});
    }
    if (!problem_.split_backward) return;
    if (const auto* gradient = require({kWeightGradient, c, k}); gradient != nullptr) {
      require_after(*gradient, {kBackward, c, k});
    }
  }

  void check_lanes() {
    std::map<std::pair<int, int>, std::vector<const TimedTransfer*>> lanes;
    for (const auto& [key, transfer] : transfers_) {
      lanes[{stage_of(transfer.sender.chunk), stage_of(receiver_of(transfer.sender).chunk)}].push_back(&transfer);
    }
    for (auto& [lane, transfers] : lanes) {
      const auto end = [&](const TimedTransfer* t) { return t->start_ns + time_of(t->sender).duration_ns; };
      std::sort(transfers.begin(), transfers.end(), [&](const auto* a, const auto* b) {
        return std::pair(a->start_ns, end(a)) < std::pair(b->start_ns, end(b));
      });
      for (size_t i = 1; i < transfers.size(); ++i) {
        if (transfers[i]->start_ns >= end(transfers[i - 1])) continue;
        fault("transfer of {}: starts at {}, the lane from stage {} to {} carries that of {} until {}",
              to_string(transfers[i]->sender), transfers[i]->start_ns, lane.first, lane.second,
              to_string(transfers[i - 1]->sender), end(transfers[i - 1]));
      }
    }
  }

  void check_slots() {
    std::map<std::pair<PhaseKind, int>, std::vector<std::pair<int64_t, int>>> borders;  // time, +1 taken or -1 free
    for (const auto& [key, transfer] : transfers_) {
      const auto* receiver = find(receiver_of(transfer.sender));
      if (receiver == nullptr) continue;
      auto& changes = borders[{transfer.sender.kind, *border_of(transfer.sender)}];
      changes.emplace_back(transfer.start_ns, 1);
      changes.emplace_back(receiver->end_ns, -1);
    }
    for (auto& [border, changes] : borders) {
      std::sort(changes.begin(), changes.end());
      int used = 0;
      int most = 0;
      for (const auto& change : changes) most = std::max(most, used += change.second);
      if (most > problem_.slots) {
        fault("border {} {}: has {} slots, {} messages are on the way or unread at a time", border.second,
              to_string(border.first), problem_.slots, most);
      }
    }
  }

  void check_memory() {
    for (int s = 0; s < problem_.num_stages(); ++s) {
      // By time, not by the order that the schedule claims: what is freed at a time is there for what starts then.
      std::vector<std::pair<int64_t, int64_t>> changes;
      for (const auto& [key, timed] : phases_) {
        const auto& phase = timed.phase;
        if (stage_of(phase.chunk) != s) continue;
        const int64_t taken = problem_.chunks[static_cast<size_t>(phase.chunk)].activation_bytes;
        const int64_t left = problem_.kept_after_backward(phase.chunk);
        if (phase.kind == kForward) changes.emplace_back(timed.start_ns, taken);
        if (phase.kind == kBackward) changes.emplace_back(timed.end_ns, left - taken);
        if (phase.kind == kWeightGradient) changes.emplace_back(timed.end_ns, -left);
      }
      std::sort(changes.begin(), changes.end());
      int64_t held = problem_.slot_bytes(s);
      int64_t most = held;
      for (const auto& change : changes) most = std::max(most, held += change.second);
      const int64_t limit = problem_.stages[static_cast<size_t>(s)].memory_limit_bytes;
      if (most > limit) fault("stage {}: holds up to {} bytes, its limit is {}", s, most, limit);
    }
  }

  const PipelineProblem& problem_;
  const PipelineSchedule& schedule_;
  std::map<Key, TimedPhase> phases_;
  std::map<Key, TimedTransfer> transfers_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> verify(const PipelineProblem& problem, const PipelineSchedule& schedule) {
  return Verification(problem, schedule).run();
}

}  // namespace tessera::pipeline
