// A scheduler with peers that are numbers, on a clock that stands still until it is moved; for tests.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/cluster/rendezvous/membership/job_scheduler.h"

namespace tessera::cluster::rendezvous {

// What the scheduler says is kept by peer.
class Job {
 public:
  explicit Job(SchedulerOptions options, const SchedulerState& saved = {}, const Quotas& quotas = {})
      : scheduler(options, clock, saved, quotas) {}

  PeerId connect(const PeerIdentity& identity = {.address = "10.0.0.1"}) {
    scheduler.connect(++last, identity);
    return last;
  }
  void say(PeerId peer, const Message& message, std::optional<uint64_t> generation = {}) {
    scheduler.receive(peer, generation.value_or(scheduler.generation()), message);
    listen();
  }
  // Connects and registers a worker.
  PeerId join(const std::string& node_id, uint64_t incarnation = 1, const std::string& host = "left",
              uint64_t token = 0, uint64_t generation = 0) {
    const PeerId peer = connect();
    say(peer, Register{.incarnation = incarnation, .token = token, .host = host, .node_ids = {node_id}}, generation);
    return peer;
  }
  // The same of a process that has begun at `started_ns`: the first one of its incarnation, or one that begins anew.
  PeerId begin(const std::string& node_id, uint64_t started_ns, uint64_t generation = 0) {
    const PeerId peer = connect();
    say(peer, Register{.incarnation = 1, .started_ns = started_ns, .host = "left", .node_ids = {node_id}}, generation);
    return peer;
  }
  // Connects and registers what starts these nodes.
  PeerId launch(const std::vector<std::string>& node_ids) {
    const PeerId peer = connect();
    say(peer, Register{.role = PeerRole::kLauncher, .incarnation = 1, .host = "left", .node_ids = node_ids}, 0);
    return peer;
  }
  void pass(int64_t ms) {
    for (; ms > 0; ms -= 100) {
      clock.sleep_ms(std::min<int64_t>(ms, 100));
      scheduler.tick();
      listen();
    }
  }
  void beat(const std::vector<PeerId>& peers) {
    for (const PeerId peer : peers) say(peer, Heartbeat{});
  }
  void listen() {
    for (ToPeer& told : scheduler.take_messages()) {
      if (told.ends) {
        scheduler.disconnect(told.peer);
        ended.push_back(told.peer);
      }
      heard[told.peer].push_back(std::move(told));
    }
  }
  template <typename Body>
  const Body* last_of(PeerId peer) {
    const Body* found = nullptr;
    for (const ToPeer& told : heard[peer]) {
      if (const auto* body = std::get_if<Body>(&told.message)) found = body;
    }
    return found;
  }
  std::string refusal_of(PeerId peer) {
    const auto* refused = last_of<Refused>(peer);
    return refused == nullptr ? "" : refused->reason;
  }
  int rank_of(PeerId peer) {
    const auto* assigned = last_of<Assigned>(peer);
    return assigned == nullptr ? -1 : static_cast<int>(assigned->nodes.at(0).rank);
  }

  FakeClock clock;
  JobScheduler scheduler;
  PeerId last = 0;
  std::map<PeerId, std::vector<ToPeer>> heard;
  std::vector<PeerId> ended;
};

}  // namespace tessera::cluster::rendezvous
