// What a JobScheduler remembers of a node and of a peer; for its sources only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cluster/rendezvous/membership/job_scheduler.h"

namespace tessera::cluster::rendezvous {

// Of whom a peer is that registers a node, beside the incarnation that has it.
enum class Incarnation : uint8_t { kOlder, kSame, kNewer };

struct JobScheduler::Node {
  std::string host;
  std::string address;
  uint64_t incarnation = 0;
  uint64_t clock_id = 0;
  uint64_t started_ns = 0;  // of its process; 0: none has registered
  uint64_t token = 0;
  uint64_t program = 0;  // as its launcher has said; 0: it has not
  std::optional<uint32_t> rank;
  PeerId worker = 0;    // its own process's connection; 0: none
  PeerId launcher = 0;  // that of what starts it
  bool is_started = false;
  bool is_ready = false;  // it has registered for the next generation, or is in this one
  bool is_lost = false;
  bool is_end_awaited = false;  // it was lost while its process lived: that the process has ended is no news
  bool is_dropped = false;      // the job goes on without it, or ends without it
  bool is_taken_in = false;     // by a job that ran, and no process of it has joined yet
  bool has_left = false;
  bool is_server = false;     // it keeps parameters
  bool has_finished = false;  // its own process has said so
  int64_t heard_ms = 0;
  int64_t deadline_ms = 0;  // it is lost then
  int64_t lost_ms = 0;      // when it was lost
  // Since when its process, which is not connected and which others wait for, does nothing, as its launcher says.
  std::optional<int64_t> idle_since_ms;
  Heartbeat said = {};                     // the latest of its own process
  std::string figures;                     // likewise; "" where it has told none
  std::optional<std::string> unsaved_for;  // as FixRanks has it; nullopt where its process has not said it
  uint64_t ended_ns = 0;                   // when its latest process ended, as was said of it

  // What an older incarnation has started may come late. Clocks of two hosts tell nothing of each other: there, who was
  // welcome before has been replaced since.
  Incarnation incarnation_of(const Register& message) const {
    if (message.incarnation == incarnation) return Incarnation::kSame;
    const bool is_of_one_clock = message.clock_id != 0 && message.clock_id == clock_id;
    const bool is_older = is_of_one_clock ? message.incarnation < incarnation : message.token != 0;
    return is_older ? Incarnation::kOlder : Incarnation::kNewer;
  }
  bool is_present() const { return is_ready && !is_lost && (has_left || is_connected()); }
  bool is_connected() const { return worker != 0 || (!is_started && launcher != 0); }
};

struct JobScheduler::Peer {
  PeerId id = 0;
  PeerIdentity identity;
  std::optional<PeerRole> role;  // once it has registered
  std::vector<std::string> node_ids;
  uint64_t generation = 0;  // that it knew when it said its last message
};

// Tells whether a peer that has shown who it is may act so.
inline bool may_be(const PeerIdentity& identity, PeerRole role) {
  if (!identity.is_certified || identity.role == CertificateRole::kWorker) return true;
  return identity.role == CertificateRole::kObserver && role == PeerRole::kObserver;
}

}  // namespace tessera::cluster::rendezvous
