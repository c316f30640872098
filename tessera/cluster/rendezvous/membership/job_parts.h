// What a JobScheduler remembers of a node and of a peer; for its sources only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cluster/rendezvous/membership/job_scheduler.h"

namespace tessera::cluster::rendezvous {

struct JobScheduler::Node {
  std::string host;
  std::string address;
  uint64_t incarnation = 0;
  uint64_t started_ns = 0;  // of its process; 0: none has registered
  uint64_t token = 0;
  std::optional<uint32_t> rank;
  PeerId worker = 0;    // its own process's connection; 0: none
  PeerId launcher = 0;  // that of what starts it
  bool is_started = false;
  bool is_ready = false;  // it has registered for the next generation, or is in this one
  bool is_lost = false;
  bool is_end_awaited = false;  // it was lost while its process lived: that the process has ended is no news
  bool has_left = false;
  bool is_server = false;     // it keeps parameters
  bool has_finished = false;  // its own process has said so
  int64_t heard_ms = 0;
  int64_t deadline_ms = 0;  // it is lost then
  int64_t step = 0;
  uint64_t ended_ns = 0;  // when its latest process ended, as was said of it

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
