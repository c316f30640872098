// RunRecord: what a log says, once, of the process that writes it: how it was started, by which version, on which
// ranks and with which options of the model, so that its training can be repeated and compared; and how the training
// step is spread over the ranks, and what memory it takes from operation to operation.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/train/callback.h"

namespace tessera::train {

// How a parameter, a state or an input of the training step lies on the ranks.
struct PlannedValue {
  std::string name;
  std::string kind;        // "param", "state" or "input"
  std::string type;        // of the whole value: "f32[8,16]"
  std::string split;       // "[data,_]"; "": whole on every rank
  int64_t bytes = 0;       // of the whole value
  int64_t rank_bytes = 0;  // of it on this rank
};

// How the training step is spread.
struct StepPlan {
  std::string mesh;  // "[data=4]"; several, with commas between them, where no grid holds all splits
  int64_t num_operators = 0;
  int64_t num_split_operators = 0;  // of them those that the ranks share
  // Of a plan that was searched for, as PlanRecord has them; absent where it does not know them.
  std::optional<double> predicted_seconds;
  std::optional<double> searched_seconds;
  std::optional<double> bound_seconds;
  // What all values take, and what of them lies on this rank.
  int64_t parameter_bytes = 0;
  int64_t rank_parameter_bytes = 0;
  int64_t state_bytes = 0;
  int64_t rank_state_bytes = 0;
  std::vector<PlannedValue> values;  // the largest ones, the largest first
};

// A value that lives where the step takes most memory.
struct PeakValue {
  std::string name;
  std::string type;
  int64_t bytes = 0;
  std::string made_by;
  std::string last_read_by;
};

// What memory this rank's training step takes beside parameters and states, operation by operation of its schedule.
struct StepMemory {
  int64_t arena_bytes = 0;      // with parameters and states
  int64_t parameter_bytes = 0;  // of this rank, as the next
  int64_t state_bytes = 0;
  int64_t planned_bytes = 0;  // that there is room for
  int64_t num_operations = 0;
  int64_t peak_bytes = 0;  // the most that is alive at once
  int64_t peak_operation = 0;
  std::string peak_name;                                 // of that operation
  std::vector<PeakValue> at_peak;                        // the largest ones, the largest first
  std::vector<std::pair<int64_t, int64_t>> alive_bytes;  // operations in order, and the bytes alive there
};

struct RunRecord {
  int64_t wall_ms = 0;  // when the training began in this process, since 1970-01-01 UTC
  int64_t epoch = 0;    // both those behind which it began: 0 of a training from its beginning on
  int64_t step = 0;
  int64_t num_epochs = 0;
  int64_t steps_per_epoch = 0;
  std::vector<std::string> command;  // of the process, its program first; none where the system does not say
  std::string program;               // the file that runs: the interpreter of a script; "": not known
  std::string directory;             // in which the process works; "": not known
  std::string version;               // of Tessera
  int num_ranks = 1;
  int ranks_of_host = 1;
  int num_servers = 0;
  std::string transport;  // as Context has it
  std::string job;        // the launcher's name for it; "": there is no launcher
  int num_threads = 1;    // that a rank computes with
  std::string host;
  std::string cpu;
  int64_t num_cores = 0;  // that the system lets this process use
  std::string mode;       // "data_parallel"
  uint64_t seed = 0;
  // Options of the model that are not as they are by default, by name, as text; of a machine profile its name.
  std::map<std::string, std::string> options;
  // Variables of the environment that say which values are recorded, TESSERA_RECORD_VALUES and its like, and those by
  // which the command computes something else.
  std::map<std::string, std::string> variables;
  std::optional<StepPlan> plan;      // absent where nothing is compiled yet
  std::optional<StepMemory> memory;  // absent where the step has no schedule of its own: in a pipeline
};

// The most that is alive in each of at most `num_parts` parts of equal length, with the first operation that has it.
std::vector<std::pair<int64_t, int64_t>> sampled_peaks(std::span<const int64_t> alive_bytes, size_t num_parts);

// The name of the machine that this process runs on; "": not known.
std::string host_of_process();
// Describes this process, for a training that begins.
RunRecord run_record_of(const RunContext& run);
// One line of kind "run", without its end. Bytes that are no UTF-8 are replaced.
std::string json_line(const RunRecord& record);

}  // namespace tessera::train
