// RendezvousClient: a worker's or a launcher's part of the rendezvous, in a thread of its own. It connects and
// registers again whenever its connection ends, also where the scheduler has died and another one stands at its
// address; what it has stored and asked for is said again. A worker belongs to one generation, and begins anew for the
// next one, with a client of its own; a launcher goes through all of them. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cluster/rendezvous/host_port.h"
#include "tessera/cluster/rendezvous/messages/messages.h"
#include "tessera/cluster/tls/tls_options.h"
#include "tessera/comm/store.h"

namespace tessera::cluster::rendezvous {

struct ClientOptions {
  HostPort scheduler;
  TlsOptions tls;
  PeerRole role = PeerRole::kWorker;
  std::string host;                   // this host's name
  std::vector<std::string> node_ids;  // of a worker one
  uint64_t incarnation = 0;           // 0: a new one, which begins now
  uint64_t token = 0;                 // that this incarnation was given, where the process has begun anew
  int num_workers = 0;                // 0: the scheduler knows
  int num_servers = 0;                // so many of the nodes, the first ones, keep parameters
  uint64_t program = 0;               // as Register has it
  int64_t join_timeout_ms = 600000;   // until the first generation begins
  // Where the secret is from, for people. A peer that no scheduler has welcomed yet is refused at last where for so
  // long, and several times, who answers has had another secret: one that is started again has the same.
  std::string secret_origin = {};
  int64_t refusal_ms = 5000;
  int64_t quiet_ms = 5000;  // a scheduler that is sought for longer is spoken of in the log
  // Of a launcher: says for each heartbeat which nodes are idle, see Heartbeat. Called from the client's thread, with
  // the time after which a silent node is lost.
  std::function<std::vector<uint32_t>(int64_t node_timeout_ms)> find_idle = {};
};

// A generation, as a peer is told of it.
struct Generation {
  uint64_t number = 0;
  int size = 0;
  bool is_one_host = false;
  int num_servers = 0;               // the job's first ranks
  std::map<std::string, int> ranks;  // of the peer's nodes
  std::string last_reason = {};      // as Assigned has it
};

// What ends a generation, or the peer's part in it.
struct RendezvousEnd {
  // kNodeDropped ends nothing of a launcher but the part of one of its nodes; a worker is fenced then.
  enum class Kind : uint8_t { kGenerationEnded, kFenced, kJobFailed, kJobFinished, kRefused, kNodeDropped };
  Kind kind = Kind::kGenerationEnded;
  int rank = -1;                // with whose failure it ended; -1: not known
  std::string node_id;          // its node; "": not known
  bool is_lost = false;         // that node
  bool ends_by_itself = false;  // its process, which has said itself that it fails
  uint64_t num_losses = 0;      // of the job so far
  std::string reason;
  uint64_t generation = 0;  // that has ended
  bool ends_job = false;    // of a node that is dropped: the job cannot go on without it

  // The job has ended the generation to go on with another number of ranks, and nobody has failed.
  bool is_planned() const { return kind == Kind::kGenerationEnded && node_id.empty() && !is_lost && generation > 0; }
};

class RendezvousClient final : public comm::Store {
 public:
  // Starts connecting. `ended` is called from the client's thread for each end that it hears of; it must not call this
  // object. Throws InvalidArgument for files of certificates that cannot be used.
  RendezvousClient(const ClientOptions& options, std::function<void(const RendezvousEnd&)> ended);
  ~RendezvousClient() override;

  // Waits until all nodes of the job are there and have ranks; a newcomer, as long as that takes. Throws IoError:
  // refused, fenced, the job has failed, or nobody has answered within the time to join, naming the last reason.
  Generation wait_for_generation();
  // The same, but nothing where they have none within `limit_ms`; to be asked again. Throws for the ends only.
  std::optional<Generation> find_generation(int64_t limit_ms);
  uint64_t incarnation() const;
  // What the scheduler knows this incarnation by; 0 before it has answered.
  uint64_t token() const;
  // So often a node may be lost and the job goes on when it is back; 0 before the scheduler has answered.
  uint64_t max_restarts() const;
  // Whether the job may go on with another number of ranks, and whether it goes on after a loss at all; false before
  // the scheduler has answered.
  bool is_elastic() const { return min_ranks() > 0; }
  // The least number of ranks that an elastic job goes on with; 0 where its number stays.
  int min_ranks() const;
  bool recovers() const { return max_restarts() > 0 || is_elastic(); }
  // Whether this peer's nodes wait to be taken in by an elastic job that runs.
  bool is_newcomer() const;
  // Whether it is one that takes part only once a rank is lost.
  bool is_spare() const;
  // Whether it is connected, and the scheduler has taken it in.
  bool is_registered() const;
  // Whether the job has ended, and has not failed.
  bool has_finished() const;
  // How many nodes do, as the scheduler has said last.
  int num_newcomers() const;
  // The newest generation that has begun; number 0 where none has.
  Generation generation() const;
  // This host's address on the way to the scheduler; "" while there is no connection.
  std::string own_address() const;

  void set(const std::string& name, const std::string& value) override;
  std::string get(const std::string& name, int64_t timeout_ms) override;
  std::optional<std::string> find(const std::string& name, int64_t limit_ms) override;
  void forget(const std::string& name) override;

  // Gives the job its state `name` (find_blob_rules()), in place of an earlier one, and returns what the scheduler has
  // then. Throws IoError after `timeout_ms`.
  std::string set_state(const std::string& name, const std::string& bytes, int64_t timeout_ms);
  // The job's state; nullopt where nobody has given it.
  std::optional<std::string> find_state(const std::string& name, int64_t timeout_ms);

  // The training step that this node has finished; told with the next heartbeat.
  void report_step(int64_t step);
  // What else the next heartbeats tell of this node; its step is report_step()'s.
  void report_doing(Heartbeat doing);
  // Whether the scheduler has asked for what report_figures() is given.
  bool wants_figures() const;
  // How this node's training goes, in the text of ranks/training_figures.h; told soon, where the scheduler wants it.
  void report_figures(std::string figures);
  // Ends a node's part in the job; waits up to `limit_ms` until the scheduler has taken that, and what else was to be
  // said of ends, and has saved it where it keeps a state. `for_good`: it does not come back, which ends a job whose
  // number of ranks stays.
  void leave(const std::string& node_id, bool failed, const std::string& reason, int64_t limit_ms = 2000,
             bool for_good = false);
  // Waits up to `limit_ms` until the scheduler has taken all that leave() has said, or the job is over. Returns whether
  // it has.
  bool wait_until_heard(int64_t limit_ms);
  // For so long a scheduler that is started again with its state expects the nodes that it knows to be running; 0 where
  // it keeps none.
  int64_t return_ms() const;
  // From now on leave() says that the node does not come back.
  void leave_for_good();
  // Says that the job cannot go on with another number of ranks, and why, and as FixRanks::unsaved_for what is saved
  // where it is to stop; returns when that is on its way, or after two seconds.
  void fix_ranks(const std::string& reason, const std::string& unsaved_for);
  // Says whether what the job trains would be saved if it ended by a loss, as TellLastSave has it. Returns at once.
  void tell_last_save(bool is_training, const std::string& unsaved_for);
  // What this process has said by fix_ranks() last; "" where it has said nothing.
  std::string fixed_by() const;
  // Why the ranks are to save and stop, as the scheduler has said last; "" where they are not.
  std::string stop_reason() const;
  // Waits until the scheduler has ended the job, or `timeout_ms`.
  bool wait_for_end(int64_t timeout_ms);
  // Nothing is heard and told from here on.
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::cluster::rendezvous
