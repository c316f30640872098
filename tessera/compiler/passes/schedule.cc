// From a local graph to a Schedule: order, places of collectives, sharing of memory, offsets.
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "tessera/base/error.h"
#include "tessera/compiler/passes/passes.h"
#include "tessera/ops/exchange.h"
#include "tessera/ops/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Schedule;
using ir::Step;
using ir::StepKind;
using ir::ValueId;

constexpr int64_t kAlignment = 64;
int64_t align(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Memory that one or several values share.
struct Buffer {
  int64_t bytes = 0;
  int first = std::numeric_limits<int>::max();  // steps between which it is alive
  int last = -1;
  int64_t offset = -1;  // >= 0: fixed
  bool persistent = false;
  bool data_input = false;
};

class Scheduler {
 public:
  Scheduler(const Graph& graph, const ir::PersistentLayout& persistent, const ops::KernelCatalogue& catalogue,
            const ScheduleOptions& options)
      : graph_(graph),
        persistent_(persistent),
        catalogue_(catalogue),
        options_(options),
        strides_(assign_layouts(graph, options.channels_last)) {}

  Schedule run() {
    schedule_.name = graph_.name();
    count_uses();
    order_nodes();
    place_inputs();
    for (const NodeId n : order_) emit_node(n);
    for (const int start : std::vector<int>(pending_waits_)) wait_for(start);
    emit_outputs();
    assign_offsets();
    return std::move(schedule_);
  }

 private:
  // --- what the graph says -----------------------------------------------------------------------------------------

  void count_uses() {
    users_.resize(static_cast<size_t>(graph_.num_values()));
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      for (const ValueId v : graph_.node(n).inputs) users_[static_cast<size_t>(v)].push_back(n);
    }
    is_result_.resize(static_cast<size_t>(graph_.num_values()));
    for (const auto& output : graph_.outputs()) {
      is_result_[static_cast<size_t>(output.value)] = true;
      const ir::Input* input = graph_.find_input(output.name);
      if (input != nullptr && input->kind != ir::InputKind::kInput) updates_[output.value].push_back(input->value);
    }
  }

  bool is_update(NodeId n) const {
    const Node& node = graph_.node(n);
    return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return updates_.contains(v); });
  }

  // Updates whose results nobody reads go to the end, those whose gradients are ready first in front: all that is
  // before them can be checked before anything is written, and the last bucket's wait does not hold up the first
  // update.
  void order_nodes() {
    std::vector<NodeId> late;
    std::vector<int> position(static_cast<size_t>(graph_.num_nodes()));
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const Node& node = graph_.node(n);
      const bool read = std::any_of(node.outputs.begin(), node.outputs.end(),
                                    [&](ValueId v) { return !users_[static_cast<size_t>(v)].empty(); });
      if (is_update(n) && !read) {
        late.push_back(n);
      } else {
        position[static_cast<size_t>(n)] = static_cast<int>(order_.size());
        order_.push_back(n);
      }
    }
    const auto ready = [&](NodeId n) {
      int latest = -1;
      for (const ValueId v : graph_.node(n).inputs) {
        if (const NodeId from = graph_.info(v).node; from != ir::kNone) {
          latest = std::max(latest, position[static_cast<size_t>(from)]);
        }
      }
      return latest;
    };
    std::stable_sort(late.begin(), late.end(), [&](NodeId a, NodeId b) { return ready(a) < ready(b); });
    first_update_ = order_.size();
    order_.insert(order_.end(), late.begin(), late.end());
    // Uses by position, to know which is the last.
    position_.resize(static_cast<size_t>(graph_.num_nodes()));
    for (size_t i = 0; i < order_.size(); ++i) position_[static_cast<size_t>(order_[i])] = static_cast<int>(i);
    // The members of a bucket read their operands when the last of them is there.
    std::map<int64_t, int> last_member;
    for (const bool reads : {false, true}) {
      for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
        const int64_t bucket = bucket_of(n);
        if (bucket < 0) continue;
        int& last = last_member[bucket];
        int& own = position_[static_cast<size_t>(n)];
        if (reads) own = last;
        last = std::max(last, own);
      }
    }
  }

  // The bucket of an all_reduce that shares one; -1 for all other nodes.
  int64_t bucket_of(NodeId n) const {
    const Node& node = graph_.node(n);
    return node.op == "all_reduce" && node.attributes.has("bucket") ? node.attributes.get_int("bucket") : -1;
  }

  // --- values and buffers ------------------------------------------------------------------------------------------

  int step_now() const { return static_cast<int>(schedule_.steps.size()); }

  int new_buffer(int64_t bytes) {
    buffers_.push_back({.bytes = align(bytes)});
    return static_cast<int>(buffers_.size()) - 1;
  }

  // A new scheduled value in `buffer`, `at` bytes from its start.
  int new_value(const std::string& name, const Type& type, const Strides& strides, int buffer, int64_t at = 0) {
    schedule_.values.push_back({name, type, strides, 0});
    placement_.push_back({buffer, at});
    return static_cast<int>(schedule_.values.size()) - 1;
  }

  void touch(int value, int step) {
    Buffer& buffer = buffers_[static_cast<size_t>(placement_[static_cast<size_t>(value)].buffer)];
    buffer.first = std::min(buffer.first, step);
    buffer.last = std::max(buffer.last, step);
  }

  int buffer_of(ValueId v) const { return placement_[static_cast<size_t>(scheduled_[static_cast<size_t>(v)])].buffer; }

  void place_inputs() {
    scheduled_.assign(static_cast<size_t>(graph_.num_values()), -1);
    names_.resize(static_cast<size_t>(graph_.num_values()));
    int number = 0;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      for (const ValueId v : graph_.node(n).outputs) names_[static_cast<size_t>(v)] = fmt::format("%{}", ++number);
    }
    for (const auto& input : graph_.inputs()) {
      const Type& type = graph_.type(input.value);
      const int buffer = new_buffer(type.size_bytes());
      const int value = new_value(input.name, type, strides_[static_cast<size_t>(input.value)], buffer);
      scheduled_[static_cast<size_t>(input.value)] = value;
      if (input.kind == ir::InputKind::kInput) {
        schedule_.inputs[input.name] = value;
        buffers_[static_cast<size_t>(buffer)].data_input = true;
        touch(value, 0);
        continue;
      }
      const auto it = persistent_.offsets.find(input.name);
      if (it == persistent_.offsets.end()) {
        throw InvalidArgument("graph {} reads {} \"{}\", which the session does not hold", graph_.name(),
                              ir::to_string(input.kind), input.name);
      }
      check_equal(persistent_.types.at(input.name), type, "type of a persistent value");
      buffers_[static_cast<size_t>(buffer)].offset = it->second;
      buffers_[static_cast<size_t>(buffer)].persistent = true;
    }
  }

  // Whether node `n` is the last that reads the buffer of `v`, and nobody wants it afterwards.
  bool dies_at(ValueId v, NodeId n) const {
    const int buffer = buffer_of(v);
    for (ValueId other = 0; other < graph_.num_values(); ++other) {
      const int value = scheduled_[static_cast<size_t>(other)];
      if (value < 0 || placement_[static_cast<size_t>(value)].buffer != buffer) continue;
      if (is_result_[static_cast<size_t>(other)]) return false;
      for (const NodeId user : users_[static_cast<size_t>(other)]) {
        if (position_[static_cast<size_t>(user)] > position_[static_cast<size_t>(n)]) return false;
      }
    }
    return true;
  }

  // --- steps -------------------------------------------------------------------------------------------------------

  int add_step(Step step) {
    const int index = step_now();
    for (const int v : step.inputs) touch(v, index);
    for (const int v : step.outputs) touch(v, index);
    schedule_.steps.push_back(std::move(step));
    return index;
  }

  void wait_for(int start) {
    if (std::erase(pending_waits_, start) == 0) return;
    const Step& started = schedule_.steps[static_cast<size_t>(start)];
    // Operands and results live until here.
    add_step({.kind = StepKind::kWait,
              .op = started.op,
              .inputs = started.inputs,
              .outputs = started.outputs,
              .joins = start});
  }

  // The scheduled value to read `v` from, waiting for the collective that makes it.
  int read(ValueId v) {
    if (const auto it = made_by_.find(v); it != made_by_.end()) {
      const int start = it->second;
      made_by_.erase(it);
      wait_for(start);
    }
    const int value = scheduled_[static_cast<size_t>(v)];
    check(value >= 0, "a value is read before it is scheduled");
    return value;
  }

  // Before anything persistent is written: the loss must be finite.
  void check_loss() {
    if (loss_checked_) return;
    loss_checked_ = true;
    const ir::Output* loss = graph_.find_output("loss");
    if (loss == nullptr || updates_.empty()) return;
    const int value = read(loss->value);
    const int step = add_step({.kind = StepKind::kCheckFinite, .inputs = {value}, .source = "loss"});
    // Data inputs stay: the step may be run again to find where the first non-finite value came from.
    for (const auto& [name, input] : schedule_.inputs) touch(input, step);
  }

  void emit_node(NodeId n) {
    const Node& node = graph_.node(n);
    if (ops::OpRegistry::instance().get(node.op).collective) {
      emit_collective(n);
      return;
    }
    if (is_update(n) && position_[static_cast<size_t>(n)] >= static_cast<int>(first_update_)) check_loss();
    if (emit_alias(n)) return;

    Step step{.kind = StepKind::kCompute, .op = node.op, .attributes = node.attributes, .source = node.source};
    KernelRequest request{.op = node.op, .attributes = node.attributes, .num_threads = catalogue_.num_threads()};
    for (const ValueId v : node.inputs) {
      step.inputs.push_back(read(v));
      request.inputs.push_back(view_of(step.inputs.back()));
    }
    for (const ValueId v : node.outputs) {
      request.outputs.emplace_back(nullptr, graph_.type(v).dtype, graph_.type(v).shape,
                                   strides_[static_cast<size_t>(v)]);
    }
    ops::KernelChoice choice;
    try {
      choice = catalogue_.choose(request);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument("{}: {}", graph_.node_name(n), error.what());
    }
    step.kernel = choice.name;
    std::set<int> taken;  // inputs whose memory an output already took
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const ValueId v = node.outputs[o];
      int buffer = -1;
      for (const auto& [in, out] : choice.in_place) {
        if (static_cast<size_t>(out) != o || taken.contains(in)) continue;
        if (may_take(n, v, node.inputs[static_cast<size_t>(in)])) {
          buffer = buffer_of(node.inputs[static_cast<size_t>(in)]);
          taken.insert(in);
          break;
        }
      }
      const bool takes_input = buffer >= 0;
      const int64_t at = takes_input ? placement_at(node, *taken.rbegin(), buffer) : 0;
      if (!takes_input) buffer = new_buffer(graph_.type(v).size_bytes());
      const int value =
          new_value(names_[static_cast<size_t>(v)], graph_.type(v), strides_[static_cast<size_t>(v)], buffer, at);
      scheduled_[static_cast<size_t>(v)] = value;
      step.outputs.push_back(value);
    }
    if (choice.scratch_bytes > 0) {
      step.scratch_bytes = choice.scratch_bytes;
      scratch_.emplace(step_now(), new_buffer(choice.scratch_bytes));
      Buffer& buffer = buffers_.back();
      buffer.first = buffer.last = step_now();
    }
    add_step(std::move(step));
  }

  int64_t placement_at(const Node& node, int input, int buffer) const {
    const int value = scheduled_[static_cast<size_t>(node.inputs[static_cast<size_t>(input)])];
    check_equal(placement_[static_cast<size_t>(value)].buffer, buffer, "buffer of an in-place operand");
    return placement_[static_cast<size_t>(value)].at;
  }

  TensorView view_of(int value) const {
    const auto& v = schedule_.values[static_cast<size_t>(value)];
    return {nullptr, v.type.dtype, v.type.shape, v.strides};
  }

  // Whether result `out` of node `n` may be written over operand `in`.
  bool may_take(NodeId n, ValueId out, ValueId in) const {
    const int value = scheduled_[static_cast<size_t>(in)];
    const int buffer_index = placement_[static_cast<size_t>(value)].buffer;
    const Buffer& buffer = buffers_[static_cast<size_t>(buffer_index)];
    const Type& type = graph_.type(out);
    if (graph_.type(in).size_bytes() != type.size_bytes() || type.size_bytes() == 0) return false;
    if (is_under_way(buffer_index)) return false;
    if (!(schedule_.values[static_cast<size_t>(value)].strides == strides_[static_cast<size_t>(out)])) return false;
    // The node must not read the same memory through another operand.
    int readers = 0;
    for (const ValueId other : graph_.node(n).inputs) readers += buffer_of(other) == buffer_index ? 1 : 0;
    if (readers != 1) return false;
    if (buffer.persistent) {
      // Only the parameter's own update may write there, and only after the loss was checked.
      const auto it = updates_.find(out);
      const bool own = it != updates_.end() && std::find(it->second.begin(), it->second.end(), in) != it->second.end();
      return own && loss_checked_ && it->second.size() == 1 && dies_at(in, n);
    }
    if (updates_.contains(out) || !options_.share_memory) return false;
    if (buffer.data_input) return false;  // kept for a second look
    if (bucket_buffers_.contains(buffer_index)) return false;
    return dies_at(in, n);
  }

  // Whether a collective that has been started, and not yet waited for, reads or writes there.
  bool is_under_way(int buffer) const {
    const auto is_there = [&](int value) { return placement_[static_cast<size_t>(value)].buffer == buffer; };
    return std::any_of(pending_waits_.begin(), pending_waits_.end(), [&](int start) {
      const Step& step = schedule_.steps[static_cast<size_t>(start)];
      return std::any_of(step.inputs.begin(), step.inputs.end(), is_there) ||
             std::any_of(step.outputs.begin(), step.outputs.end(), is_there);
    });
  }

  // Shape changes of row-major values move nothing: the result is the operand under another shape.
  bool emit_alias(NodeId n) {
    const Node& node = graph_.node(n);
    if (!options_.share_memory) return false;
    if (node.op != "reshape" && node.op != "squeeze" && node.op != "expand_dims") return false;
    const ValueId out = node.outputs[0];
    if (updates_.contains(out)) return false;
    const int in = read(node.inputs[0]);
    const auto& value = schedule_.values[static_cast<size_t>(in)];
    const auto place = placement_[static_cast<size_t>(in)];
    if (!is_dense(value.type.shape, value.strides)) return false;
    if (!is_dense(graph_.type(out).shape, strides_[static_cast<size_t>(out)])) return false;
    const bool from_persistent = buffers_[static_cast<size_t>(place.buffer)].persistent;
    if (from_persistent && is_result_[static_cast<size_t>(out)]) return false;
    scheduled_[static_cast<size_t>(out)] = new_value(names_[static_cast<size_t>(out)], graph_.type(out),
                                                     strides_[static_cast<size_t>(out)], place.buffer, place.at);
    return true;
  }

  void emit_collective(NodeId n) {
    const Node& node = graph_.node(n);
    if (node.op != "all_reduce") {
      Step step{.kind = StepKind::kStart, .op = node.op, .attributes = node.attributes, .source = node.source};
      for (const ValueId v : node.inputs) step.inputs.push_back(dense_copy(read(v)));
      for (const ValueId v : node.outputs) {
        // Collectives work on row-major buffers.
        strides_[static_cast<size_t>(v)] = dense_strides(graph_.type(v).shape);
        const int value = new_value(names_[static_cast<size_t>(v)], graph_.type(v), strides_[static_cast<size_t>(v)],
                                    new_buffer(graph_.type(v).size_bytes()));
        scheduled_[static_cast<size_t>(v)] = value;
        step.outputs.push_back(value);
      }
      if (const int64_t bytes = staging_bytes(node); bytes > 0) {
        const Type staging{DType::kU8, Shape{bytes}};
        step.inputs.push_back(new_value("staging", staging, dense_strides(staging.shape), new_buffer(bytes)));
      }
      start(std::move(step), node.outputs);
      return;
    }
    int64_t bucket = bucket_of(n);
    if (bucket < 0) bucket = -1 - n;  // alone
    auto& members = buckets_[bucket];
    members.push_back(n);
    if (static_cast<int>(members.size()) < bucket_size(bucket)) return;
    emit_bucket(members);
  }

  // Ranks exchange whole pieces; along any dim but the first those are not contiguous and pass through a second buffer.
  // 0: needs none. One that is needed has a byte even where this rank has no elements.
  int64_t staging_bytes(const Node& node) const {
    const auto at_least_one = [](int64_t bytes) { return std::max(bytes, kAlignment); };
    if (node.op == "all_gather" && node.attributes.get_int("dim") != 0) {
      return at_least_one(graph_.type(node.outputs[0]).size_bytes());
    }
    const Type* operand = node.inputs.empty() ? nullptr : &graph_.type(node.inputs[0]);
    if (node.op == "reduce_scatter" && node.attributes.get_int("dim") != 0) return at_least_one(operand->size_bytes());
    if (node.op == "all_to_all") return at_least_one(2 * align(operand->size_bytes()));
    if (node.op == "exchange") {
      const int ndim = operand->shape.ndim();
      return at_least_one(static_cast<int64_t>(size_bytes(operand->dtype)) *
                          (ops::exchange_sent_elements(node.attributes, ndim) +
                           ops::exchange_received_elements(node.attributes, ndim)));
    }
    return 0;
  }

  int bucket_size(int64_t bucket) {
    if (bucket < 0) return 1;
    if (bucket_sizes_.empty()) {
      for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
        if (bucket_of(n) >= 0) ++bucket_sizes_[bucket_of(n)];
      }
    }
    return bucket_sizes_.at(bucket);
  }

  // The members' operands are moved into one piece of memory, reduced there, and read there. A member whose operand
  // has other readers is copied; the others are produced in place.
  void emit_bucket(const std::vector<NodeId>& members) {
    Step step{.kind = StepKind::kStart,
              .op = "all_reduce",
              .attributes = graph_.node(members[0]).attributes,
              .source = graph_.node(members[0]).source};
    int64_t bytes = 0;
    for (const NodeId n : members) bytes += align(graph_.type(graph_.node(n).inputs[0]).size_bytes());
    const int block = new_buffer(bytes);
    bucket_buffers_.insert(block);
    std::vector<ValueId> results;
    int64_t at = 0;
    for (const NodeId n : members) {
      const Node& node = graph_.node(n);
      const ValueId in = node.inputs[0];
      const ValueId out = node.outputs[0];
      const Type& type = graph_.type(out);
      const int source = read(in);
      const Strides strides = schedule_.values[static_cast<size_t>(source)].strides;
      strides_[static_cast<size_t>(out)] = strides;
      const int value = new_value(names_[static_cast<size_t>(out)], type, strides, block, at);
      scheduled_[static_cast<size_t>(out)] = value;
      if (may_move(in)) {
        move_buffer(placement_[static_cast<size_t>(source)].buffer, block, at);
      } else {
        add_step(
            {.kind = StepKind::kCopy, .op = "copy", .inputs = {source}, .outputs = {value}, .source = node.source});
      }
      at += align(type.size_bytes());
      step.outputs.push_back(value);
      results.push_back(out);
    }
    // The whole block as one value: what the collective runs on.
    const DType dtype = graph_.type(results[0]).dtype;
    const Type whole{dtype, Shape{bytes / static_cast<int64_t>(size_bytes(dtype))}};
    step.inputs.push_back(
        new_value(fmt::format("bucket[{}]", members.size()), whole, dense_strides(whole.shape), block));
    start(std::move(step), results);
  }

  // Whether a bucket may take over the memory of `v`: a buffer of its own, read by nobody else.
  bool may_move(ValueId v) const {
    const int value = scheduled_[static_cast<size_t>(v)];
    const auto place = placement_[static_cast<size_t>(value)];
    const Buffer& buffer = buffers_[static_cast<size_t>(place.buffer)];
    if (!options_.share_memory || buffer.persistent || bucket_buffers_.contains(place.buffer)) return false;
    if (buffer.data_input || is_result_[static_cast<size_t>(v)]) return false;
    if (users_[static_cast<size_t>(v)].size() != 1) return false;
    int values_in_buffer = 0;
    for (const auto& p : placement_) values_in_buffer += p.buffer == place.buffer ? 1 : 0;
    // In-place chains share a buffer: all but the last of its values must be dead, which users_ of each tells.
    return values_in_buffer <= 1;
  }

  void move_buffer(int from, int to, int64_t at) {
    for (auto& place : placement_) {
      if (place.buffer == from) place = {to, place.at + at};
    }
    Buffer& target = buffers_[static_cast<size_t>(to)];
    Buffer& source = buffers_[static_cast<size_t>(from)];
    target.first = std::min(target.first, source.first);
    target.last = std::max(target.last, source.last);
    source.bytes = 0;
    source.last = -1;
  }

  int dense_copy(int value) {
    const auto& v = schedule_.values[static_cast<size_t>(value)];
    if (is_dense(v.type.shape, v.strides)) return value;
    const Type type = v.type;
    const int copy = new_value(v.name + "'", type, dense_strides(type.shape), new_buffer(type.size_bytes()));
    add_step({.kind = StepKind::kCopy, .op = "copy", .inputs = {value}, .outputs = {copy}});
    return copy;
  }

  void start(Step step, const std::vector<ValueId>& results) {
    const int index = add_step(std::move(step));
    pending_waits_.push_back(index);
    for (const ValueId v : results) made_by_[v] = index;
  }

  // New values of parameters that could not be written in place are copied, after everything has read the old ones.
  void emit_outputs() {
    check_loss();
    struct Copy {
      int from;
      int to;
    };
    std::vector<Copy> copies;
    for (const auto& output : graph_.outputs()) {
      int value = read(output.value);
      const ir::Input* input = graph_.find_input(output.name);
      if (input == nullptr || input->kind == ir::InputKind::kInput) {
        if (is_replaced(placement_[static_cast<size_t>(value)].buffer)) value = saved_copy(output.name, value);
        schedule_.outputs[output.name] = value;
        results_.push_back(value);
        continue;
      }
      const int target = scheduled_[static_cast<size_t>(input->value)];
      const auto a = placement_[static_cast<size_t>(value)];
      const auto b = placement_[static_cast<size_t>(target)];
      if (a.buffer == b.buffer && a.at == b.at) continue;
      int from = value;
      if (buffers_[static_cast<size_t>(a.buffer)].persistent) {
        // Another parameter's value: read it before that one changes too.
        from = saved_copy(output.name, value);
      }
      copies.push_back({from, target});
    }
    for (const auto& copy : copies) {
      add_step({.kind = StepKind::kCopy, .op = "copy", .inputs = {copy.from}, .outputs = {copy.to}});
    }
    for (const int value : results_) touch(value, step_now());
  }

  // Whether the parameter that lies in `buffer` gets a new value in this schedule.
  bool is_replaced(int buffer) const {
    for (const auto& [now, inputs] : updates_) {
      for (const ValueId input : inputs) {
        if (now != input && buffer_of(input) == buffer) return true;
      }
    }
    return false;
  }

  int saved_copy(const std::string& name, int value) {
    const Type type = schedule_.values[static_cast<size_t>(value)].type;
    const Strides strides = schedule_.values[static_cast<size_t>(value)].strides;
    const int copy = new_value(name + "'", type, strides, new_buffer(type.size_bytes()));
    add_step({.kind = StepKind::kCopy, .op = "copy", .inputs = {value}, .outputs = {copy}});
    return copy;
  }

  // --- offsets -----------------------------------------------------------------------------------------------------

  void assign_offsets() {
    const int64_t base = align(persistent_.bytes);
    schedule_.persistent_bytes = base;
    std::vector<int> order;
    for (size_t b = 0; b < buffers_.size(); ++b) {
      Buffer& buffer = buffers_[b];
      if (buffer.persistent) continue;
      if (buffer.last < 0 || buffer.bytes == 0) {
        buffer.offset = base;  // nothing lives there
        continue;
      }
      if (!options_.share_memory) {
        buffer.first = 0;
        buffer.last = step_now();
      }
      order.push_back(static_cast<int>(b));
    }
    // Largest first, each at the lowest place that is free while it lives: the usual greedy for offline allocation.
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return buffers_[static_cast<size_t>(a)].bytes > buffers_[static_cast<size_t>(b)].bytes;
    });
    std::vector<int> placed;  // by offset
    int64_t end = base;
    for (const int b : order) {
      Buffer& buffer = buffers_[static_cast<size_t>(b)];
      int64_t at = base;
      for (const int p : placed) {
        const Buffer& other = buffers_[static_cast<size_t>(p)];
        if (other.last < buffer.first || other.first > buffer.last) continue;
        if (at + buffer.bytes <= other.offset) break;
        at = std::max(at, other.offset + other.bytes);
      }
      buffer.offset = at;
      end = std::max(end, at + buffer.bytes);
      placed.insert(std::upper_bound(placed.begin(), placed.end(), b,
                                     [&](int x, int y) {
                                       return buffers_[static_cast<size_t>(x)].offset <
                                              buffers_[static_cast<size_t>(y)].offset;
                                     }),
                    b);
    }
    schedule_.arena_bytes = end;
    for (size_t v = 0; v < placement_.size(); ++v) {
      schedule_.values[v].offset = buffers_[static_cast<size_t>(placement_[v].buffer)].offset + placement_[v].at;
    }
    for (const auto& [step, buffer] : scratch_) {
      schedule_.steps[static_cast<size_t>(step)].scratch_offset = buffers_[static_cast<size_t>(buffer)].offset;
    }
    find_peak();
  }

  void find_peak() {
    std::vector<int64_t> change(static_cast<size_t>(step_now()) + 2);
    for (const Buffer& buffer : buffers_) {
      if (buffer.persistent || buffer.last < 0 || buffer.bytes == 0) continue;
      change[static_cast<size_t>(std::max(buffer.first, 0))] += buffer.bytes;
      change[static_cast<size_t>(buffer.last) + 1] -= buffer.bytes;
    }
    int64_t alive = 0;
    int64_t most = -1;
    for (size_t s = 0; s + 1 < change.size(); ++s) {
      alive += change[s];
      if (alive > most) {
        most = alive;
        schedule_.peak_step = static_cast<int>(s);
      }
    }
  }

  struct Placement {
    int buffer = -1;
    int64_t at = 0;
  };

  const Graph& graph_;
  const ir::PersistentLayout& persistent_;
  const ops::KernelCatalogue& catalogue_;
  const ScheduleOptions& options_;
  std::vector<Strides> strides_;  // by ValueId
  Schedule schedule_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> is_result_;
  std::map<ValueId, std::vector<ValueId>> updates_;  // new value -> the inputs it replaces
  std::vector<NodeId> order_;
  std::vector<int> position_;  // of a node in order_
  size_t first_update_ = 0;
  std::vector<std::string> names_;
  std::vector<int> scheduled_;        // by ValueId: index of the scheduled value
  std::vector<Placement> placement_;  // by scheduled value
  std::vector<Buffer> buffers_;
  std::map<int, int> scratch_;      // step -> buffer
  std::map<ValueId, int> made_by_;  // results of collectives under way -> their start
  std::vector<int> pending_waits_;
  std::map<int64_t, std::vector<NodeId>> buckets_;
  std::map<int64_t, int> bucket_sizes_;
  std::set<int> bucket_buffers_;
  std::vector<int> results_;
  bool loss_checked_ = false;
};

}  // namespace

Schedule make_schedule(const Graph& local, const ir::PersistentLayout& persistent,
                       const ops::KernelCatalogue& catalogue, const ScheduleOptions& options) {
  return Scheduler(local, persistent, catalogue, options).run();
}

}  // namespace tessera::compiler
