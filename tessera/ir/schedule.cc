#include "tessera/ir/schedule.h"

#include "tessera/base/error.h"
#include "tessera/tensor/alignment.h"

namespace tessera::ir {

void PersistentLayout::add(const std::string& name, const Type& type) {
  if (!offsets.emplace(name, bytes).second) throw InvalidArgument("\"{}\" is declared twice", name);
  types.emplace(name, type);
  bytes += aligned(type.size_bytes());
}

int64_t lane_of(const Attributes& collective) {
  return collective.has("lane") ? collective.get_int("lane") : kGradientLane;
}

std::string print(const Schedule& schedule) {
  std::string text =
      fmt::format("schedule {}: persistent {} B, planned {} B, peak at step {}\n", schedule.name,
                  schedule.persistent_bytes, schedule.arena_bytes - schedule.persistent_bytes, schedule.peak_step);
  const auto name_of = [&](int v) -> const std::string& { return schedule.values[static_cast<size_t>(v)].name; };
  const auto is_on_host = [&](int v) { return schedule.values[static_cast<size_t>(v)].space == MemorySpace::kHost; };
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    const bool comm = step.kind == StepKind::kStart || step.kind == StepKind::kWait;
    text += fmt::format("  {:<4} {:<7} ", s, comm ? "comm" : "compute");
    switch (step.kind) {
      case StepKind::kCompute: text += step.kernel + (step.on_host ? " on host" : ""); break;
      case StepKind::kCopy:
        text += is_on_host(step.inputs[0]) ? "to_device" : is_on_host(step.outputs[0]) ? "to_host" : "copy";
        break;
      case StepKind::kStart:
        text += step.op + (lane_of(step.attributes) == kAwaitedLane ? ".start awaited" : ".start");
        break;
      case StepKind::kWait: text += fmt::format("{}.wait {}", step.op, step.joins); break;
      case StepKind::kCheckFinite: text += "check_finite"; break;
    }
    for (size_t i = 0; i < step.inputs.size(); ++i) text += (i > 0 ? ", " : " ") + name_of(step.inputs[i]);
    if (!step.outputs.empty() && step.kind != StepKind::kWait) text += " ->";
    for (size_t i = 0; i < step.outputs.size() && step.kind != StepKind::kWait; ++i) {
      const auto& value = schedule.values[static_cast<size_t>(step.outputs[i])];
      const char* const space = value.space == MemorySpace::kHost   ? "host"
                                : value.space == MemorySpace::kGate ? "gate"
                                                                    : "";
      text += fmt::format("{} {} {} {}@{}", i > 0 ? "," : "", value.name, value.type, space, value.offset);
    }
    if (step.guard >= 0) text += " if " + name_of(step.guard);
    if (step.scratch_bytes > 0) text += fmt::format("  scratch {} B @{}", step.scratch_bytes, step.scratch_offset);
    if (!step.source.empty()) text += "  " + step.source;
    text += "\n";
  }
  return text;
}

}  // namespace tessera::ir
