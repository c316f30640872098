#include "tessera/compiler/partition/collective_order.h"

#include <algorithm>
#include <limits>

#include "tessera/compiler/passes/node_order.h"
#include "tessera/ir/schedule.h"
#include "tessera/ops/registry/collective_def.h"

namespace tessera::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

namespace {

using Parts = ops::CollectiveDef::Parts;

// How collectives of this kind are fused; null for those that are not.
const Fusion* fusion_of(const ops::CollectiveDef* collective, const PartitionOptions& options) {
  if (collective == nullptr || !collective->has_buckets) return nullptr;
  switch (collective->parts) {
    case Parts::kNone: return &options.all_reduce_fusion;
    case Parts::kJoined: return &options.all_gather_fusion;
    case Parts::kCut: return &options.reduce_scatter_fusion;
  }
  return nullptr;
}

// What the members of a bucket have in common.
std::string shared_by_members(const Graph& local, const Node& node) {
  const auto reduction = node.attributes.has("reduction") ? node.attributes.get_string("reduction") : "";
  return fmt::format("{} {} {} {}", node.attributes.get_string("group"),
                     fmt::join(node.attributes.get_ints("ranks"), "-"), reduction, local.type(node.inputs[0]).dtype);
}

// In which of the segments that the options ask for a gradient or parameter of this number is.
int64_t segment_of(const Fusion& fusion, int64_t number) {
  if (fusion.mode != Fusion::Mode::kIndex) return 0;
  return std::count_if(fusion.index.begin(), fusion.index.end(), [&](int64_t begin) { return begin <= number; });
}

int64_t capacity_of(const Fusion& fusion, const PartitionOptions& options) {
  switch (fusion.mode) {
    case Fusion::Mode::kAuto: return options.bucket_bytes > 0 ? options.bucket_bytes : kDefaultBucketBytes;
    case Fusion::Mode::kSize: return fusion.bytes;
    case Fusion::Mode::kIndex: return std::numeric_limits<int64_t>::max();
    case Fusion::Mode::kOff: return 0;
  }
  return 0;
}

}  // namespace

void order_collectives(Graph& local, const CollectiveFacts& facts, const PartitionOptions& options) {
  struct Bucket {
    int64_t number = 0;
    int64_t bytes = 0;
  };
  std::map<std::string, Bucket> open;       // by what its members share
  std::map<ValueId, std::string> pending;   // results of open buckets
  std::map<std::string, int64_t> num_seen;  // by operator: those with a fusion id, which segments are counted in
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
    const auto known = facts.bytes.find(n);
    const auto* collective = ops::collective_of(node);
    const Fusion* fusion = fusion_of(collective, options);
    // What is along no dim is of one shape on all ranks, also where nobody has said how large.
    if (fusion == nullptr || (known == facts.bytes.end() && collective->parts != Parts::kNone)) continue;
    const auto id = facts.fusion_ids.find(n);
    const bool is_fused = fusion->mode != Fusion::Mode::kOff && (id == facts.fusion_ids.end() || id->second != 0);
    const int64_t segment = id == facts.fusion_ids.end() ? 0 : segment_of(*fusion, num_seen[node.op]++);
    // What is awaited does not travel with gradients that only updates need.
    const auto key = fmt::format(
        "{} {} {} {}{}{}", node.op, shared_by_members(local, node), id == facts.fusion_ids.end() ? 1 : id->second,
        segment, facts.awaited.contains(n) ? " awaited" : "", facts.written.contains(n) ? " written" : "");
    const auto [it, is_new] = open.try_emplace(key);
    if (is_new) it->second.number = next_bucket++;
    if (known != facts.bytes.end()) it->second.bytes += known->second;
    node.attributes.set("bucket", it->second.number);
    last_member[it->second.number] = n;
    pending[node.outputs[0]] = key;
    if (!is_fused || it->second.bytes >= capacity_of(*fusion, options)) close(std::string(key));
  }
  int64_t order = 0;
  std::map<int64_t, int64_t> order_of_bucket;
  for (NodeId n = 0; n < local.num_nodes(); ++n) {
    Node& node = local.mutable_node(n);
    if (ops::collective_of(node) == nullptr) continue;
    const int64_t bucket = bucket_of(node);
    const bool is_awaited = facts.awaited.contains(n) && !facts.written.contains(n);
    node.attributes.set("lane", is_awaited ? ir::kAwaitedLane : ir::kGradientLane);
    if (bucket < 0) {
      node.attributes.set("order", order++);
    } else if (last_member.at(bucket) == n) {
      order_of_bucket[bucket] = order++;
    }
  }
  for (NodeId n = 0; n < local.num_nodes(); ++n) {
    Node& node = local.mutable_node(n);
    if (ops::collective_of(node) == nullptr || bucket_of(node) < 0) continue;
    node.attributes.set("order", order_of_bucket.at(bucket_of(node)));
  }
}

std::string collective_list(const Graph& local) {
  std::map<int64_t, std::string> lines;
  for (NodeId n = 0; n < local.num_nodes(); ++n) {
    const Node& node = local.node(n);
    if (ops::collective_of(node) == nullptr) continue;
    auto& line = lines[node.attributes.get_int("order")];
    const auto& group = node.attributes.get_string("group");
    // Of the operand what all ranks share: parts of an uneven split differ from group to group.
    const Type& type = local.type(node.inputs[0]);
    const auto moved = fmt::format("{} {}d", type.dtype, type.shape.ndim());
    line += fmt::format("{} {} {}{};", group, node.op, moved,
                        ir::lane_of(node.attributes) == ir::kAwaitedLane ? " awaited" : "");
  }
  std::string text;
  for (const auto& [order, line] : lines) text += fmt::format("{} {}\n", order, line);
  return text;
}

}  // namespace tessera::compiler
