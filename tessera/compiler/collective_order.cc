#include "tessera/compiler/collective_order.h"

#include "tessera/ops/op_def.h"

namespace tessera::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

namespace {

// By value: whether something that is communicated later depends on it.
std::vector<bool> find_awaited(const Graph& local, const std::vector<LogicalStep>& steps) {
  std::vector<bool> awaited(static_cast<size_t>(local.num_values()));
  const auto pass_on = [&](bool leads_on, const std::vector<ValueId>& inputs, const std::vector<ValueId>& outputs) {
    for (const ValueId v : outputs) leads_on = leads_on || awaited[static_cast<size_t>(v)];
    if (!leads_on) return;
    for (const ValueId v : inputs) awaited[static_cast<size_t>(v)] = true;
  };
  auto step = steps.rbegin();
  for (NodeId n = local.num_nodes(); n >= 0; --n) {
    // Behind the last node of a step; a step without nodes of its own hands its operand on.
    for (; step != steps.rend() && step->end == n; ++step) pass_on(false, step->inputs, step->outputs);
    if (n == 0) break;
    const Node& node = local.node(n - 1);
    pass_on(ops::OpRegistry::instance().get(node.op).collective, node.inputs, node.outputs);
  }
  return awaited;
}

}  // namespace

void order_collectives(Graph& local, const CollectiveFacts& facts, const PartitionOptions& options) {
  struct Bucket {
    int64_t number = 0;
    int64_t bytes = 0;
  };
  const auto awaited = find_awaited(local, facts.steps);
  std::map<std::string, Bucket> open;      // by group, reduction and dtype
  std::map<ValueId, std::string> pending;  // results of open buckets
  std::map<int64_t, NodeId> last_member;
  const auto close = [&](const std::string& key) {
    open.erase(key);
    std::erase_if(pending, [&](const auto& entry) { return entry.second == key; });
  };
  int64_t next_bucket = 0;
  const auto close_for = [&](const std::vector<ValueId>& inputs) {
    for (const ValueId input : inputs) {
      if (const auto it = pending.find(input); it != pending.end()) close(std::string(it->second));
    }
  };
  auto step = facts.steps.begin();
  for (NodeId n = 0; n < local.num_nodes(); ++n) {
    for (; step != facts.steps.end() && step->begin <= n; ++step) close_for(step->inputs);
    Node& node = local.mutable_node(n);
    close_for(node.inputs);
    if (node.op != "all_reduce") continue;
    const Type& type = local.type(node.inputs[0]);
    // What backward waits for (statistics of a split batch, say) does not travel with gradients that only updates need.
    const auto key =
        fmt::format("{} {} {} {}{}", node.attributes.get_string("group"),
                    fmt::join(node.attributes.get_ints("ranks"), "-"), node.attributes.get_string("reduction"),
                    type.dtype, awaited[static_cast<size_t>(node.outputs[0])] ? " awaited" : "");
    const auto [it, is_new] = open.try_emplace(key);
    if (is_new) it->second.number = next_bucket++;
    if (const auto known = facts.bytes.find(n); known != facts.bytes.end()) it->second.bytes += known->second;
    node.attributes.set("bucket", it->second.number);
    last_member[it->second.number] = n;
    pending[node.outputs[0]] = key;
    if (it->second.bytes >= options.bucket_bytes) close(std::string(key));
  }
  int64_t order = 0;
  std::map<int64_t, int64_t> order_of_bucket;
  for (NodeId n = 0; n < local.num_nodes(); ++n) {
    Node& node = local.mutable_node(n);
    if (!ops::OpRegistry::instance().get(node.op).collective) continue;
    if (node.op != "all_reduce") {
      node.attributes.set("order", order++);
    } else if (const int64_t bucket = node.attributes.get_int("bucket"); last_member.at(bucket) == n) {
      order_of_bucket[bucket] = order++;
    }
  }
  for (NodeId n = 0; n < local.num_nodes(); ++n) {
    Node& node = local.mutable_node(n);
    if (node.op == "all_reduce") node.attributes.set("order", order_of_bucket.at(node.attributes.get_int("bucket")));
  }
}

std::string collective_list(const Graph& local) {
  std::map<int64_t, std::string> lines;
  for (NodeId n = 0; n < local.num_nodes(); ++n) {
    const Node& node = local.node(n);
    if (!ops::OpRegistry::instance().get(node.op).collective) continue;
    auto& line = lines[node.attributes.get_int("order")];
    const auto& group = node.attributes.get_string("group");
    // Of the operand what all ranks share: parts of an uneven split differ from group to group.
    const Type& type = local.type(node.inputs[0]);
    const auto moved = fmt::format("{} {}d", type.dtype, type.shape.ndim());
    line += fmt::format("{} {} {};", group, node.op, moved);
  }
  std::string text;
  for (const auto& [order, line] : lines) text += fmt::format("{} {}\n", order, line);
  return text;
}

}  // namespace tessera::compiler
