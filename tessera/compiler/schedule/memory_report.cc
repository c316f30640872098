#include "tessera/compiler/schedule/memory_report.h"

#include <algorithm>
#include <limits>
#include <map>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/tensor/alignment.h"

namespace tessera::compiler {
namespace {

using ir::MemoryBlock;
using ir::Schedule;
using ir::Step;
using ir::StepKind;

class Reporter {
 public:
  explicit Reporter(const Schedule& schedule) : schedule_(schedule), made_(schedule.values.size(), kNever) {
    last_read_.assign(schedule.values.size(), -1);
    for (const auto& [name, v] : schedule.inputs) made_[static_cast<size_t>(v)] = -1;
    for (int s = 0; s < static_cast<int>(schedule.steps.size()); ++s) {
      const Step& step = schedule.steps[static_cast<size_t>(s)];
      for (const int v : step.inputs) last_read_[static_cast<size_t>(v)] = s;
      if (step.kind == StepKind::kWait) continue;
      for (const int v : step.outputs) made_[static_cast<size_t>(v)] = s;
    }
  }

  std::vector<int64_t> alive() const {
    std::vector<int64_t> alive(schedule_.steps.size());
    for (const MemoryBlock& block : schedule_.blocks) {
      const int end = std::min(block.last + 1, static_cast<int>(alive.size()));
      for (int s = block.first; s < end; ++s) alive[static_cast<size_t>(s)] += block.bytes;
    }
    return alive;
  }

  std::vector<LivingValue> living_at(int step) const {
    std::vector<LivingValue> living;
    for (const MemoryBlock& block : schedule_.blocks) {
      if (block.first <= step && step <= block.last) add_block(block, step, living);
    }
    std::stable_sort(living.begin(), living.end(),
                     [](const LivingValue& a, const LivingValue& b) { return a.bytes > b.bytes; });
    return living;
  }

 private:
  static constexpr int kNever = std::numeric_limits<int>::max();

  const ir::ScheduledValue& value(int v) const { return schedule_.values[static_cast<size_t>(v)]; }

  // At each place of the block the value that was made there last.
  void add_block(const MemoryBlock& block, int step, std::vector<LivingValue>& living) const {
    if (block.values.empty()) {
      living.push_back({.name = "scratch",
                        .bytes = block.bytes,
                        .first = block.first,
                        .last = block.last,
                        .made_by = name_of_step(schedule_, block.first)});
      return;
    }
    std::map<int64_t, int> by_place;
    for (const int v : block.values) {
      if (made_[static_cast<size_t>(v)] > step) continue;
      const auto [it, is_new] = by_place.emplace(value(v).offset, v);
      if (!is_new && made_[static_cast<size_t>(it->second)] < made_[static_cast<size_t>(v)]) it->second = v;
    }
    // Second buffers of collectives: no step makes what is in them.
    if (by_place.empty() && block.values.size() == 1) by_place.emplace(block.offset, block.values[0]);
    int64_t rest = block.bytes;
    for (auto it = by_place.begin(); it != by_place.end(); ++it) {
      const int v = it->second;
      const int made = made_[static_cast<size_t>(v)] == kNever ? block.first : made_[static_cast<size_t>(v)];
      const int read = last_read_[static_cast<size_t>(v)];
      // With what alignment adds behind it.
      const int64_t end = std::next(it) == by_place.end() ? block.offset + block.bytes : std::next(it)->first;
      const int64_t bytes = std::min(end - it->first, aligned(value(v).type.size_bytes()));
      living.push_back({.name = value(v).name,
                        .type = value(v).type.to_string(),
                        .bytes = bytes,
                        .first = made,
                        .last = block.last,
                        .made_by = made < 0 ? "input" : name_of_step(schedule_, made),
                        .last_read_by = read < 0 ? "" : name_of_step(schedule_, read)});
      rest -= bytes;
    }
    if (rest > 0) {
      living.push_back({.name = "reserved", .bytes = rest, .first = block.first, .last = block.last});
    }
  }

  const Schedule& schedule_;
  std::vector<int> made_;       // by value: the step that makes it
  std::vector<int> last_read_;  // by value
};

}  // namespace

std::string name_of_step(const Schedule& schedule, int step) {
  const auto& steps = schedule.steps;
  if (step < 0 || step >= static_cast<int>(steps.size())) return "the end";
  const Step& s = steps[static_cast<size_t>(step)];
  std::string name = s.op;
  if (s.kind == StepKind::kWait) name = "wait for " + s.op;
  if (s.kind == StepKind::kCheckFinite) name = "check_finite";
  return s.source.empty() ? name : fmt::format("{} \"{}\"", name, s.source);
}

MemoryReport report_memory(const ir::Graph& local, const Schedule& schedule) {
  const Reporter reporter(schedule);
  MemoryReport report{.arena_bytes = schedule.arena_bytes,
                      .planned_bytes = schedule.arena_bytes - schedule.persistent_bytes,
                      .peak_bytes = schedule.peak_bytes,
                      .peak_step = schedule.peak_step,
                      .peak_name = name_of_step(schedule, schedule.peak_step),
                      .at_peak = reporter.living_at(schedule.peak_step),
                      .alive_bytes = reporter.alive()};
  for (const auto& input : local.inputs()) {
    const int64_t bytes = local.type(input.value).size_bytes();
    if (input.kind == ir::InputKind::kParameter) report.parameter_bytes += bytes;
    if (input.kind == ir::InputKind::kState) report.state_bytes += bytes;
  }
  return report;
}

std::string describe_peak(const ir::Graph& local, const Schedule& schedule, int64_t spilled_bytes) {
  constexpr size_t kNumNamed = 8;
  const auto report = report_memory(local, schedule);
  std::string text = fmt::format("{} of parameters and states, and at the peak, step {}, {}, {}",
                                 format_bytes(schedule.persistent_bytes - spilled_bytes), report.peak_step,
                                 report.peak_name, format_bytes(report.peak_bytes));
  for (size_t i = 0; i < std::min(kNumNamed, report.at_peak.size()); ++i) {
    const LivingValue& value = report.at_peak[i];
    text += fmt::format("\n  {} {} {} of {}", format_bytes(value.bytes), value.name, value.type, value.made_by);
  }
  return text;
}

}  // namespace tessera::compiler
