#include "tessera/compiler/schedule/host_copies.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/compiler/schedule/memory_plan.h"
#include "tessera/ops/registry/index_range.h"
#include "tessera/tensor/alignment.h"

namespace tessera::compiler {
namespace {

using ir::MemorySpace;
using ir::Schedule;
using ir::ScheduledValue;
using ir::Step;
using ir::StepKind;

// Whether the elements fill one piece of memory, in whatever order of dims.
bool is_contiguous(const ScheduledValue& value) {
  if (value.type.size_bytes() == 0) return true;
  int64_t last = 0;
  for (int d = 0; d < value.type.shape.ndim(); ++d) last += (value.type.shape[d] - 1) * value.strides[d];
  return last + 1 == value.type.shape.num_elements();
}

class HostCopies {
 public:
  HostCopies(const Schedule& from, const std::function<bool(const Ints&)>& communicates_there)
      : from_(from), communicates_there_(communicates_there), result_(from), on_host_(from.values.size(), -1) {
    result_.steps.clear();
  }

  Schedule run() {
    for (auto& [name, v] : result_.inputs) {
      const int host = on_host_[static_cast<size_t>(v)] = new_host_value(v);
      add_copy(host, v, name);
      v = host;
    }
    for (const Step& step : from_.steps) {
      add(step);
      read_decision(step);
    }
    for (auto& [name, v] : result_.outputs) v = read_on_host(v, name);
    for (auto& block : result_.blocks) {
      block.first = moved_[static_cast<size_t>(block.first)];
      block.last = moved_[static_cast<size_t>(std::min(block.last, static_cast<int>(moved_.size()) - 1))];
    }
    if (!moved_.empty()) {
      result_.peak_step = moved_[static_cast<size_t>(std::min<int>(result_.peak_step, std::ssize(moved_) - 1))];
    }
    return std::move(result_);
  }

 private:
  const ScheduledValue& value(int v) const { return result_.values[static_cast<size_t>(v)]; }
  int step_now() const { return static_cast<int>(result_.steps.size()); }

  int new_host_value(int v, int64_t offset) {
    ScheduledValue host = value(v);
    host.offset = offset;
    host.space = MemorySpace::kHost;
    result_.values.push_back(std::move(host));
    return static_cast<int>(result_.values.size()) - 1;
  }
  int64_t take_host_memory(int64_t bytes) {
    const int64_t at = result_.host_bytes;
    result_.host_bytes += aligned(bytes);
    return at;
  }
  int new_host_value(int v) {
    check(is_contiguous(value(v)), "a value is copied to or from the host that is not contiguous");
    return new_host_value(v, take_host_memory(value(v).type.size_bytes()));
  }
  void add_copy(int from, int to, const std::string& source) {
    result_.steps.push_back(
        {.kind = StepKind::kCopy, .op = "copy", .inputs = {from}, .outputs = {to}, .source = source});
  }
  // Values are defined once: a copy that was made stays right.
  int read_on_host(int v, const std::string& source) {
    int& host = on_host_[static_cast<size_t>(v)];
    if (host < 0) {
      host = new_host_value(v);
      add_copy(v, host, source);
    }
    return host;
  }

  // What decides on the values, the loss and the guard, is copied as soon as it is known: the host goes on with that
  // while the device is busy with the rest. What comes by a collective is known behind the wait for it.
  void read_decision(const Step& made) {
    if (made.kind != StepKind::kCompute && made.kind != StepKind::kCopy && made.kind != StepKind::kWait) return;
    for (const char* name : {"loss", ir::kUpdateGuard}) {
      const auto output = from_.outputs.find(name);
      if (output == from_.outputs.end()) continue;
      if (made.kind != StepKind::kWait && is_exchanged(output->second)) continue;
      if (std::find(made.outputs.begin(), made.outputs.end(), output->second) == made.outputs.end()) continue;
      read_on_host(output->second, name);
    }
  }
  // What a collective makes in place is not the value before.
  bool is_exchanged(int v) const {
    return std::any_of(from_.steps.begin(), from_.steps.end(), [v](const Step& step) {
      return step.kind == StepKind::kStart &&
             std::find(step.outputs.begin(), step.outputs.end(), v) != step.outputs.end();
    });
  }

  void add(Step step) {
    switch (step.kind) {
      case StepKind::kCompute: {
        std::vector<Type> types;
        for (const int v : step.inputs) types.push_back(value(v).type);
        const auto range = ops::index_range(step.op, step.attributes, types);
        if (range) step.indices = read_on_host(step.inputs[static_cast<size_t>(range->operand)], step.source);
        if (step.on_host) return compute_on_host(std::move(step));
        break;
      }
      case StepKind::kCopy: break;
      case StepKind::kCheckFinite: step.inputs[0] = read_on_host(step.inputs[0], step.source); break;
      case StepKind::kStart:
        check(step.guard < 0, "a collective that may be left out");
        if (!communicates_there_ || !communicates_there_(step.attributes.get_ints("ranks"))) stage(step);
        break;
      case StepKind::kWait:
        if (started_.contains(step.joins)) return await(step);
        step.joins = moved_[static_cast<size_t>(step.joins)];
        break;
    }
    moved_.push_back(step_now());
    result_.steps.push_back(std::move(step));
  }

  // Operands come to the host, and results go back to where the device reads them; where a guard leaves the step out,
  // so are these copies, and nobody reads a result of it on the host.
  void compute_on_host(Step step) {
    for (int& v : step.inputs) v = read_on_host(v, step.source);
    if (step.guard >= 0) step.guard = read_on_host(step.guard, step.source);
    if (step.scratch_bytes > 0) step.scratch_offset = take_host_memory(step.scratch_bytes);
    const auto device_results = step.outputs;
    for (int& v : step.outputs) v = new_host_value(v);
    const auto host_results = step.outputs;
    const int guard = step.guard;
    const std::string source = step.source;
    moved_.push_back(step_now());
    result_.steps.push_back(std::move(step));
    for (size_t i = 0; i < host_results.size(); ++i) {
      add_copy(host_results[i], device_results[i], source);
      result_.steps.back().guard = guard;
      if (guard < 0) on_host_[static_cast<size_t>(device_results[i])] = host_results[i];
    }
  }

  // The operands of a collective, side by side on the host as they are on the device: an all_reduce works on the bucket
  // that its results lie in.
  void stage(Step& step) {
    struct Piece {
      int64_t begin;
      int64_t end;
      int64_t on_host;
    };
    std::vector<Piece> pieces;
    for (const auto* operands : {&step.inputs, &step.outputs}) {
      for (const int v : *operands) {
        check(is_contiguous(value(v)), "an operand of a collective is not contiguous");
        pieces.push_back({value(v).offset, value(v).offset + value(v).type.size_bytes(), 0});
      }
    }
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    std::vector<Piece> joined;
    for (const Piece& piece : pieces) {
      if (!joined.empty() && piece.begin < joined.back().end) {
        joined.back().end = std::max(joined.back().end, piece.end);
      } else {
        joined.push_back(piece);
      }
    }
    for (Piece& piece : joined) piece.on_host = take_host_memory(piece.end - piece.begin);
    const auto move = [&](int& v) {
      const int64_t offset = value(v).offset;
      const auto behind = std::upper_bound(joined.begin(), joined.end(), offset,
                                           [](int64_t at, const Piece& p) { return at < p.begin; });
      const Piece& piece = *std::prev(behind);
      v = new_host_value(v, piece.on_host + (offset - piece.begin));
    };
    // What comes behind the operands is memory to work in: a bucket of all_reduces is one operand.
    const size_t num_operands = std::max<size_t>(step.outputs.size(), 1);
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const int v = step.inputs[i];
      move(step.inputs[i]);
      if (i < num_operands) add_copy(v, step.inputs[i], step.source);
    }
    for (int& v : step.outputs) move(v);
    started_[static_cast<int>(moved_.size())] = {step.inputs, step.outputs};
  }

  void await(Step& step) {
    const auto device_results = step.outputs;
    std::tie(step.inputs, step.outputs) = started_.at(step.joins);
    const std::string source = from_.steps[static_cast<size_t>(step.joins)].source;
    const auto host_results = step.outputs;
    step.joins = moved_[static_cast<size_t>(step.joins)];
    moved_.push_back(step_now());
    result_.steps.push_back(std::move(step));
    for (size_t i = 0; i < host_results.size(); ++i) {
      add_copy(host_results[i], device_results[i], source);
      on_host_[static_cast<size_t>(device_results[i])] = host_results[i];
    }
  }

  const Schedule& from_;
  const std::function<bool(const Ints&)>& communicates_there_;
  Schedule result_;
  std::vector<int> on_host_;                                               // by value: its copy; -1: none
  std::vector<int> moved_;                                                 // by step of from_: its new number
  std::map<int, std::tuple<std::vector<int>, std::vector<int>>> started_;  // by step: what a collective works on
};

}  // namespace

Schedule with_host_copies(const Schedule& schedule, const std::function<bool(const Ints&)>& communicates_there) {
  return HostCopies(schedule, communicates_there).run();
}

}  // namespace tessera::compiler
