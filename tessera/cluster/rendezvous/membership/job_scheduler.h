// JobScheduler: who belongs to a job, which rank each has, and which generation it is. It is a state machine: peers
// connect, say messages and go, time passes, and what it wants to tell them is taken from it. It knows no sockets,
// reads the time from a Clock that is passed in, and throws nothing on what a peer says. Not thread-safe.
//
// A node is a rank's place: a node id, which outlives the processes that take it. Nodes register, by their own process
// or by a launcher that will start it; when all are there they get ranks, ordered by host and node id, and a generation
// begins. A node keeps its rank over restarts, its own and the scheduler's. The newer incarnation of a node wins, and
// the older one is fenced. A node that is lost ends the generation: the job fails, or the next generation begins when
// it has been started again and the others have registered anew (`max_restarts`). An elastic job (`min_ranks`) goes on
// without it when it does not come back, and takes in newcomers: each of its generations has a number of ranks of its
// own. Newcomers beyond `max_ranks` are spares, which wait until a node is lost. Where a loss ends the job, the nodes
// that are left make a last generation, if their ranks have said that they would save there what they have kept.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/cluster/hub/stored_values.h"
#include "tessera/cluster/rendezvous/membership/scheduler_state.h"
#include "tessera/cluster/rendezvous/messages/messages.h"
#include "tessera/cluster/tls/peer_identity.h"

namespace tessera::cluster::rendezvous {

struct SchedulerOptions {
  int num_workers = 1;
  // So often a node may be lost and the job goes on, in another generation, when it is back. 0: its loss is the job's
  // end.
  int64_t max_restarts = 0;
  int64_t join_timeout_ms = 600000;  // until all nodes are there, at the start and after a loss
  int64_t heartbeat_ms = 3000;       // so often peers show that they live
  // A node that says nothing for so long is lost; so is one whose process does nothing for so long before it joins.
  int64_t node_timeout_ms = 30000;
  int64_t reconnect_ms = 5000;  // so is one whose connection has ended, after this
  // An elastic job has from min_ranks to max_ranks nodes from its second generation on: those that are there. One that
  // is lost, and is not back rank_timeout_ms later, is dropped; when max_restarts are used up, at once. 0: the number
  // of nodes stays num_workers.
  int min_ranks = 0;
  int max_ranks = 0;
  int64_t rank_timeout_ms = 60000;
  // So many nodes more may wait without a rank, in an elastic job: where one is lost, one of these takes its rank at
  // once, and no restart is used up.
  int spares = 0;
  // Whether ranks tell how their trainings go.
  bool wants_figures = false;
  // Whether another scheduler may have this one's state when this one has died.
  bool keeps_state = false;

  bool is_elastic() const { return min_ranks > 0; }
  bool recovers() const { return max_restarts > 0 || is_elastic(); }
};

using PeerId = uint64_t;

// What a peer is to be told. `ends`: its connection ends then.
struct ToPeer {
  PeerId peer = 0;
  uint64_t generation = 0;
  Message message;
  bool ends = false;
};

class JobScheduler {
 public:
  // `saved`: what an earlier scheduler of this job has left; empty at first. Throws InvalidArgument where it is of a
  // job with another number of workers.
  JobScheduler(const SchedulerOptions& options, Clock& clock, const SchedulerState& saved = {},
               const Quotas& quotas = {});

  ~JobScheduler();

  // A peer has connected, and its handshake has shown who it is.
  void connect(PeerId peer, const PeerIdentity& identity);
  void receive(PeerId peer, uint64_t generation, const Message& message);
  void disconnect(PeerId peer);
  // To be called every 100 ms or so: time-outs pass.
  void tick();

  // What peers are to be told, in this order; empty afterwards. Before they hear it, state() must be saved where
  // take_is_dirty() is true.
  std::vector<ToPeer> take_messages();
  // Bytes of the large ones among them, about: answers with values, and the status.
  size_t untold_bytes() const { return untold_bytes_; }
  bool take_is_dirty();
  // What has happened to the job, for people, a line each; empty afterwards.
  std::vector<std::string> take_news();
  const SchedulerState& state() const { return state_; }
  uint64_t generation() const { return state_.generation; }

  JobPhase phase() const { return phase_; }
  // The job is over, and everybody has been told.
  bool is_over() const { return phase_ == JobPhase::kFinished || phase_ == JobPhase::kFailed; }
  const std::string& failure() const { return failure_; }
  bool is_member(PeerId peer) const;
  JobStatus status() const;
  // What the node's process has told last of its training, as it came; "" where it has told nothing.
  std::string figures_of(const std::string& node_id) const;
  // The nodes that are waited for, for people: "2 of 4 workers: a, b have come".
  std::string who_is_missing() const;

 private:
  // How it is known that a node is lost: its process has ended, says nothing, or has said itself that it fails.
  enum class LostBy : uint8_t { kEnd, kSilence, kOwnWord };
  struct Node;
  struct Peer;

  void take(Peer& peer, const Register& message);
  void take(Peer& peer, const Heartbeat& message);
  void take(Peer& peer, const SetValue& message);
  void take(Peer& peer, const GetValue& message);
  void take(Peer& peer, const SetBlob& message);
  void take(Peer& peer, const GetBlob& message);
  void take(Peer& peer, const Leave& message);
  void take(Peer& peer, const AskStatus& message);
  void take(Peer& peer, const ForgetValue& message);
  void take(Peer& peer, const ResizeJob& message);
  void take(Peer& peer, const FixRanks& message);
  void take(Peer& peer, const TellFigures& message);
  void take(Peer& peer, const TellLastSave& message);
  template <typename OfScheduler>
  void take(Peer& peer, const OfScheduler& message);

  std::string why_not(const Peer& peer, const Register& message, const std::vector<std::string>& node_ids) const;
  bool is_other_program(const Register& message) const;
  bool may_speak_for(const Peer& peer, const Node& node) const;
  // A node of a generation that has ended, whose process still works in it.
  bool is_behind(const Node& node) const;
  void attach(Peer& peer, const std::string& id, const Register& message);
  void fence(PeerId peer, const std::string& reason);
  void drop_lost_for(size_t num_new);
  void replace_lost(size_t num_new);
  // In an elastic job, whose nodes may come and go.
  bool may_resize() const { return options_.is_elastic() && state_.fixed_by.empty(); }
  // How many nodes the job may have, how many of them may have ranks, and with how many the next generation begins.
  size_t num_places() const;
  size_t most_ranks() const;
  size_t num_wanted() const;
  // Of the nodes that are there, those that have a rank in the next generation.
  std::set<std::string> next_members() const;
  bool has_spare() const;
  // Whether a scheduler that has just been started again gives the spares that it may have had time to come back.
  bool awaits_spares() const;
  // Losses that were said meanwhile.
  void take_held_losses();
  bool is_complete() const;
  // A node that waits until the generation ends.
  bool is_newcomer(const Node& node) const;
  size_t num_newcomers() const;
  void tell_workers();
  HeartbeatAnswer heartbeat_answer();
  // Asks the ranks to save and stop, of a job that cannot have this number of them.
  void ask_to_stop(uint32_t num_ranks);
  bool is_dropped(const std::string& node_id, uint64_t incarnation) const;
  std::vector<std::string> without_dropped(const Register& message) const;
  // Whether so many nodes fewer are enough.
  bool can_drop(size_t count = 1) const;
  // The running generation ends with the loss of a node, and the next one does without it.
  void go_on_without(const std::string& node_id, const std::string& reason, LostBy by);
  // Nodes that were lost and have not come back in time.
  void drop_late();
  void drop(const std::string& node_id, const std::string& reason);
  void tell_dropped(const std::string& node_id, const std::string& reason);
  void forget_dropped(const std::string& node_id, const std::string& reason);
  std::string why_not_resize(uint32_t num_ranks) const;
  // Why nothing would be left of the job if it was asked to stop: of several ranks that say so, the first one's words.
  std::string why_unsaved() const;
  // The words for a loss that ends the job, though it is an elastic one.
  std::string why_over(const std::string& reason) const;
  void begin_generation();
  void give_ranks(const std::set<std::string>& members);
  // Whether all nodes are on one host, as far as their addresses are known.
  bool is_one_host() const;
  void tell_ranks(Peer& peer, bool is_one_host);
  bool hangs(Node& node, bool is_idle);
  void lose(Node& node, const std::string& reason, LostBy by, bool for_good = false);
  void lose_hanging(const std::string& node_id);
  // One more. Returns whether the job survives it.
  bool count_loss();
  void end_if_all_left();
  // The job ends by a loss, that of the node, or of all that are not there where it is "": by way of a last generation,
  // where that saves.
  void end_by_loss(const std::string& node_id, const std::string& reason, LostBy by = LostBy::kEnd);
  // A loss while the job ends so.
  void go_on_ending(const std::string& node_id, const std::string& reason);
  // Why the job ends with its last generation, and what that has saved; `otherwise` where it has not said so.
  std::string why_last(const std::string& otherwise) const;
  // The nodes that the last generation is without.
  std::vector<std::string> find_gone(const std::string& node_id) const;
  int64_t num_with_rank() const;
  // Whether the next generation, or this one, is the last.
  bool is_ending() const { return !last_reason_.empty(); }
  bool is_of_ended_generation(const Peer& peer) const;
  void end_generation(const std::string& node_id, bool is_lost, const std::string& reason, LostBy by = LostBy::kEnd);
  void end_job(bool failed, const std::string& node_id, const std::string& reason);
  // The job is over, for this scheduler or for an earlier one.
  void take_end(const JobEnded& end);
  void tell(PeerId peer, Message message, bool ends = false);
  void tell_members(const Message& message, bool ends = false);
  void refuse(const Peer& peer, const std::string& reason);
  size_t num_present() const;
  int32_t rank_of(const std::string& node_id) const;
  // "node a (rank 1 at 10.0.0.2)", for people.
  std::string named(const std::string& node_id) const;
  void record();
  int64_t now_ms() const { return clock_.monotonic_ns() / 1'000'000; }
  void note_heard(Node& node) const;

  SchedulerOptions options_;
  Clock& clock_;
  SchedulerState state_;
  bool is_dirty_ = false;
  JobPhase phase_ = JobPhase::kWaiting;
  std::string failure_;
  JobEnded ended_;  // what its members were told when it was over
  int64_t started_ms_ = 0;
  int64_t waiting_since_ms_ = 0;
  int64_t ticked_ms_ = 0;
  std::map<std::string, Node> nodes_;
  std::map<PeerId, Peer> peers_;
  StoredValues values_;  // a node's
  // Whether the generation has ended, or ends, without a loss that is counted: its ranks began anew by themselves.
  bool has_ended_by_itself_ = false;
  std::vector<std::pair<PeerId, Leave>> held_losses_;
  bool is_started_again_ = false;
  std::string stop_reason_;                // why the ranks are to save and stop
  std::optional<TellLastSave> last_save_;  // what the ranks have said last
  std::string last_reason_;                // as Assigned has it
  std::vector<ToPeer> messages_;
  size_t untold_bytes_ = 0;
  std::vector<std::string> news_;
};

}  // namespace tessera::cluster::rendezvous
