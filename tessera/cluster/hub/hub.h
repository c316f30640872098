// The hub of a job: a small server in rank 0's process to which every rank, rank 0 included, holds one connection for
// as long as the job lasts. It is the Store of the rendezvous, it tells all ranks when one fails, and since a
// connection ends with its process, a killed rank is known at once.
//
// All is said in TLS 1.3, where only those join who know the job's secret (hub_frame.h has the wire). Whatever anybody
// else sends neither ends the process nor keeps a rank out: it costs that connection. docs/security.md says what is
// promised against whom.
//
// Addresses: `unix:NAME` (Linux's abstract sockets, which leave no file behind; only this user's processes get through)
// or `tcp:HOST:PORT`, PORT 0 for any.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cluster/ranks/rank_context.h"
#include "tessera/comm/job_state.h"
#include "tessera/comm/store.h"
#include "tessera/comm/wire/secret.h"

namespace tessera::cluster {

struct HubOptions {
  std::string address;
  std::string job_id;  // peers of another job are refused
  int size = 1;
  int64_t timeout_ms = 30000;  // until all ranks have joined
  comm::Secret secret;         // none: only at a unix address
};

class HubServer {
 public:
  // Listens, and serves from a thread of its own. Throws IoError when the address is taken or cannot be had,
  // InvalidArgument for a tcp address without a secret.
  explicit HubServer(const HubOptions& options);
  ~HubServer();

  // The address with the port that was chosen.
  const std::string& address() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A HubClient is one rank's connection to the hub. It is thread-safe.
class HubClient final : public comm::Store, public Membership {
 public:
  // Connects, trying again until a server is there that knows the secret, and waits until all ranks have joined. `host`
  // tells which ranks share a host. Failures and ends of other ranks are recorded in `job`; so is a hub that sends what
  // it must not, as rank 0's failure. Throws IoError naming who is missing or refused.
  HubClient(const HubOptions& options, int rank, const std::string& host, std::shared_ptr<comm::JobState> job);
  ~HubClient() override;

  // What each rank gave as `host`.
  const std::vector<std::string>& hosts() const;
  // This host's address on the way to the hub; empty for unix sockets.
  std::string local_ip() const;

  // A name has at most 256 bytes, a value 1 MiB, a rank's values together 8 MiB.
  void set(const std::string& name, const std::string& value) override;
  std::string get(const std::string& name, int64_t timeout_ms) override;
  std::optional<std::string> find(const std::string& name, int64_t limit_ms) override;
  void forget(const std::string& name) override;
  // Asks these ranks what they do, for one that waits in `place`. Returns by rank what doing_of() says there; ranks
  // that do not answer within `limit_ms` are left out.
  std::map<int, std::string> ask(const std::vector<int>& ranks, const std::string& place, int64_t limit_ms);
  // Returns when the other ranks have been told.
  void announce_failure(int origin, const std::string& message) override;
  void finish() override;
  void on_asked(std::function<void()> asked) override;
  // Nothing is heard and told from here on. Not to be called by two threads at a time.
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::cluster
