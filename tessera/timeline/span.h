// What a timeline is made of: spans, in which a rank did one thing, and what the spans of one name have in common.
// Data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::timeline {

enum class SpanKind : uint8_t {
  kStep,         // a step of a training, callbacks and saves included
  kRun,          // one run of a schedule
  kPhase,        // a phase of a pipeline, for one micro-batch
  kOperator,     // a kernel
  kCopy,         // from one layout or memory to another
  kStart,        // a collective is handed to its lane
  kCheck,        // the loss is looked at
  kWait,         // for a collective, a message or a device
  kCollective,   // on its own lane: from this rank's call to its end
  kMessage,      // of a pipeline, likewise
  kBatch,        // the next batch is asked for: waited for, and copied
  kWorker,       // a thread prepares rows of a batch
  kCallbacks,    // of a training
  kSave,         // a checkpoint is written or copied
  kEvaluation,   // of a model
  kCompilation,  // of a step
  kDevice        // what a device does of a schedule, by its own clock
};
// Ends the text of a kDevice span of steps that a device replays together: their operators have no times of their own.
inline constexpr std::string_view kAsOne = ", as one";
// "operator"
const char* to_string(SpanKind kind);
std::optional<SpanKind> parse_span_kind(std::string_view text);

// What the spans of one name have in common.
struct SpanName {
  SpanKind kind = SpanKind::kOperator;
  std::string text;    // `matmul "fc"`, `all_reduce "fc.weight"`
  std::string source;  // where in the network it is: "fc"
  std::string kernel;  // "onednn.matmul"
  std::string line;    // of the script, that made it: "model.py:41"
  std::string graph;   // the schedule's name
  std::string dtype;   // that it computes in: "f32"
  double flops = 0;
  // That it reads and writes; of a collective and a message those of the whole call, as this rank knows it.
  int64_t bytes = 0;
  // Of collectives and messages: the ranks of the world that take part, the lane, and the place among those of the same
  // graph, ranks and lane, by which the members' spans are found. -1: it is none.
  std::vector<int> ranks = {};
  int lane = 0;
  int number = -1;
  bool meets = false;  // no member can end before the last one has begun

  bool operator==(const SpanName&) const = default;
};

struct TimedSpan {
  int64_t begin_ns = 0;  // of the rank's monotonic clock; of a merged timeline, of all ranks' common clock
  int64_t end_ns = 0;
  int64_t step = 0;   // of the training, under way; 0: none was
  uint32_t run = 0;   // which run of that graph in the step
  uint32_t name = 0;  // among the rank's names

  int64_t duration_ns() const { return end_ns - begin_ns; }
  bool operator==(const TimedSpan&) const = default;
};

}  // namespace tessera::timeline
