#include "tessera/compiler/passes/node_order.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tessera/ops/registry/collective_def.h"

namespace tessera::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

bool ValueUses::is_update(const Node& node) const {
  return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return updates.contains(v); });
}

ValueUses find_uses(const Graph& graph) {
  ValueUses uses;
  uses.users.resize(static_cast<size_t>(graph.num_values()));
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    for (const ValueId v : graph.node(n).inputs) uses.users[static_cast<size_t>(v)].push_back(n);
  }
  uses.is_result.resize(static_cast<size_t>(graph.num_values()));
  for (const auto& output : graph.outputs()) {
    uses.is_result[static_cast<size_t>(output.value)] = true;
    const ir::Input* input = graph.find_input(output.name);
    if (input != nullptr && input->kind != ir::InputKind::kInput) uses.updates[output.value].push_back(input->value);
  }
  return uses;
}

int64_t bucket_of(const Node& node) { return node.attributes.has("bucket") ? node.attributes.get_int("bucket") : -1; }

std::vector<NodeId> nodes_behind(const Graph& graph) {
  std::map<int64_t, NodeId> last;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) last[bucket_of(graph.node(n))] = n;
  std::vector<NodeId> behind;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const int64_t bucket = bucket_of(graph.node(n));
    behind.push_back(bucket < 0 ? n : last.at(bucket));
  }
  return behind;
}

namespace {

// All that read the values which an update replaces.
std::vector<NodeId> readers_of_replaced(const Graph& graph, const ValueUses& uses, NodeId update) {
  std::vector<NodeId> readers;
  for (const ValueId v : graph.node(update).outputs) {
    const auto replaced = uses.updates.find(v);
    if (replaced == uses.updates.end()) continue;
    for (const ValueId old : replaced->second) {
      const auto& users = uses.users[static_cast<size_t>(old)];
      readers.insert(readers.end(), users.begin(), users.end());
    }
  }
  return readers;
}

// The nodes but for late updates, in their order.
class Sequence {
 public:
  Sequence(const Graph& graph, const ValueUses& uses)
      : graph_(graph), uses_(uses), place_(static_cast<size_t>(graph.num_nodes()), -1) {}

  const std::vector<NodeId>& nodes() const { return nodes_; }

  void append(NodeId n) {
    place_[static_cast<size_t>(n)] = static_cast<int>(nodes_.size());
    nodes_.push_back(n);
  }

  void exchange_neighbours() {
    bool moved = true;
    for (int pass = 0; moved && pass < kMaxPasses; ++pass) {
      moved = false;
      for (size_t i = 0; i + 1 < nodes_.size(); ++i) {
        if (!may_exchange(nodes_[i], nodes_[i + 1]) || !is_better_exchanged(nodes_[i], nodes_[i + 1])) continue;
        std::swap(nodes_[i], nodes_[i + 1]);
        place_[static_cast<size_t>(nodes_[i])] = static_cast<int>(i);
        place_[static_cast<size_t>(nodes_[i + 1])] = static_cast<int>(i + 1);
        moved = true;
      }
    }
  }

  // The last node that must be done before this update: of those that make its operands, that read what it replaces,
  // and that make the loss and the guard of updates.
  int may_update_behind(NodeId update) const {
    int last = -1;
    const auto wait_for = [&](NodeId n) {
      if (n != ir::kNone) last = std::max(last, place_[static_cast<size_t>(n)]);
    };
    for (const ValueId v : graph_.node(update).inputs) wait_for(graph_.info(v).node);
    for (const NodeId reader : readers_of_replaced(graph_, uses_, update)) wait_for(reader);
    for (const char* name : {"loss", ir::kUpdateGuard}) {
      if (const ir::Output* output = graph_.find_output(name)) wait_for(graph_.info(output->value).node);
    }
    return last;
  }

 private:
  // Pairs of neighbours come to rest in two or three passes.
  static constexpr int kMaxPasses = 8;

  bool may_exchange(NodeId a, NodeId b) const {
    if (ops::is_collective(graph_.node(a)) || ops::is_collective(graph_.node(b)) || feeds_collective(a)) return false;
    const auto& inputs = graph_.node(b).inputs;
    return std::none_of(inputs.begin(), inputs.end(), [&](ValueId v) { return graph_.info(v).node == a; });
  }

  // Then what it makes is not to leave any later.
  bool feeds_collective(NodeId n) const {
    const auto& outputs = graph_.node(n).outputs;
    return std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) {
      const auto& users = uses_.users[static_cast<size_t>(v)];
      return std::any_of(users.begin(), users.end(),
                         [&](NodeId user) { return ops::is_collective(graph_.node(user)); });
    });
  }

  int64_t result_bytes(NodeId n) const {
    int64_t bytes = 0;
    for (const ValueId v : graph_.node(n).outputs) bytes += graph_.type(v).size_bytes();
    return bytes;
  }

  // Of the operands of `n` that its neighbour does not read: those that nobody reads behind both.
  int64_t freed_bytes(NodeId n, NodeId neighbour) const {
    const int end = std::max(place_[static_cast<size_t>(n)], place_[static_cast<size_t>(neighbour)]);
    const auto& others = graph_.node(neighbour).inputs;
    std::set<ValueId> freed;
    for (const ValueId v : graph_.node(n).inputs) {
      const auto& users = uses_.users[static_cast<size_t>(v)];
      const bool dies = std::all_of(users.begin(), users.end(), [&](NodeId user) {
        const int place = place_[static_cast<size_t>(user)];
        return place >= 0 && place <= end;
      });
      const bool is_kept = graph_.info(v).node == ir::kNone || uses_.is_result[static_cast<size_t>(v)];
      if (dies && !is_kept && std::find(others.begin(), others.end(), v) == others.end()) freed.insert(v);
    }
    int64_t bytes = 0;
    for (const ValueId v : freed) bytes += graph_.type(v).size_bytes();
    return bytes;
  }

  bool is_better_exchanged(NodeId a, NodeId b) const {
    const int64_t a_bytes = result_bytes(a);
    const int64_t b_bytes = result_bytes(b);
    const int64_t now = std::max(a_bytes, a_bytes - freed_bytes(a, b) + b_bytes);
    return std::max(b_bytes, b_bytes - freed_bytes(b, a) + a_bytes) < now;
  }

  const Graph& graph_;
  const ValueUses& uses_;
  std::vector<NodeId> nodes_;
  std::vector<int> place_;  // by node; -1: late updates
};

}  // namespace

NodeOrder order_nodes(const Graph& graph, const ValueUses& uses) {
  Sequence sequence(graph, uses);
  std::vector<NodeId> late;
  bool communicates = false;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.node(n);
    communicates = communicates || ops::is_collective(node);
    const bool read = std::any_of(node.outputs.begin(), node.outputs.end(),
                                  [&](ValueId v) { return !uses.users[static_cast<size_t>(v)].empty(); });
    // A collective is none: its bucket goes where its last member stands, and others read what else is in it.
    if (uses.is_update(node) && !read && !ops::is_collective(node)) {
      late.push_back(n);
    } else {
      sequence.append(n);
    }
  }
  sequence.exchange_neighbours();

  const auto count = static_cast<int>(sequence.nodes().size());
  // By update: behind which of the others it may stand. One whose old value another update reads waits for that.
  std::map<NodeId, int> earliest;
  for (const NodeId n : late) earliest[n] = sequence.may_update_behind(n);
  std::vector<std::pair<int, NodeId>> behind;
  for (const NodeId n : late) {
    int last = earliest.at(n);
    for (const NodeId reader : readers_of_replaced(graph, uses, n)) {
      if (const auto it = earliest.find(reader); it != earliest.end()) last = std::max(last, it->second);
    }
    behind.emplace_back(last, n);
  }
  std::stable_sort(behind.begin(), behind.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  NodeOrder order{.reads_at = std::vector<int>(static_cast<size_t>(graph.num_nodes())),
                  .is_late_update = std::vector<bool>(static_cast<size_t>(graph.num_nodes()))};
  for (const NodeId n : late) order.is_late_update[static_cast<size_t>(n)] = true;
  const auto place = [&](NodeId n) {
    order.reads_at[static_cast<size_t>(n)] = static_cast<int>(order.nodes.size());
    order.nodes.push_back(n);
  };
  auto next = behind.begin();
  for (int i = 0; i < count; ++i) {
    place(sequence.nodes()[static_cast<size_t>(i)]);
    for (; !communicates && next != behind.end() && next->first <= i; ++next) place(next->second);
  }
  for (; next != behind.end(); ++next) place(next->second);

  std::map<int64_t, int> last_member;
  for (const bool reads : {false, true}) {
    for (NodeId n = 0; n < graph.num_nodes(); ++n) {
      const int64_t bucket = bucket_of(graph.node(n));
      if (bucket < 0) continue;
      int& last = last_member[bucket];
      int& own = order.reads_at[static_cast<size_t>(n)];
      if (reads) own = last;
      last = std::max(last, own);
    }
  }
  return order;
}

}  // namespace tessera::compiler
