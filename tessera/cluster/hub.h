// The hub of a job: a small server in rank 0's process to which every rank, rank 0 included, holds one connection for
// as long as the job lasts. It is the Store of the rendezvous, it tells all ranks when one fails, and since a
// connection ends with its process, a killed rank is known at once.
//
// Addresses: `unix:NAME` (Linux's abstract sockets, which leave no file behind) or `tcp:HOST:PORT`, PORT 0 for any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/cluster/rank_context.h"
#include "tessera/comm/job_state.h"
#include "tessera/comm/store.h"

namespace tessera::cluster {

struct HubOptions {
  std::string address;
  std::string job_id;  // peers of another job are refused by name
  int size = 1;
  int64_t timeout_ms = 30000;  // until all ranks have joined
};

class HubServer {
 public:
  // Listens, and serves from a thread of its own. Throws IoError when the address is taken or cannot be had.
  explicit HubServer(const HubOptions& options);
  ~HubServer();

  // With the port that was chosen.
  const std::string& address() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One rank's connection. Thread-safe.
class HubClient final : public comm::Store, public Membership {
 public:
  // Connects, waiting until the server is there, and waits until all ranks have joined. `host` tells which ranks share
  // a host. Failures and ends of other ranks are recorded in `job`. Throws IoError naming who is missing or refused.
  HubClient(const HubOptions& options, int rank, const std::string& host, std::shared_ptr<comm::JobState> job);
  ~HubClient() override;

  // What each rank gave as `host`.
  const std::vector<std::string>& hosts() const;
  // This host's address on the way to the hub; empty for unix sockets.
  std::string local_ip() const;

  void set(const std::string& name, const std::string& value) override;
  std::string get(const std::string& name, int64_t timeout_ms) override;
  // Returns when the other ranks have been told.
  void announce_failure(const std::string& message) override;
  void finish() override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::cluster
