// The ranks of a wire connect: each with each other one, over TLS, on which both show who they are (greeting.h).
// Whoever else connects costs a place among strangers for some seconds and learns nothing; a connection that fails is
// made again until the time is over.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/cluster/tls/tls_options.h"
#include "tessera/cluster/tls_wire/greeting.h"
#include "tessera/cluster/tls_wire/tls_stream.h"
#include "tessera/comm/job_state.h"
#include "tessera/comm/store.h"

namespace tessera::cluster {

struct MeetingOptions {
  int rank = 0;
  WirePlace place;
  std::string address;                // where the other ranks reach this one: "192.0.2.7"
  TlsOptions tls;                     // certificates where the job has them, else the secret of `place`
  std::vector<std::string> node_ids;  // by rank, where there are certificates: each peer's must be for its node
  int64_t timeout_ms = 30000;
  int64_t bytes_per_key = kBytesPerKey;
  const comm::JobState* job = nullptr;  // whose failure ends the meeting; null: none
  bool ends_together = false;           // who has met all its peers does not wait for those who have given up theirs
};

// A peer that a rank has not met in time.
struct UnmetPeer {
  int rank = 0;
  std::string address;  // its own, or, of a peer that was to come, this rank's
  std::string why;
};

class UnmetPeers : public IoError {
 public:
  UnmetPeers(const std::string& message, std::vector<UnmetPeer> peers) : IoError(message), peers_(std::move(peers)) {}
  const std::vector<UnmetPeer>& peers() const { return peers_; }

 private:
  std::vector<UnmetPeer> peers_;
};

// Returns the connections by rank, null where there is none; all ranks call it. `store` is used only here. Throws
// UnmetPeers naming the ranks that it has not met within the time, and why; PeerFailure as the store does, and where
// the job has failed.
std::vector<std::unique_ptr<TlsStream>> meet_peers(const MeetingOptions& options, comm::Store& store, Clock& clock);

}  // namespace tessera::cluster
