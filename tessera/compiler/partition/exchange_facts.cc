#include "tessera/compiler/partition/exchange_facts.h"

#include <algorithm>
#include <map>

#include "tessera/compiler/partition/lowering.h"
#include "tessera/mesh/exchange_plan.h"
#include "tessera/ops/rules/exchange.h"

namespace tessera::compiler {
namespace {

using mesh::Layout;
using mesh::MoveKind;

// Every element lies on one rank.
bool is_spread(const Layout& layout) {
  if (layout.sharding.is_partial()) return false;
  for (int axis = 0; axis < layout.mesh.num_axes(); ++axis) {
    if (layout.mesh.axis(axis).size > 1 && !layout.sharding.splits(axis)) return false;
  }
  return true;
}

class Collector {
 public:
  Collector(const Plan& plan, int rank, const mesh::RedistributionOptions& options, const MachineProfile& profile)
      : rank_(rank), options_(options), ranks_(plan.ranks()), profile_(profile), lowering_(scratch_, rank, options) {
    for (const int r : ranks_) on_host_[profile.host_of(r)].push_back(r);
    facts_.by_rank.resize(ranks_.size());
  }

  void add_use(const Type& type, const Layout& from, const Layout& to) {
    if (from == to || !seen_.insert(fmt::format("{} {} {}", type, from.to_string(), to.to_string())).second) return;
    const auto way = mesh::redistribute(type.shape, static_cast<int64_t>(size_bytes(type.dtype)), from, to, options_);
    std::vector<Move> moves;
    Layout at = from;
    for (const auto& step : way.steps) {
      const Layout after{way.meshes[static_cast<size_t>(step.mesh)], step.after};
      if (step.kind == MoveKind::kExchange) moves.push_back({at, after, {}});
      if (step.kind == MoveKind::kAllToAll) moves.push_back({at, after, step.axes});
      at = after;
    }
    if (moves.empty()) return;
    const Type local{type.dtype, mesh::local_shape(type.shape, from.sharding, from.mesh, rank_)};
    const auto value = scratch_.add_input(ir::InputKind::kInput, fmt::format("{}", seen_.size()), local);
    lowering_.redistribute(value, type, from, to);
    for (const Move& move : moves) {
      if (move.axes.empty() && !(is_spread(move.before) && is_spread(move.after))) {
        add_shares(type, move);
      } else {
        add_facts(type, move);
      }
    }
  }

  ExchangeFacts finish() {
    for (ir::NodeId n = 0; n < scratch_.num_nodes(); ++n) {
      const ir::Node& node = scratch_.node(n);
      const auto* collective = ops::collective_of(node);
      if (collective != nullptr && collective->names_boxes) facts_.keys.insert(exchange_key(node.attributes));
    }
    return std::move(facts_);
  }

 private:
  // From one layout to the next, between the ranks that differ along `axes` only; none: between all.
  struct Move {
    Layout before;
    Layout after;
    std::vector<int> axes;
  };

  static bool is_one_group(const Move& move, int a, int b) {
    if (move.axes.empty()) return true;
    const auto left = move.before.mesh.coordinates(a);
    const auto right = move.before.mesh.coordinates(b);
    for (int axis = 0; axis < move.before.mesh.num_axes(); ++axis) {
      const bool may_differ = std::find(move.axes.begin(), move.axes.end(), axis) != move.axes.end();
      if (!may_differ && left[static_cast<size_t>(axis)] != right[static_cast<size_t>(axis)]) return false;
    }
    return true;
  }

  void add_facts(const Type& type, const Move& move) {
    const auto ndim = static_cast<size_t>(type.shape.ndim());
    const auto held = mesh::all_slices(type.shape, move.before.mesh, move.before.sharding);
    const auto wanted = mesh::all_slices(type.shape, move.after.mesh, move.after.sharding);
    const auto box = [&](const std::vector<mesh::Range>& slices, const mesh::Mesh& mesh, int rank) {
      const auto* begin = slices.data() + static_cast<size_t>(mesh.position_of(rank)) * ndim;
      return mesh::Box(begin, begin + ndim);
    };
    const auto element = static_cast<int64_t>(size_bytes(type.dtype));
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const int rank = ranks_[i];
      const auto has = box(held, move.before.mesh, rank);
      const auto needs = box(wanted, move.after.mesh, rank);
      const int64_t kept = mesh::num_elements(mesh::intersection(has, needs));
      int64_t near = 0;
      for (const int peer : on_host_.at(profile_.host_of(rank))) {
        if (peer == rank || !is_one_group(move, peer, rank)) continue;
        near += mesh::num_elements(mesh::intersection(box(held, move.before.mesh, peer), needs));
      }
      auto& facts = facts_.by_rank[i];
      facts.push_back(near * element);
      facts.push_back((mesh::num_elements(needs) - kept - near) * element);
      facts.push_back((mesh::num_elements(has) - kept) * element);
    }
  }

  // Of an exchange in which several ranks hold what others need, and share in sending it.
  void add_shares(const Type& type, const Move& move) {
    const auto element = static_cast<int64_t>(size_bytes(type.dtype));
    struct Bytes {
      int64_t near = 0, far = 0, sent = 0;
    };
    std::map<int, Bytes> by_rank;
    mesh::visit_exchange(type.shape, move.before, move.after, [&](int sender, int receiver, int64_t elements) {
      Bytes& own = by_rank[receiver];
      (profile_.host_of(sender) == profile_.host_of(receiver) ? own.near : own.far) += elements * element;
      by_rank[sender].sent += elements * element;
    });
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const Bytes own = by_rank[ranks_[i]];
      auto& facts = facts_.by_rank[i];
      facts.insert(facts.end(), {own.near, own.far, own.sent});
    }
  }

  int rank_;
  const mesh::RedistributionOptions& options_;
  const std::vector<int>& ranks_;
  const MachineProfile& profile_;
  std::map<int, std::vector<int>> on_host_;
  ir::Graph scratch_;
  RedistributionLowering lowering_;
  std::set<std::string> seen_;
  ExchangeFacts facts_;
};

}  // namespace

ExchangeFacts exchange_facts(const ir::Graph& logical, const Plan& plan, int rank,
                             const mesh::RedistributionOptions& options, const MachineProfile& profile,
                             const Deadline& deadline) {
  Collector collector(plan, rank, options, profile);
  const auto add_use = [&](ir::ValueId v, const Layout& wanted) {
    if (plan.layout(v) == wanted) return;
    const auto source = plan.source_layout(v);
    collector.add_use(logical.type(v), plan.layout(v), source);
    collector.add_use(logical.type(v), source, wanted);
  };
  for (ir::NodeId n = 0; n < logical.num_nodes(); ++n) {
    deadline.throw_if_over();
    const auto& inputs = logical.node(n).inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      add_use(inputs[i], plan.operand_layout(n, i));
    }
  }
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    add_use(logical.outputs()[i].value, plan.output_layout(logical, i));
  }
  return collector.finish();
}

std::string exchange_key(Attributes exchange) {
  exchange.erase("order");
  exchange.erase("bucket");
  exchange.erase("lane");
  return exchange.to_string();
}

}  // namespace tessera::compiler
