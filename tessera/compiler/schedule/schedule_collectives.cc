// The communication lane: where collectives start, what waits for them, how those of a bucket become one.
#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/compiler/schedule/scheduler.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/tensor/alignment.h"

namespace tessera::compiler {

using ir::Node;
using ir::NodeId;
using ir::Step;
using ir::StepKind;
using ir::ValueId;

void Scheduler::emit_collective(NodeId n) {
  const Node& node = graph_.node(n);
  const ops::CollectiveDef& collective = *ops::collective_of(node);
  const int64_t bucket = bucket_of(node);
  if (bucket >= 0 && bucket_size(bucket) > 1) {
    auto& members = buckets_[bucket];
    members.push_back(n);
    if (static_cast<int>(members.size()) < bucket_size(bucket)) return;
    if (collective.in_place) {
      emit_in_place(members);
    } else {
      emit_packed(members);
    }
    return;
  }
  if (collective.in_place) {
    emit_in_place({n});
    return;
  }
  Step step{
      .kind = StepKind::kStart, .op = node.op, .attributes = node.attributes, .source = node.source, .line = node.line};
  for (const ValueId v : node.inputs) step.inputs.push_back(dense_copy(read(v)));
  for (const ValueId v : node.outputs) step.outputs.push_back(new_dense_result(v));
  const int64_t bytes = collective.staging_bytes ? collective.staging_bytes(ops::call_of(graph_, node)) : 0;
  if (bytes > 0) step.inputs.push_back(new_staging(bytes));
  start(std::move(step), node.outputs);
}

// Collectives work on row-major buffers.
int Scheduler::new_dense_result(ValueId v) {
  const Type& type = graph_.type(v);
  return new_result(v, dense_strides(type.shape), memory_.add_buffer(type.size_bytes()));
}

// A second buffer of a collective. One that is needed has a byte even where this rank has no elements.
int Scheduler::new_staging(int64_t bytes) {
  const int64_t size = std::max(bytes, kBufferAlignment);
  const Type type{DType::kU8, Shape{size}};
  return new_value("staging", type, dense_strides(type.shape), memory_.add_buffer(size));
}

int Scheduler::bucket_size(int64_t bucket) {
  if (bucket_sizes_.empty()) {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (const int64_t of_node = bucket_of(graph_.node(n)); of_node >= 0) ++bucket_sizes_[of_node];
    }
  }
  return bucket_sizes_.at(bucket);
}

// The members' operands are moved into one piece of memory, reduced there, and read there. A member whose operand has
// other readers is copied; the others are produced in place.
void Scheduler::emit_in_place(const std::vector<NodeId>& members) {
  const Node& first = graph_.node(members[0]);
  Step step{.kind = StepKind::kStart,
            .op = first.op,
            .attributes = first.attributes,
            .source = first.source,
            .line = first.line};
  int64_t bytes = 0;
  for (const NodeId n : members) bytes += aligned(graph_.type(graph_.node(n).inputs[0]).size_bytes());
  const int block = memory_.add_buffer(bytes);
  bucket_buffers_.insert(block);
  std::vector<ValueId> results;
  int64_t at = 0;
  for (const NodeId n : members) {
    const Node& node = graph_.node(n);
    const ValueId in = node.inputs[0];
    const ValueId out = node.outputs[0];
    const int source = read(in);
    const int result = new_result(out, value(source).strides, block, at);
    if (may_move(in)) {
      memory_.move_buffer(memory_.place(source).buffer, block, at);
    } else {
      add_step({.kind = StepKind::kCopy,
                .op = "copy",
                .inputs = {source},
                .outputs = {result},
                .source = node.source,
                .line = node.line});
    }
    at += aligned(graph_.type(out).size_bytes());
    step.outputs.push_back(result);
    results.push_back(out);
  }
  // The whole block as one value: what the collective runs on.
  const DType dtype = graph_.type(results[0]).dtype;
  const Type whole{dtype, Shape{bytes / static_cast<int64_t>(size_bytes(dtype))}};
  step.inputs.push_back(new_value(fmt::format("bucket[{}]", members.size()), whole, dense_strides(whole.shape), block));
  start(std::move(step), results);
}

// Collectives along dims as one: what goes between two ranks is packed side by side in a second buffer. The step has
// the members' dims in a row, and their sizes, one per rank each.
void Scheduler::emit_packed(const std::vector<NodeId>& members) {
  const Node& first = graph_.node(members[0]);
  Step step{.kind = StepKind::kStart,
            .op = first.op,
            .attributes = first.attributes,
            .source = first.source,
            .line = first.line};
  std::vector<ValueId> results;
  Ints dims;
  Ints sizes;
  int64_t bytes = 0;
  for (const NodeId n : members) {
    const Node& node = graph_.node(n);
    step.inputs.push_back(dense_copy(read(node.inputs[0])));
    dims.push_back(node.attributes.get_int("dim"));
    const Ints& parts = node.attributes.get_ints("sizes");
    sizes.insert(sizes.end(), parts.begin(), parts.end());
    bytes += std::max(graph_.type(node.inputs[0]).size_bytes(), graph_.type(node.outputs[0]).size_bytes());
    results.push_back(node.outputs[0]);
  }
  for (const ValueId v : results) step.outputs.push_back(new_dense_result(v));
  step.inputs.push_back(new_staging(bytes));
  step.attributes.set("dims", dims);
  step.attributes.set("sizes", sizes);
  start(std::move(step), results);
}

// Whether a bucket may take over the memory of `v`: a buffer of its own, read by nobody else.
bool Scheduler::may_move(ValueId v) const {
  const int index = memory_.place(scheduled(v)).buffer;
  const Buffer& buffer = memory_.buffer(index);
  if (!options_.share_memory || buffer.persistent || bucket_buffers_.contains(index)) return false;
  if (buffer.data_input || uses_.is_result[static_cast<size_t>(v)]) return false;
  if (uses_.users[static_cast<size_t>(v)].size() != 1) return false;
  // In-place chains share a buffer: all but the last of its values must be dead, which the users of each tell.
  return buffer.values.size() <= 1;
}

int Scheduler::dense_copy(int index) {
  const Shape shape = value(index).type.shape;
  if (is_dense(shape, value(index).strides)) return index;
  return add_copy(index, value(index).name, dense_strides(shape));
}

void Scheduler::start(Step step, const std::vector<ValueId>& results) {
  const int index = add_step(std::move(step));
  pending_waits_.push_back(index);
  for (const ValueId v : results) made_by_[v] = index;
  if (!options_.overlap) wait_for(index);
}

void Scheduler::wait_for(int start) {
  if (std::erase(pending_waits_, start) == 0) return;
  const Step& started = schedule_.steps[static_cast<size_t>(start)];
  // Operands and results live until here.
  add_step({.kind = StepKind::kWait,
            .op = started.op,
            .inputs = started.inputs,
            .outputs = started.outputs,
            .joins = start});
}

// Whether a collective that has been started, and not yet waited for, reads or writes there.
bool Scheduler::is_under_way(int buffer) const {
  const auto is_there = [&](int v) { return memory_.place(v).buffer == buffer; };
  return std::any_of(pending_waits_.begin(), pending_waits_.end(), [&](int start) {
    const Step& step = schedule_.steps[static_cast<size_t>(start)];
    return std::any_of(step.inputs.begin(), step.inputs.end(), is_there) ||
           std::any_of(step.outputs.begin(), step.outputs.end(), is_there);
  });
}

}  // namespace tessera::compiler
