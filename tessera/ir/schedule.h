// Schedule: what one rank does in one step, down to bytes: data that the executor runs without knowing how it came
// about. Compute steps run in order on one lane, collectives in order on two others; a wait joins them. All memory is
// known: every value has an offset in one arena, whose front part (parameters and states) is shared by all schedules of
// a session.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/ir/logical_place.h"
#include "tessera/tensor/attributes.h"
#include "tessera/tensor/type.h"

namespace tessera::ir {

// Where parameters and states lie: byte offsets from the arena's start, equal in every schedule of a session.
struct PersistentLayout {
  std::map<std::string, int64_t> offsets;
  std::map<std::string, Type> types;
  int64_t bytes = 0;

  // Adds a tensor at the end, aligned to 64 bytes. Throws InvalidArgument for a name that is there.
  void add(const std::string& name, const Type& type);
};

// Where the device that computes is not the host, both have memory, and copies between them are steps.
enum class MemorySpace {
  kArena,  // of the device that computes
  kHost,   // of the host beside it: data inputs, results, what collectives and checks work on
  kGate    // of the device, beside the arena: a bool that all schedules of a session share; see Schedule::gate
};

struct ScheduledValue {
  std::string name;  // "x", "%12"
  Type type;
  Strides strides;
  int64_t offset = 0;  // bytes from the start of its memory
  MemorySpace space = MemorySpace::kArena;
  LogicalPlace logical = {};  // as in the rank's graph
};

enum class StepKind {
  kCompute,     // runs a kernel
  kCopy,        // outputs[0] = inputs[0]; any strides, but within a memory or from dense to equally dense
  kStart,       // hands a collective to its communication lane
  kWait,        // waits for the collective that step `joins` started
  kCheckFinite  // stops the step, with nothing updated, when inputs[0] has a non-finite element
};

// The communication lanes: collectives of one run in their order, and beside those of the other. The attribute "lane"
// of a collective, alike on all ranks.
inline constexpr int64_t kGradientLane = 0;  // what nothing but updates and results wait for
inline constexpr int64_t kAwaitedLane = 1;   // what later collectives wait for
inline constexpr int64_t kNumCommLanes = 2;
// kGradientLane where nothing is said.
int64_t lane_of(const Attributes& collective);

struct Step {
  StepKind kind = StepKind::kCompute;
  std::string op;      // operator, or collective
  std::string kernel;  // "onednn.conv2d"
  Attributes attributes;
  std::vector<int> inputs;  // indices into Schedule::values
  std::vector<int> outputs;
  int64_t scratch_offset = 0;
  int64_t scratch_bytes = 0;
  int joins = -1;
  int guard = -1;      // a value, bool[]: the step is left out where it is false
  int indices = -1;    // a value in the host's memory: the operand's indices, to be looked at before the step
  std::string source;  // attribute path, for errors and profiles
  std::string line;    // of the script, that made it: "model.py:41"; "" where that is not known
  // Computed by the host beside the device: operands, results, scratch memory and guard are in the host's memory.
  bool on_host = false;
};

// A piece of the planned memory, which holds values from step `first` to step `last`.
struct MemoryBlock {
  int64_t offset = 0;  // bytes from the arena's start
  int64_t bytes = 0;
  int first = 0;
  int last = 0;
  std::vector<int> values;  // that lie in it, one after another or side by side; scratch memory has none
};

struct Schedule {
  std::string name;
  std::vector<ScheduledValue> values;
  std::vector<Step> steps;
  std::map<std::string, int> inputs;   // data inputs by name
  std::map<std::string, int> outputs;  // results by name; updated parameters are in place and not listed
  // A value, bool[], in place of kCheckFinite where the host does not look at the loss before parameters change: a step
  // closes it, writes false, when the loss is not finite, and what changes parameters and states has it as its guard.
  // It stays closed, for later runs, too, until the host opens it. Where devices communicate, all ranks have one, which
  // they close together. -1: none.
  int gate = -1;
  int64_t persistent_bytes = 0;
  int64_t arena_bytes = 0;          // the persistent part included
  int64_t host_bytes = 0;           // of the host's memory beside it
  std::vector<MemoryBlock> blocks;  // the blocks of the planned part
  int64_t peak_bytes = 0;           // most of the planned part that is alive at once: no offsets need less
  int peak_step = 0;                // where that is
};

// One line per step: number, lane, kernel, results with offsets, operands.
std::string print(const Schedule& schedule);

}  // namespace tessera::ir
