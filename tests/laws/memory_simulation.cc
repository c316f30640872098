#include "tests/laws/memory_simulation.h"

#include <algorithm>
#include <map>
#include <set>

#include "tessera/base/error.h"

namespace tessera::laws {
namespace {

using ir::Graph;
using ir::Schedule;
using ir::Step;
using ir::StepKind;
using ir::ValueId;

constexpr int64_t kLine = 64;
constexpr int kGarbage = -2;
constexpr int kInFlight = -3;

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

class Simulation {
 public:
  Simulation(const Graph& graph, const Schedule& schedule) : graph_(graph), schedule_(schedule) {
    lines_.assign(static_cast<size_t>((schedule.arena_bytes + kLine - 1) / kLine), kGarbage);
    for (const auto& input : graph.inputs()) ids_[input.name] = input.value;
    int number = 0;
    for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
      for (const ValueId v : graph.node(n).outputs) ids_[fmt::format("%{}", ++number)] = v;
    }
    expected_.assign(schedule.values.size(), kGarbage);
    std::set<int> written;
    for (const Step& step : schedule.steps) written.insert(step.outputs.begin(), step.outputs.end());
    for (size_t v = 0; v < schedule.values.size(); ++v) {
      const auto it = ids_.find(schedule.values[v].name);
      if (it == ids_.end()) continue;
      expected_[v] = it->second;
      by_id_.emplace(it->second, static_cast<int>(v));
      if (!written.contains(static_cast<int>(v))) aliases_.insert(it->second);
    }
  }

  std::vector<std::string> run() {
    for (const auto& input : graph_.inputs()) {
      if (const auto it = by_id_.find(input.value); it != by_id_.end()) write(range_of(it->second), input.value);
    }
    for (step_ = 0; step_ < schedule_.steps.size(); ++step_) run_step(schedule_.steps[step_]);
    for (const auto& output : graph_.outputs()) check_output(output);
    if (!under_way_.empty()) fault("a collective is never waited for");
    return std::move(faults_);
  }

 private:
  void fault(const std::string& what) { faults_.push_back(fmt::format("step {}: {}", step_, what)); }
  const ir::ScheduledValue& value(int v) const { return schedule_.values[static_cast<size_t>(v)]; }
  Range range_of(int v) const { return {value(v).offset, value(v).offset + value(v).type.size_bytes()}; }

  // A reshape that no step computes is its operand.
  ValueId root(ValueId id) const {
    while (id >= 0 && aliases_.contains(id) && graph_.info(id).node != ir::kNone) {
      id = graph_.node(graph_.info(id).node).inputs[0];
    }
    return id;
  }

  bool inside(const Range& range) {
    if (range.begin >= 0 && range.end <= schedule_.arena_bytes) return true;
    fault(fmt::format("[{}, {}) is outside the arena of {} bytes", range.begin, range.end, schedule_.arena_bytes));
    return false;
  }

  void write(const Range& range, int content) {
    if (range.begin == range.end || !inside(range)) return;
    for (int64_t line = range.begin / kLine; line < (range.end + kLine - 1) / kLine; ++line) {
      lines_[static_cast<size_t>(line)] = content;
    }
  }

  // What lies there; kGarbage when it is not one thing.
  int content(const Range& range) {
    if (range.begin == range.end) return kGarbage;
    if (!inside(range)) return kGarbage;
    const int first = lines_[static_cast<size_t>(range.begin / kLine)];
    for (int64_t line = range.begin / kLine; line < (range.end + kLine - 1) / kLine; ++line) {
      if (lines_[static_cast<size_t>(line)] != first) return kGarbage;
    }
    return first;
  }

  void read(int v) {
    if (value(v).type.size_bytes() == 0) return;
    const int expected = root(expected_[static_cast<size_t>(v)]);
    const int found = content(range_of(v));
    if (found != expected) {
      fault(fmt::format("reads {} @{}, where {} lies", value(v).name, value(v).offset,
                        found >= 0 ? graph_.value_name(found) : "nothing whole"));
    }
  }

  // Writes must leave alone what is under way, and parameters before the loss was checked.
  void guard_write(const Range& range, const std::string& name) {
    if (range.begin == range.end) return;
    for (const auto& [start, ranges] : under_way_) {
      for (const auto& busy : ranges) {
        if (range.overlaps(busy)) fault(fmt::format("writes {} into what collective {} works on", name, start));
      }
    }
    const bool has_loss = graph_.find_output("loss") != nullptr;
    if (range.begin < schedule_.persistent_bytes && has_loss && !checked_) {
      fault(fmt::format("writes {} to a parameter before the loss was checked", name));
    }
  }

  void run_step(const Step& step) {
    switch (step.kind) {
      case StepKind::kCompute: return compute(step);
      case StepKind::kCopy: {
        const int from = step.inputs[0];
        const int to = step.outputs[0];
        read(from);
        guard_write(range_of(to), value(to).name);
        const int id = root(expected_[static_cast<size_t>(from)]);
        write(range_of(to), id);
        if (!ids_.contains(value(to).name)) expected_[static_cast<size_t>(to)] = id;
        return;
      }
      case StepKind::kCheckFinite:
        read(step.inputs[0]);
        checked_ = true;
        return;
      case StepKind::kStart: return start(step);
      case StepKind::kWait: {
        const Step& started = schedule_.steps[static_cast<size_t>(step.joins)];
        if (under_way_.erase(step.joins) != 1) fault("waits for what is not under way");
        for (const int v : started.outputs) write(range_of(v), expected_[static_cast<size_t>(v)]);
        return;
      }
    }
  }

  void compute(const Step& step) {
    std::vector<Range> touched;
    const Range scratch{step.scratch_offset, step.scratch_offset + step.scratch_bytes};
    for (const int v : step.inputs) {
      read(v);
      if (step.scratch_bytes > 0 && scratch.overlaps(range_of(v))) fault("the scratch overlaps " + value(v).name);
    }
    for (const int v : step.outputs) {
      const Range range = range_of(v);
      guard_write(range, value(v).name);
      for (const auto& other : touched) {
        if (range.overlaps(other)) fault(fmt::format("result {} overlaps another result", value(v).name));
      }
      for (const int in : step.inputs) {
        const Range operand = range_of(in);
        if (range.overlaps(operand) && operand.begin != range.begin) {
          fault(fmt::format("result {} overlaps a piece of {}", value(v).name, value(in).name));
        }
      }
      if (step.scratch_bytes > 0 && scratch.overlaps(range)) fault("the scratch overlaps " + value(v).name);
      touched.push_back(range);
    }
    if (step.scratch_bytes > 0) {
      guard_write(scratch, "scratch");
      write(scratch, kGarbage);
    }
    for (const int v : step.outputs) write(range_of(v), expected_[static_cast<size_t>(v)]);
  }

  void start(const Step& step) {
    std::vector<Range> busy;
    if (step.op == "all_reduce") {
      // In place: each member's operand lies where its result will.
      for (const int v : step.outputs) {
        const auto id = static_cast<ValueId>(expected_[static_cast<size_t>(v)]);
        const ValueId operand = root(graph_.node(graph_.info(id).node).inputs[0]);
        if (value(v).type.size_bytes() > 0 && content(range_of(v)) != operand) {
          fault(fmt::format("{} does not lie in the bucket, at {}", graph_.value_name(operand), value(v).offset));
        }
      }
      busy.push_back(range_of(step.inputs[0]));
    } else {
      for (const int v : step.inputs) {
        if (value(v).name == "staging") {
          guard_write(range_of(v), "staging");
          write(range_of(v), kGarbage);
        } else {
          read(v);
        }
        busy.push_back(range_of(v));
      }
      for (const int v : step.outputs) {
        guard_write(range_of(v), value(v).name);
        write(range_of(v), kInFlight);
        busy.push_back(range_of(v));
      }
    }
    under_way_[static_cast<int>(step_)] = busy;
  }

  void check_output(const ir::Output& output) {
    const ir::Input* input = graph_.find_input(output.name);
    const int wanted = root(output.value);
    if (input != nullptr && input->kind != ir::InputKind::kInput) {
      const Range range = range_of(by_id_.at(input->value));
      if (range.begin != range.end && content(range) != wanted) fault("parameter " + output.name + " is not updated");
      return;
    }
    const Range range = range_of(schedule_.outputs.at(output.name));
    if (range.begin != range.end && content(range) != wanted)
      fault("result " + output.name + " is not there at the end");
  }

  const Graph& graph_;
  const Schedule& schedule_;
  std::map<std::string, ValueId> ids_;
  std::map<ValueId, int> by_id_;
  std::set<ValueId> aliases_;
  std::vector<int> expected_;  // by scheduled value: what must lie there when it is read
  std::vector<int> lines_;
  std::map<int, std::vector<Range>> under_way_;
  bool checked_ = false;
  size_t step_ = 0;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> memory_faults(const Graph& local, const Schedule& schedule) {
  return Simulation(local, schedule).run();
}

}  // namespace tessera::laws
