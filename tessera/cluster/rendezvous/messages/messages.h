// What a scheduler and its peers say to each other: a struct for each type of frame, its fields in the order of the
// wire. print_message() and parse_message() are each other's inverses on every message that parses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/cluster/rendezvous/messages/frame.h"

namespace tessera::cluster::rendezvous {

// As whom a peer registers. A launcher speaks for the ranks that it starts; an observer only asks.
enum class PeerRole : uint8_t { kWorker, kLauncher, kObserver };

// Registers nodes: of a worker itself, of a launcher those that it will start.
struct Register {
  PeerRole role = PeerRole::kWorker;
  // When the node's process, or its launcher, came to the job, by its host's clock: a restarted node has a later one,
  // unless its launcher has restarted it or it has begun anew by itself.
  uint64_t incarnation = 0;
  uint64_t clock_id = 0;  // of that clock, see host_clock.h
  // When this process began, by the same clock: of two of one incarnation the later one counts. 0 of a launcher.
  uint64_t started_ns = 0;
  // What Welcome has given this incarnation; 0 before.
  uint64_t token = 0;
  // Ranks of the job, as the peer knows it; 0: it does not.
  uint32_t num_workers = 0;
  std::string host;
  std::vector<std::string> node_ids;
  // So many of them, the first ones, keep parameters: servers have the job's first ranks.
  uint32_t num_servers = 0;
  // Of a launcher: a number for its ranks' program and arguments, equal for equal ones; 0: it does not say.
  uint64_t program = 0;
};

// Shows that a peer lives, how far it is, and for whom it waits. A rank of -1 and a text of "" say nothing.
struct Heartbeat {
  int64_t step = 0;           // the training step that it has finished
  std::string doing = {};     // `matmul "fc", made by model.py:41`
  int32_t waits_for = -1;     // the rank for which it waits long
  std::string waits_in = {};  // `all_reduce "fc" #12 of group "world"`
  int32_t slow_rank = -1;     // the rank for which it has waited most lately
  uint32_t slow_percent = 0;  // of that time
  std::string slow_in = {};   // the calls in which most of it was: `all_reduce "fc" of group "world"`
  // Of a launcher: those of its nodes, by their places in Register::node_ids, whose processes run and have done nothing
  // since the last one.
  std::vector<uint32_t> idle = {};
};

// Stores a value for the ranks of this generation.
struct SetValue {
  std::string name;
  std::string value;
};

// Asks for a value; it is answered when there is one.
struct GetValue {
  std::string name;
};

// Gives the job one of its states, those of find_blob_rules() in scheduler_state.h, in place of an earlier one.
// Answered by BlobAnswer.
struct SetBlob {
  std::string name;
  std::string bytes;
};

// Asks for one; answered by BlobAnswer at once.
struct GetBlob {
  std::string name;
};

// Ends a node's part in the job.
struct Leave {
  std::string node_id;
  uint64_t at_ns = 0;  // when, by the clock of Register::started_ns: of what has started since it says nothing
  bool failed = false;
  std::string reason;
  // It does not come back, as where its machine is taken away or it fails each time: an elastic job goes on without it
  // at once, another one ends.
  bool for_good = false;
};

// Asks for Status.
struct AskStatus {};

// Takes a value of the peer's node back: nobody asks for it any more.
struct ForgetValue {
  std::string name;
};

// Gives an elastic job this number of ranks now; one that cannot have it saves and stops. Answered by JobStatus, or
// refused.
struct ResizeJob {
  uint32_t num_ranks = 0;
};

// Says that what the job trains cannot go on with another number of ranks, and why.
struct FixRanks {
  std::string reason;
  // Why the job would not save what it has if it was asked to stop for another number; "": it would.
  std::string unsaved_for = {};
};

// Says how the training of the peer's node goes, in the text of ranks/training_figures.h, where Welcome has asked for
// it.
struct TellFigures {
  std::string figures;
};

// Says whether the ranks that are left would save what the job trains, where it ended by a loss.
struct TellLastSave {
  bool is_training = false;  // false: nothing is trained, and the other field says nothing
  // Why nothing would be saved; "": they would save.
  std::string unsaved_for = {};
};

// Answers Register.
struct Welcome {
  uint64_t token = 0;
  uint32_t heartbeat_ms = 0;  // so often the peer shows that it lives
  uint32_t timeout_ms = 0;    // after so long without it is lost
  // So often a node may be lost and the job goes on, in another generation, when it is back.
  uint64_t max_restarts = 0;
  // The least number of ranks of an elastic job. 0: it is none, and without restarts a loss is its end.
  uint32_t min_ranks = 0;
  // Of an elastic job that runs: the peer's nodes get ranks when the generation ends.
  bool is_newcomer = false;
  bool is_spare = false;  // a newcomer that there is no room for until a rank is lost
  // Somebody may look how the training of each rank goes.
  bool wants_figures = false;
  // Another scheduler may go on with the job where this one dies.
  bool keeps_state = false;
};

// NodeRank says which rank a node has.
struct NodeRank {
  std::string node_id;
  uint32_t rank = 0;
};

// The ranks of the peer's nodes: a generation begins. It is the frame's.
struct Assigned {
  uint32_t size = 0;
  bool is_one_host = false;  // all ranks have one host's name
  std::vector<NodeRank> nodes;
  uint32_t num_servers = 0;  // the first ranks of the job
  // Of a job's last generation, which those ranks make that a loss has left: why the job ends. They save what they have
  // kept, and stop. "" of any other one.
  std::string last_reason = {};
};

// Answers Heartbeat.
struct HeartbeatAnswer {
  uint32_t num_newcomers = 0;  // nodes that wait until the generation ends
  // Why the ranks are to save the step that they are in, and to stop; "": they are not.
  std::string stop_reason = {};
};

// Answers GetValue.
struct ValueAnswer {
  std::string name;
  std::string value;
};

// Answers SetBlob and GetBlob.
struct BlobAnswer {
  std::string name;
  bool is_there = false;
  std::string bytes;
};

// Ends the generation of the frame. A worker that is still there begins anew, and registers for the next one.
struct GenerationEnded {
  std::string node_id;          // with which it ended
  int32_t rank = -1;            // that node's
  bool is_lost = false;         // that node: who has started its process starts it again
  bool ends_by_itself = false;  // that process, which has said that it fails: it need not be killed
  uint64_t num_losses = 0;      // of the job, this one counted
  std::string reason;
};

// Tells a peer that a newer incarnation of its node has taken its place.
struct Fenced {
  std::string reason;
};

// Refuses what the peer has sent last; the connection ends.
struct Refused {
  std::string reason;
};

// Ends the job.
struct JobEnded {
  bool failed = false;
  std::string node_id;  // whose failure it was; empty: no node's
  int32_t rank = -1;    // that node's; -1: it has none
  std::string reason;
};

enum class JobPhase : uint8_t { kWaiting, kRunning, kFinished, kFailed };
// kBehind: connected, and its process still works in a generation that has ended.
enum class NodeState : uint8_t { kPresent, kSilent, kLost, kLeft, kBehind };

// A node as the scheduler sees it.
struct NodeStatus {
  std::string node_id;
  std::string host;
  NodeState state = NodeState::kPresent;
  bool has_rank = false;
  uint32_t rank = 0;
  bool is_started = false;  // its own process is connected, not only its launcher
  bool is_server = false;   // it keeps parameters
  int64_t heard_ms_ago = 0;
  Heartbeat said = {};  // the latest
};

// BlobStatus names one of the job's states, and says how many bytes it has.
struct BlobStatus {
  std::string name;
  uint64_t size_bytes = 0;
};

// What the scheduler knows of the job.
struct JobStatus {
  JobPhase phase = JobPhase::kWaiting;
  uint32_t num_workers = 0;
  uint32_t num_missing = 0;
  uint64_t up_ms = 0;  // since this scheduler's process started
  std::string reason;  // of a failed job, and of one that is to save and stop
  std::vector<NodeStatus> nodes;
  std::vector<BlobStatus> blobs;
};

// Tells a launcher and a worker that the node has no part in the job any more: its process ends, and is not started
// again.
struct NodeDropped {
  std::string node_id;
  std::string reason;
  // The job cannot go on without it: those that are left make its last generation. Else an elastic job goes on.
  bool ends_job = false;
};

// In the order of all_rules().
using Message =
    std::variant<Register, Heartbeat, SetValue, GetValue, SetBlob, GetBlob, Leave, AskStatus, ForgetValue, ResizeJob,
                 FixRanks, TellFigures, TellLastSave, Welcome, Assigned, HeartbeatAnswer, ValueAnswer, BlobAnswer,
                 GenerationEnded, Fenced, Refused, JobEnded, JobStatus, NodeDropped>;

FrameType type_of(const Message& message);
// The frame of a message. Texts that are longer than their field are cut.
std::string print_message(const Message& message, uint64_t generation);
// What a frame says; nullopt where its body is not that of its type, and then `error` says what is wrong.
std::optional<Message> parse_message(const RawFrame& frame, FrameError& error);

// Why a peer of these nodes cannot be told these ranks: a size that no job has, a rank beyond it, other nodes than its
// own, or not all of them. `may_lack_some`: some of them may have been dropped. "" where it can.
std::string why_impossible(const Assigned& assigned, const std::vector<std::string>& node_ids,
                           bool may_lack_some = false);

// How these are called in texts and in JSON.
std::string_view name_of(PeerRole role);
std::string_view name_of(JobPhase phase);
std::string_view name_of(NodeState state);

}  // namespace tessera::cluster::rendezvous
