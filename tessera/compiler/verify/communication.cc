#include "tessera/compiler/verify/communication.h"

#include <algorithm>
#include <optional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/compiler/passes/node_order.h"
#include "tessera/ir/schedule.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/ops/rules/exchange.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using Members = ops::CollectiveDef::Members;

std::string group_text(const std::vector<int>& ranks) { return fmt::format("[{}]", fmt::join(ranks, ",")); }

// Equal on all members; what a member brings may differ along one dim.
std::string text_of(const Graph& local, NodeId n) {
  const Node& node = local.node(n);
  const Attributes& attributes = node.attributes;
  const int64_t order = attributes.get_int("order");
  const auto& collective = *ops::collective_of(node);
  const auto agreement = collective.agreement(ops::call_of(local, node));
  if (collective.is_transfer()) return fmt::format("#{} {}", order, agreement);
  auto text = fmt::format("#{} {}", order, local.node_name(n));
  if (bucket_of(node) >= 0) text += fmt::format(" in bucket {}", bucket_of(node));
  if (ir::lane_of(attributes) == ir::kAwaitedLane) text += " in the awaited lane";
  return text + ": " + agreement;
}

std::vector<int> group_of(const Node& node) {
  const Ints& ranks = node.attributes.get_ints("ranks");
  const auto members = ops::collective_of(node)->members;
  if (members == Members::kAll) return {ranks.begin(), ranks.end()};
  const auto at = [&](const char* name) {
    return static_cast<int>(ranks.at(static_cast<size_t>(node.attributes.get_int(name))));
  };
  const int own = at("rank_in_group");
  const int peer = at("peer");
  return members == Members::kSender ? std::vector<int>{own, peer} : std::vector<int>{peer, own};
}

// Of one rank alone -------------------------------------------------------------------------------------------------

class RankVerifier {
 public:
  RankVerifier(const Graph& local, int rank) : local_(local), rank_(rank) {}

  std::vector<std::string> run() {
    awaited_.assign(static_cast<size_t>(local_.num_values()), -1);
    for (NodeId n = 0; n < local_.num_nodes(); ++n) {
      const Node& node = local_.node(n);
      int64_t awaited = -1;
      for (const ValueId v : node.inputs) awaited = std::max(awaited, awaited_[static_cast<size_t>(v)]);
      if (const auto* collective = ops::collective_of(node); collective != nullptr) {
        check_group(n);
        check_order(n, awaited);
        if (collective->names_boxes) check_boxes(n);
        awaited = std::max(awaited, node.attributes.get_int("order"));
      }
      for (const ValueId v : node.outputs) awaited_[static_cast<size_t>(v)] = awaited;
    }
    return std::move(faults_);
  }

 private:
  void fault(NodeId n, const std::string& what) {
    faults_.push_back(fmt::format("rank {}: {} = {}: {}", rank_, local_.value_name(local_.node(n).outputs[0]),
                                  local_.node_name(n), what));
  }

  void check_group(NodeId n) {
    const Attributes& attributes = local_.node(n).attributes;
    const Ints& ranks = attributes.get_ints("ranks");
    const auto own = static_cast<size_t>(attributes.get_int("rank_in_group"));
    Ints sorted = ranks;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
      fault(n, fmt::format("the group [{}] names a rank twice", fmt::join(ranks, ",")));
    }
    if (own >= ranks.size() || ranks[own] != rank_) {
      fault(n, fmt::format("the rank is not number {} of the group [{}]", own, fmt::join(ranks, ",")));
    }
  }

  // Each has a number of its own, but for the members of a bucket, which go together and wait for none of each other.
  void check_order(NodeId n, int64_t awaited) {
    const Node& node = local_.node(n);
    const int64_t order = node.attributes.get_int("order");
    if (awaited >= order) {
      fault(n, fmt::format("is sent as #{} and waits for what is sent as #{}", order, awaited));
    }
    const auto [it, is_first] = first_of_order_.emplace(order, n);
    const int64_t bucket = bucket_of(node);
    if (!is_first) {
      const Node& first = local_.node(it->second);
      const auto same = [&](const char* name) {
        return first.attributes.has(name) == node.attributes.has(name) &&
               (!node.attributes.has(name) || *first.attributes.find(name) == *node.attributes.find(name));
      };
      const bool joined = bucket >= 0 && first.op == node.op && bucket_of(first) == bucket && same("ranks") &&
                          same("reduction") && same("lane") &&
                          local_.type(first.inputs[0]).dtype == local_.type(node.inputs[0]).dtype;
      if (!joined) {
        fault(n, fmt::format("is sent as #{}, as {} is, and is not in one bucket with it", order,
                             local_.node_name(it->second)));
      }
    } else if (bucket >= 0 && !buckets_.insert(bucket).second) {
      fault(n, fmt::format("is in bucket {}, whose other members are not sent as #{}", bucket, order));
    }
  }

  void check_boxes(NodeId n) {
    const Node& node = local_.node(n);
    const auto boxes = ops::exchange_boxes(node.attributes, local_.type(node.inputs[0]).shape.ndim()).receive;
    const Ints& ranks = node.attributes.get_ints("ranks");
    // Of a thousand ranks most send nothing.
    std::vector<size_t> senders;
    for (size_t a = 0; a < boxes.size(); ++a) {
      if (!boxes[a].empty() && mesh::num_elements(boxes[a]) > 0) senders.push_back(a);
    }
    for (size_t i = 0; i < senders.size(); ++i) {
      for (size_t j = i + 1; j < senders.size(); ++j) {
        const size_t a = senders[i];
        const size_t b = senders[j];
        if (!mesh::meet(boxes[a], boxes[b])) continue;
        fault(n, fmt::format("the pieces of ranks {} and {} overlap where they arrive", ranks[a], ranks[b]));
      }
    }
  }

  const Graph& local_;
  int rank_;
  std::vector<int64_t> awaited_;  // by value: the last number that must have been sent before it is there
  std::map<int64_t, NodeId> first_of_order_;
  std::set<int64_t> buckets_;
  std::vector<std::string> faults_;
};

// Between ranks -----------------------------------------------------------------------------------------------------

class JobVerifier {
 public:
  explicit JobVerifier(std::span<const RankGraph> ranks) : ranks_(ranks) {
    for (size_t i = 0; i < ranks.size(); ++i) {
      place_[ranks[i].rank] = i;
      traffic_.push_back(group_traffic(ranks[i].graph));
      for (const auto& [group, list] : traffic_.back()) groups_.insert(group);
    }
  }

  std::vector<std::string> run() {
    for (const auto& each : ranks_) {
      for (auto& fault : verify_collectives(each.graph, each.rank)) faults_.push_back(std::move(fault));
    }
    for (const auto& group : groups_) compare_members(group);
    // Only of lists that agree can it be said which boxes belong together.
    if (!faults_.empty()) return std::move(faults_);
    for (const auto& group : groups_) pair_boxes(group);
    return std::move(faults_);
  }

 private:
  const std::vector<Collective>* list_of(int rank, const std::vector<int>& group) const {
    const auto place = place_.find(rank);
    if (place == place_.end()) return nullptr;
    const auto& traffic = traffic_[place->second];
    const auto it = traffic.find(group);
    return it == traffic.end() ? nullptr : &it->second;
  }

  // The first difference to the first rank that has the group.
  void compare_members(const std::vector<int>& group) {
    const std::vector<Collective> none;
    int reference = -1;
    const std::vector<Collective>* expected = nullptr;
    for (const int rank : group) {
      expected = list_of(rank, group);
      reference = rank;
      if (expected != nullptr) break;
    }
    if (expected == nullptr) return;  // ranks that are no members have it, which verify_collectives says
    for (const int rank : group) {
      const auto* list = list_of(rank, group);
      if (list == nullptr) list = &none;
      const size_t longer = std::max(list->size(), expected->size());
      for (size_t i = 0; i < longer; ++i) {
        const auto line = [&](const std::vector<Collective>& of) { return i < of.size() ? of[i].text : "nothing"; };
        if (line(*list) == line(*expected)) continue;
        faults_.push_back(fmt::format("group {}: rank {} does {}, where rank {} does {}", group_text(group), rank,
                                      line(*list), reference, line(*expected)));
        break;
      }
    }
  }

  void pair_boxes(const std::vector<int>& group) {
    const size_t count = list_of(group[0], group)->size();
    for (size_t i = 0; i < count; ++i) {
      std::vector<ops::ExchangeBoxes> boxes;  // none of other collectives
      for (const int rank : group) {
        const Graph& local = ranks_[place_.at(rank)].graph;
        const Node& node = local.node((*list_of(rank, group))[i].node);
        if (!ops::collective_of(node)->names_boxes) break;
        boxes.push_back(ops::exchange_boxes(node.attributes, local.type(node.inputs[0]).shape.ndim()));
      }
      for (size_t from = 0; from < boxes.size(); ++from) {
        for (size_t to = 0; to < boxes.size(); ++to) {
          const auto& sent = boxes[from].send[to];
          const auto& expected = boxes[to].receive[from];
          if (mesh::num_elements(sent) == 0 && mesh::num_elements(expected) == 0) continue;
          if (mesh::shape_of(sent) == mesh::shape_of(expected)) continue;
          faults_.push_back(fmt::format("group {}: in {} rank {} sends {} to rank {}, which expects {}",
                                        group_text(group), (*list_of(group[0], group))[i].text, group[from],
                                        mesh::shape_of(sent), group[to], mesh::shape_of(expected)));
        }
      }
    }
  }

  std::span<const RankGraph> ranks_;
  std::map<int, size_t> place_;
  std::vector<GroupTraffic> traffic_;
  std::set<std::vector<int>> groups_;
  std::vector<std::string> faults_;
};

}  // namespace

GroupTraffic group_traffic(const Graph& local) {
  GroupTraffic traffic;
  for (NodeId n = 0; n < local.num_nodes(); ++n) {
    const Node& node = local.node(n);
    if (ops::collective_of(node) == nullptr) continue;
    traffic[group_of(node)].push_back({n, node.attributes.get_int("order"), text_of(local, n)});
  }
  for (auto& [group, list] : traffic) {
    std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.order < b.order; });
  }
  return traffic;
}

std::vector<std::string> verify_collectives(const Graph& local, int rank) { return RankVerifier(local, rank).run(); }

std::vector<std::string> verify_communication(std::span<const RankGraph> ranks) { return JobVerifier(ranks).run(); }

}  // namespace tessera::compiler
