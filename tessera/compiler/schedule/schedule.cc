// From a local graph to a Schedule: kernels, work in place, the check of the loss.
#include <algorithm>
#include <optional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/processes/no_memory.h"
#include "tessera/compiler/passes/passes.h"
#include "tessera/compiler/schedule/guarded_updates.h"
#include "tessera/compiler/schedule/scheduler.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/tensor/alignment.h"

namespace tessera::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Schedule;
using ir::Step;
using ir::StepKind;
using ir::ValueId;

namespace {

// Whether elements at the same place of two values are as far from their starts.
bool lies_alike(const Shape& a, const Strides& a_strides, const Shape& b, const Strides& b_strides) {
  if (!(a == b)) return false;
  for (int d = 0; d < a.ndim(); ++d) {
    if (a[d] > 1 && a_strides[d] != b_strides[d]) return false;
  }
  return true;
}

}  // namespace

Scheduler::Scheduler(const Graph& graph, const std::set<std::string>& guarded, const ir::PersistentLayout& persistent,
                     const ops::KernelCatalogue& catalogue, const ScheduleOptions& options)
    : graph_(graph),
      guarded_(guarded),
      persistent_(persistent),
      catalogue_(catalogue),
      options_(options),
      uses_(find_uses(graph)),
      order_(order_nodes(graph, uses_)),
      strides_(assign_layouts(graph, options.channels_last)),
      names_(static_cast<size_t>(graph.num_values())),
      scheduled_(static_cast<size_t>(graph.num_values()), -1) {
  int number = 0;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    for (const ValueId v : graph.node(n).outputs) names_[static_cast<size_t>(v)] = fmt::format("%{}", ++number);
  }
}

Schedule Scheduler::run() {
  schedule_.name = graph_.name();
  place_inputs();
  find_homes();
  for (const NodeId n : order_.nodes) emit_node(n);
  for (const int start : std::vector<int>(pending_waits_)) wait_for(start);
  emit_outputs();
  finish();
  return std::move(schedule_);
}

// --- values and steps ------------------------------------------------------------------------------------------------

int Scheduler::new_value(const std::string& name, const Type& type, const Strides& strides, int buffer, int64_t at,
                         ValueId id) {
  schedule_.values.push_back({name, type, strides, 0});
  if (id != ir::kNone) schedule_.values.back().logical = graph_.info(id).logical;
  value_id_.push_back(id);
  return memory_.add_value(buffer, at);
}

int Scheduler::new_result(ValueId v, const Strides& strides, int buffer, int64_t at) {
  const auto index = static_cast<size_t>(v);
  strides_[index] = strides;
  scheduled_[index] = new_value(names_[index], graph_.type(v), strides, buffer, at, v);
  return scheduled_[index];
}

int Scheduler::add_step(Step step) {
  const int index = step_now();
  for (const int v : step.inputs) memory_.touch(v, index);
  for (const int v : step.outputs) memory_.touch(v, index);
  if (step.guard >= 0) memory_.touch(step.guard, index);
  schedule_.steps.push_back(std::move(step));
  return index;
}

int Scheduler::add_copy(int from, const std::string& name, const Strides& strides) {
  const Type type = value(from).type;
  const int copy = new_value(name + "'", type, strides, memory_.add_buffer(type.size_bytes()));
  add_step({.kind = StepKind::kCopy, .op = "copy", .inputs = {from}, .outputs = {copy}});
  return copy;
}

int Scheduler::read(ValueId v) {
  if (const auto it = made_by_.find(v); it != made_by_.end()) {
    const int start = it->second;
    made_by_.erase(it);
    wait_for(start);
  }
  check(scheduled(v) >= 0, "a value is read before it is scheduled");
  return scheduled(v);
}

TensorView Scheduler::view_of(int index) const {
  const auto& v = value(index);
  return {nullptr, v.type.dtype, v.type.shape, v.strides};
}

// --- inputs, outputs -------------------------------------------------------------------------------------------------

void Scheduler::place_inputs() {
  for (const auto& input : graph_.inputs()) {
    const Type& type = graph_.type(input.value);
    const int buffer = memory_.add_buffer(type.size_bytes());
    const int v = new_value(input.name, type, strides_of(input.value), buffer, 0, input.value);
    scheduled_[static_cast<size_t>(input.value)] = v;
    if (input.kind == ir::InputKind::kInput) {
      schedule_.inputs[input.name] = v;
      memory_.mutable_buffer(buffer).data_input = true;
      memory_.touch(v, 0);
      continue;
    }
    const auto it = persistent_.offsets.find(input.name);
    if (it == persistent_.offsets.end()) {
      throw InvalidArgument("graph {} reads {} \"{}\", which the session does not hold", graph_.name(),
                            ir::to_string(input.kind), input.name);
    }
    check_equal(persistent_.types.at(input.name), type, "type of a persistent value");
    memory_.mutable_buffer(buffer).offset = it->second;
    memory_.mutable_buffer(buffer).persistent = true;
  }
}

// A state whose old value nobody reads gets its new one at once, where no loss decides whether it does. So does a
// parameter in a graph without data, such as that of initial values: no data can stop it half-way.
void Scheduler::find_homes() {
  if (graph_.find_output("loss") != nullptr || graph_.find_output(ir::kUpdateGuard) != nullptr) return;
  if (!options_.share_memory) return;
  const bool has_data = std::any_of(graph_.inputs().begin(), graph_.inputs().end(),
                                    [](const ir::Input& input) { return input.kind == ir::InputKind::kInput; });
  for (const auto& output : graph_.outputs()) {
    const ir::Input* input = graph_.find_input(output.name);
    if (input == nullptr || input->kind == ir::InputKind::kInput) continue;
    if (has_data && input->kind != ir::InputKind::kState) continue;
    if (graph_.info(output.value).node == ir::kNone) continue;
    const auto old = static_cast<size_t>(input->value);
    if (!uses_.users[old].empty() || uses_.is_result[old]) continue;
    if (!is_dense(graph_.type(output.value).shape, strides_of(output.value))) continue;
    homes_.try_emplace(output.value, buffer_of(input->value));
  }
}

// New values of parameters that could not be written in place are copied, after everything has read the old ones.
void Scheduler::emit_outputs() {
  check_loss();
  struct Copy {
    int from;
    int to;
    int guard;
  };
  std::vector<Copy> copies;
  std::vector<int> results;
  for (const auto& output : graph_.outputs()) {
    int v = read(output.value);
    const ir::Input* input = graph_.find_input(output.name);
    if (input == nullptr || input->kind == ir::InputKind::kInput) {
      if (is_replaced(memory_.place(v).buffer)) v = add_copy(v, output.name, value(v).strides);
      schedule_.outputs[output.name] = v;
      results.push_back(v);
      continue;
    }
    const int target = scheduled(input->value);
    const auto& a = memory_.place(v);
    const auto& b = memory_.place(target);
    if (a.buffer == b.buffer && a.at == b.at) continue;
    // Another parameter's value: read it before that one changes too. What is in its home by now is new.
    const bool is_old = memory_.buffer(a.buffer).persistent && !homes_.contains(output.value);
    if (is_old) v = add_copy(v, output.name, value(v).strides);
    copies.push_back({v, target, guard_of(output.name)});
  }
  for (const auto& copy : copies) {
    add_step({.kind = StepKind::kCopy, .op = "copy", .inputs = {copy.from}, .outputs = {copy.to}, .guard = copy.guard});
  }
  for (const int v : results) memory_.touch(v, step_now());
}

// Whether the parameter that lies in `buffer` gets a new value in this schedule.
bool Scheduler::is_replaced(int buffer) const {
  for (const auto& [now, inputs] : uses_.updates) {
    for (const ValueId input : inputs) {
      if (now != input && buffer_of(input) == buffer) return true;
    }
  }
  return false;
}

void Scheduler::finish() {
  // After a skipped step, too, the data may be looked at once more.
  if (graph_.find_output(ir::kUpdateGuard) != nullptr && step_now() > 0) {
    for (const auto& [name, input] : schedule_.inputs) memory_.touch(input, step_now() - 1);
  }
  schedule_.persistent_bytes = aligned(persistent_.bytes);
  const auto use =
      memory_.assign_offsets(schedule_.persistent_bytes, step_now(), options_.share_memory, options_.idle_steps);
  schedule_.arena_bytes = use.end;
  schedule_.peak_bytes = use.peak_bytes;
  schedule_.peak_step = use.peak_step;
  schedule_.blocks = memory_.blocks();
  for (size_t v = 0; v < schedule_.values.size(); ++v) {
    schedule_.values[v].offset = memory_.offset(static_cast<int>(v));
  }
  for (const auto& [step, buffer] : scratch_) {
    schedule_.steps[static_cast<size_t>(step)].scratch_offset = memory_.buffer(buffer).offset;
  }
}

// --- nodes -----------------------------------------------------------------------------------------------------------

// Before anything persistent is written: the loss must be finite, unless a guard decides what is written.
void Scheduler::check_loss() {
  if (loss_checked_) return;
  loss_checked_ = true;
  if (graph_.find_output(ir::kUpdateGuard) != nullptr) return;
  const ir::Output* loss = graph_.find_output("loss");
  if (loss == nullptr || uses_.updates.empty()) return;
  const int v = read(loss->value);
  if (may_have_gate(loss->value)) return close_gate_unless_finite(v);
  const int step = add_step({.kind = StepKind::kCheckFinite, .inputs = {v}, .source = "loss"});
  // Data inputs stay: the step may be run again to find where the first non-finite value came from.
  for (const auto& [name, input] : schedule_.inputs) memory_.touch(input, step);
}

// Where the host takes part in collectives it has the loss then. Where devices communicate by themselves the gates of
// all ranks must agree: the loss is made of nothing but what one sum has given to all ranks of the job.
bool Scheduler::may_have_gate(ValueId loss) const {
  if (!options_.host_copies || !is_floating(graph_.type(loss).dtype)) return false;
  bool communicates = false;
  std::vector<bool> is_alike(static_cast<size_t>(graph_.num_values()));  // on all ranks; inputs may be a rank's own
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    const Node& node = graph_.node(n);
    const bool of_alike = std::all_of(node.inputs.begin(), node.inputs.end(),
                                      [&](ValueId v) { return is_alike[static_cast<size_t>(v)]; });
    const auto* collective = ops::collective_of(node);
    if (collective != nullptr) {
      communicates = true;
      const Ints& ranks = node.attributes.get_ints("ranks");
      if (!options_.communicates_there || !options_.communicates_there(ranks)) return false;
      const bool is_sum =
          collective->reduces && collective->gives_one && node.attributes.get_string("reduction") == "sum";
      if (!is_sum || std::ssize(ranks) != options_.num_ranks) continue;
    }
    for (const ValueId v : node.outputs) is_alike[static_cast<size_t>(v)] = of_alike || collective != nullptr;
  }
  return !communicates || is_alike[static_cast<size_t>(loss)];
}

void Scheduler::close_gate_unless_finite(int loss) {
  const Type flag{DType::kBool, {}};
  const int finite = new_value("finite", flag, {}, memory_.add_buffer(flag.size_bytes()));
  add_flag_step("all_finite", {loss, loss}, finite);
  const int buffer = memory_.add_buffer(flag.size_bytes());
  memory_.mutable_buffer(buffer).persistent = true;
  memory_.mutable_buffer(buffer).offset = 0;  // of the gate's own memory
  schedule_.gate = new_value("gate", flag, {}, buffer);
  schedule_.values.back().space = ir::MemorySpace::kGate;
  add_flag_step("logical_and", {schedule_.gate, finite}, schedule_.gate);
}

// Which makes a bool[].
void Scheduler::add_flag_step(const std::string& op, const std::vector<int>& inputs, int output) {
  KernelRequest request{.op = op, .outputs = {view_of(output)}, .num_threads = catalogue_.num_threads()};
  for (const int v : inputs) request.inputs.push_back(view_of(v));
  const auto choice = catalogue_.choose(request);
  Step step{.kind = StepKind::kCompute,
            .op = op,
            .kernel = choice.name,
            .inputs = inputs,
            .outputs = {output},
            .scratch_bytes = choice.scratch_bytes,
            .source = "loss"};
  step.on_host = choice.on_host;
  if (!choice.on_host) take_scratch(choice.scratch_bytes);
  add_step(std::move(step));
}

// Of the next step.
void Scheduler::take_scratch(int64_t bytes) {
  if (bytes == 0) return;
  const int buffer = memory_.add_buffer(bytes);
  scratch_.emplace(step_now(), buffer);
  memory_.mutable_buffer(buffer).first = memory_.mutable_buffer(buffer).last = step_now();
}

int Scheduler::guard_of(const std::string& output) {
  return guarded_.contains(output) ? read(graph_.find_output(ir::kUpdateGuard)->value) : schedule_.gate;
}

// Nobody reads the new values of a guarded node here: all of them are outputs.
int Scheduler::guard_of_update(const Node& node) {
  if (schedule_.gate >= 0) return schedule_.gate;
  for (const auto& output : graph_.outputs()) {
    if (output.value == node.outputs[0]) return guard_of(output.name);
  }
  return -1;
}

void Scheduler::emit_node(NodeId n) {
  const Node& node = graph_.node(n);
  if (ops::OpRegistry::instance().get(node.op).collective) {
    emit_collective(n);
    return;
  }
  const bool is_late = order_.is_late_update[static_cast<size_t>(n)];
  if (is_late) check_loss();
  if (emit_alias(n)) return;

  Step step{.kind = StepKind::kCompute,
            .op = node.op,
            .attributes = node.attributes,
            .source = node.source,
            .line = node.line};
  KernelRequest request{.op = node.op, .attributes = node.attributes, .num_threads = catalogue_.num_threads()};
  for (const ValueId v : node.inputs) {
    step.inputs.push_back(read(v));
    request.inputs.push_back(view_of(step.inputs.back()));
  }
  for (const ValueId v : node.outputs) {
    request.outputs.emplace_back(nullptr, graph_.type(v).dtype, graph_.type(v).shape, strides_of(v));
  }
  ops::ChosenKernel choice;
  try {
    choice = catalogue_.choose(request);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("{}: {}", graph_.node_name(n), error.what());
  } catch (const std::bad_alloc& error) {
    throw InvalidArgument("{}: {}", graph_.node_name(n), no_memory_text(error));
  }
  step.kernel = choice.name;
  step.on_host = choice.on_host;
  if (is_late) step.guard = guard_of_update(node);
  std::set<int> taken;  // inputs whose memory an output already took
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const ValueId v = node.outputs[o];
    std::optional<MemoryPlan::Address> place;
    if (const auto home = homes_.find(v); home != homes_.end()) place = {home->second, 0};
    for (const auto& [in, out] : choice.in_place) {
      if (place || static_cast<size_t>(out) != o || taken.contains(in)) continue;
      const ValueId operand = node.inputs[static_cast<size_t>(in)];
      if (!may_take(n, v, operand)) continue;
      place = memory_.place(scheduled(operand));
      taken.insert(in);
      break;
    }
    if (!place) place = {memory_.add_buffer(graph_.type(v).size_bytes()), 0};
    step.outputs.push_back(new_result(v, strides_of(v), place->buffer, place->at));
  }
  step.scratch_bytes = choice.scratch_bytes;
  // The host's scratch memory is not in the arena: host_copies.h.
  if (!choice.on_host) take_scratch(choice.scratch_bytes);
  add_step(std::move(step));
}

// Shape changes of row-major values move nothing: the result is the operand under another shape.
bool Scheduler::emit_alias(NodeId n) {
  const Node& node = graph_.node(n);
  if (!options_.share_memory) return false;
  if (ops::OpRegistry::instance().get(node.op).elements != ops::Elements::kRelabelled) return false;
  const ValueId out = node.outputs[0];
  if (uses_.updates.contains(out)) return false;
  const int in = read(node.inputs[0]);
  const auto place = memory_.place(in);
  if (!is_dense(value(in).type.shape, value(in).strides)) return false;
  if (!is_dense(graph_.type(out).shape, strides_of(out))) return false;
  if (memory_.buffer(place.buffer).persistent && uses_.is_result[static_cast<size_t>(out)]) return false;
  new_result(out, strides_of(out), place.buffer, place.at);
  return true;
}

// Whether result `out` of node `n` may be written over operand `in`.
bool Scheduler::may_take(NodeId n, ValueId out, ValueId in) const {
  const int index = buffer_of(in);
  const Buffer& buffer = memory_.buffer(index);
  const Type& type = graph_.type(out);
  if (graph_.type(in).size_bytes() != type.size_bytes() || type.size_bytes() == 0) return false;
  if (is_under_way(index)) return false;
  if (!lies_alike(graph_.type(in).shape, value(scheduled(in)).strides, type.shape, strides_of(out))) return false;
  // The node must not read the same memory through another operand.
  int readers = 0;
  for (const ValueId other : graph_.node(n).inputs) readers += buffer_of(other) == index ? 1 : 0;
  if (readers != 1) return false;
  const auto update = uses_.updates.find(out);
  if (buffer.persistent) {
    // Only the parameter's own update may write there, and only after the loss was checked.
    const bool own = update != uses_.updates.end() && update->second == std::vector<ValueId>{in};
    return own && order_.is_late_update[static_cast<size_t>(n)] && dies_at(in, n);
  }
  if (update != uses_.updates.end() || !options_.share_memory) return false;
  if (buffer.data_input) return false;  // kept for a second look
  if (bucket_buffers_.contains(index)) return false;
  return dies_at(in, n);
}

// Whether node `n` is the last that reads the buffer of `v`, and nobody wants it afterwards.
bool Scheduler::dies_at(ValueId v, NodeId n) const {
  const auto reads_at = [&](NodeId node) { return order_.reads_at[static_cast<size_t>(node)]; };
  const auto& values = memory_.buffer(buffer_of(v)).values;
  return std::all_of(values.begin(), values.end(), [&](int index) {
    const ValueId other = value_id_[static_cast<size_t>(index)];
    if (other == ir::kNone) return true;
    const auto& users = uses_.users[static_cast<size_t>(other)];
    return !uses_.is_result[static_cast<size_t>(other)] &&
           std::all_of(users.begin(), users.end(), [&](NodeId user) { return reads_at(user) <= reads_at(n); });
  });
}

Schedule make_schedule(const Graph& local, const ir::PersistentLayout& persistent,
                       const ops::KernelCatalogue& catalogue, const ScheduleOptions& options) {
  const GuardedUpdates updates = find_guarded_updates(local);
  return Scheduler(updates.graph, updates.names, persistent, catalogue, options).run();
}

}  // namespace tessera::compiler
