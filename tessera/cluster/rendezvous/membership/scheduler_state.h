// What a scheduler must not forget when it dies: which node has which rank, the generation, the job's states, and how
// it has ended. It is kept in a file that is replaced as a whole and that only its owner reads:
//   "TRS9", u32 bytes of the body, the body, u32 CRC-32C of all before. Little-endian, fields as in fields.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/cluster/rendezvous/messages/frame.h"
#include "tessera/cluster/rendezvous/messages/messages.h"

namespace tessera::cluster::rendezvous {

// A node that has a rank.
struct SavedNode {
  std::string node_id;
  std::string host;
  uint32_t rank = 0;
  uint64_t incarnation = 0;
  uint64_t clock_id = 0;
  uint64_t started_ns = 0;  // of its process; 0: none has registered
  uint64_t token = 0;
  bool has_left = false;
  bool is_server = false;     // it keeps parameters
  bool has_finished = false;  // it has left, and its own process has said so
  // Between two generations: whether it is lost, whether that is counted while its process lives still, and when its
  // latest process ended; one loss is not counted twice, whoever says it to which scheduler.
  bool is_lost = false;
  bool is_end_awaited = false;
  uint64_t ended_ns = 0;
};

// A node of an elastic job that goes on without it.
struct DroppedNode {
  std::string node_id;
  uint64_t incarnation = 0;  // that does not come back; a newer one may
};

struct SchedulerState {
  uint32_t num_workers = 0;
  uint64_t generation = 0;
  uint64_t last_token = 0;
  uint64_t num_losses = 0;                   // of nodes, so far
  bool is_running = false;                   // the generation has not ended
  bool has_ended_by_itself = false;          // it has ended without a loss, which is counted when the next one begins
  std::vector<SavedNode> nodes;              // by node id
  std::map<std::string, std::string> blobs;  // by name
  // Of an elastic job.
  uint32_t num_ranks = 0;            // of the newest generation; 0 before the first one
  uint32_t num_first_ranks = 0;      // of the first one
  std::string fixed_by;              // why the number of ranks must stay as it is; "": it may change
  std::vector<DroppedNode> dropped;  // in the order in which they were
  // Whether ranks of this generation have been told that others wait: they may begin anew to take those in.
  bool has_told_of_newcomers = false;
  // The job is over, and its members were told so.
  bool is_over = false;
  JobEnded end = {};
};

// The state that says what the last generation of a job has saved, for the words with which the job ends.
inline constexpr std::string_view kLastSave = "last save";

// The job's states that the scheduler keeps, and the most bytes of each.
struct BlobRules {
  std::string_view name;
  size_t max_bytes;
};
// The rules of a state; nullptr for a name that is none.
const BlobRules* find_blob_rules(std::string_view name);

// Prints the state as its file has it.
std::string print_scheduler_state(const SchedulerState& state);
// Puts head and checksum around a body.
std::string print_state_file(std::string_view body);
// Reads it again; nullopt where the bytes are none, with `error` saying why.
std::optional<SchedulerState> parse_scheduler_state(std::string_view bytes, FrameError& error);

// Replaces the file at `path`. Throws IoError.
void save_scheduler_state(FileSystem& files, const std::string& path, const SchedulerState& state);
// What the file at `path` holds; an empty state where there is none. Throws IoError naming the file where it is
// damaged.
SchedulerState load_scheduler_state(FileSystem& files, const std::string& path);

}  // namespace tessera::cluster::rendezvous
