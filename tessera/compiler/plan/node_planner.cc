#include "tessera/compiler/plan/node_planner.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/integers.h"
#include "tessera/mesh/layout.h"
#include "tessera/ops/rules/moved_slices.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using mesh::Partial;
using mesh::Reduction;
using mesh::Sharding;

Reduction reduction_of(ops::Completion completion) {
  switch (completion) {
    case ops::Completion::kSum:
    case ops::Completion::kWhole:
    case ops::Completion::kMean: return Reduction::kSum;  // localize has scaled each part's sum
    case ops::Completion::kMax: return Reduction::kMax;
    case ops::Completion::kMin: return Reduction::kMin;
    case ops::Completion::kProd: return Reduction::kProd;
  }
  return Reduction::kSum;
}

bool has_partial_sum(const Sharding& sharding, int axis) {
  return std::any_of(sharding.partial.begin(), sharding.partial.end(),
                     [&](const Partial& p) { return p.axis == axis && p.reduction == Reduction::kSum; });
}

Sharding split_of(const ops::IndexRule::Dims& dims, const FactorAxes& factors) {
  Sharding sharding = Sharding::replicated(static_cast<int>(dims.size()));
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    if (const auto it = factors.find(dims[dim]); it != factors.end()) sharding.dims[dim] = it->second;
  }
  return sharding;
}

class NodePlanner {
 public:
  NodePlanner(PlanState& state, NodeId id)
      : state_(state),
        plan_(state.plan),
        graph_(state.graph),
        id_(id),
        node_(graph_.node(id)),
        def_(ops::OpRegistry::instance().get(node_.op)),
        rule_(ops::rule_of(graph_, id)) {}

  void run() {
    if (const auto it = state_.options.fixed.find(id_); it != state_.options.fixed.end()) {
      factors_ = it->second.factors;
      through_ = it->second.through;
      blocks_ = it->second.blocks;
    } else if (state_.options.strategies && !node_.strategy.empty()) {
      auto [mesh, factors] = factors_of_strategy(graph_, id_, state_.mesh_choice);
      mesh_ = mesh;
      factors_ = std::move(factors);
    } else if (const auto taken = state_.propagated.find(id_); taken != state_.propagated.end()) {
      mesh_ = taken->second.mesh;
      factors_ = taken->second.factors;
    } else if (const auto batch = batch_factor(); !batch.empty()) {
      auto& axes = factors_[batch];
      for (int axis = 0; axis < num_axes(); ++axis) axes.push_back(axis);
    } else if (const ir::Input* made = made_of_nothing(); made != nullptr) {
      follow_new_value(*made);
    } else {
      follow_operands();
    }
    if (!state_.options.fixed.contains(id_)) follow_blocks();
    write();
  }

 private:
  const mesh::Mesh& mesh() const { return state_.mesh_choice.mesh(mesh_); }
  int num_axes() const { return mesh().num_axes(); }

  Placed placed(ValueId v) const {
    const auto index = static_cast<size_t>(v);
    return {plan_.value_mesh[index], plan_.values[index]};
  }
  // As the operand lies, in axes of this node's mesh; nothing where these cannot say it.
  std::optional<Sharding> produced(size_t input) const {
    return state_.mesh_choice.restate(placed(node_.inputs[input]), mesh_);
  }
  bool is_partial_sum(size_t input, int axis) const {
    const auto& sharding = produced_[input];
    return sharding && has_partial_sum(*sharding, axis);
  }

  // The mesh of the forward node, else the one that most bytes of the operands are spread over.
  int choose_mesh() const {
    if (plan_.meshes.size() == 1) return 0;
    if (node_.forward != ir::kNone) return plan_.node_mesh[static_cast<size_t>(node_.forward)];
    std::vector<int64_t> bytes(plan_.meshes.size());
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      const auto [mesh, sharding] = placed(node_.inputs[i]);
      if (!sharding.is_replicated()) bytes[static_cast<size_t>(mesh)] += bytes_of(i);
    }
    return static_cast<int>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
  }

  // The sharding that this operand would best be taken in, as far as others have decided. What a gradient reads of its
  // forward node, it reads as that node did; a cotangent is split as its primal is.
  std::optional<Sharding> wish_for(size_t input) const {
    const ValueId v = node_.inputs[input];
    if (state_.unset[static_cast<size_t>(v)]) return std::nullopt;
    if (const auto it = state_.read_as.find(v); it != state_.read_as.end() && !is_update()) {
      return state_.mesh_choice.restate(it->second, mesh_);
    }
    if (node_.forward == ir::kNone) return produced(input);
    const Node& forward = graph_.node(node_.forward);
    for (size_t i = 0; i < forward.inputs.size(); ++i) {
      if (forward.inputs[i] == v) return plan_.operands[static_cast<size_t>(node_.forward)][i];
    }
    const NodeId producer = graph_.info(v).node;
    if (producer == ir::kNone || producer == node_.forward || graph_.node(producer).forward == node_.forward)
      return produced(input);
    for (const ValueId primal : forward.outputs) {
      if (!(graph_.type(primal) == graph_.type(v))) continue;
      const Sharding& whole = plan_.values[static_cast<size_t>(primal)];
      return Sharding{whole.dims, {}, whole.blocks};
    }
    return produced(input);
  }

  bool is_new_value(ValueId v) const {
    const auto& outputs = graph_.outputs();
    return std::any_of(outputs.begin(), outputs.end(), [&](const ir::Output& output) {
      return output.value == v && graph_.find_input(output.name) != nullptr;
    });
  }
  // What this operator makes a new value of where it reads nothing that could be split; nullptr for any other operator.
  const ir::Input* made_of_nothing() const {
    if (!state_.options.makes_in_pieces || node_.outputs.size() != 1) return nullptr;
    const bool reads_nothing = std::all_of(rule_.inputs.begin(), rule_.inputs.end(),
                                           [](const ops::IndexRule::Dims& dims) { return dims.empty(); });
    if (!reads_nothing) return nullptr;
    // Equal first values of several states are made once: for the first of them, the others get a copy.
    for (const ir::Output& output : graph_.outputs()) {
      if (output.value == node_.outputs[0]) return graph_.find_input(output.name);
    }
    return nullptr;
  }
  void follow_new_value(const ir::Input& made) {
    const auto [mesh, sharding] = placed(made.value);
    mesh_ = mesh;
    const auto& dims = rule_.outputs[0];
    for (size_t dim = 0; dim < dims.size(); ++dim) {
      if (!dims[dim].empty() && !sharding.dims[dim].empty()) factors_[dims[dim]] = sharding.dims[dim];
    }
  }

  // A new value where the graph's guard holds.
  bool is_guarded_value(ValueId v) const {
    const auto at = static_cast<size_t>(v);
    const ir::Output* guard = graph_.find_output(ir::kUpdateGuard);
    if (guard == nullptr || state_.num_uses[at] != 1 || state_.user[at] == ir::kNone) return false;
    const Node& user = graph_.node(state_.user[at]);
    return user.op == "select" && user.inputs[0] == guard->value && is_new_value(user.outputs[0]);
  }
  // Makes new values of parameters and states, which others may read as well, as moving averages do; or asks whether
  // gradients are finite. It works on shards.
  bool is_update() const {
    return node_.op == "all_finite" || std::all_of(node_.outputs.begin(), node_.outputs.end(),
                                                   [&](ValueId v) { return is_new_value(v) || is_guarded_value(v); });
  }

  // Forward operators that the user said nothing of split the batch, their data's first dim, over all ranks.
  std::string batch_factor() const {
    if (!state_.options.batch_by_default || node_.forward != ir::kNone) return "";
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      if (!state_.derived[static_cast<size_t>(node_.inputs[i])] || rule_.inputs[i].empty()) continue;
      if (!rule_.inputs[i][0].empty()) return rule_.inputs[i][0];
    }
    return "";
  }

  // Each mesh axis goes to the factor that most bytes of the operands already have it on.
  void follow_operands() {
    mesh_ = choose_mesh();
    look_at_operands();
    for (int axis = 0; axis < num_axes(); ++axis) {
      if (passes_partial(axis)) {
        through_[axis] = partial_operands(axis);
      } else if (const auto factor = choose_factor(axis); !factor.empty()) {
        factors_[factor].push_back(axis);
      }
    }
    for (auto& [factor, axes] : factors_) {
      if (axes.size() > 1) order_axes(factor, axes);
    }
  }

  void look_at_operands() {
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      produced_.push_back(produced(i));
      wishes_.push_back(wish_for(i));
    }
  }

  // Whoever chose the factors' axes, the elements that lie together on a rank stay together.
  void follow_blocks() {
    if (factors_.empty()) return;
    if (wishes_.empty()) look_at_operands();
    for (const auto& [factor, axes] : factors_) {
      if (const int64_t block = follow_block(factor, axes); block > 1) blocks_[factor] = block;
    }
  }

  // The block in which the largest operand that is split so deals its elements.
  int64_t follow_block(const std::string& factor, const std::vector<int>& axes) const {
    int64_t block = 1;
    int64_t most = 0;
    for (size_t i = 0; i < wishes_.size(); ++i) {
      if (!wishes_[i]) continue;
      for (size_t dim = 0; dim < rule_.inputs[i].size(); ++dim) {
        if (rule_.inputs[i][dim] != factor || wishes_[i]->dims[dim] != axes || bytes_of(i) <= most) continue;
        most = bytes_of(i);
        block = wishes_[i]->block(static_cast<int>(dim));
      }
    }
    return block;
  }

  // The operands that hold partial sums over `axis`, or may.
  std::vector<int> partial_operands(int axis) const {
    std::vector<int> holders;
    bool any = false;
    for (size_t i = 0; i < wishes_.size(); ++i) {
      const bool holds = may_stay_partial(i) && is_partial_sum(i, axis);
      any = any || holds;
      if (holds || takes_partial(i)) holders.push_back(static_cast<int>(i));
    }
    if (!any) holders.clear();
    return holders;
  }

  // The operands that hold partial sums over `axis` are exactly one set that the operator is jointly linear in, and no
  // other operand is split along it. A product takes them only where it makes less of them and no one else needs them.
  bool passes_partial(int axis) const {
    const auto holders = partial_operands(axis);
    if (holders.empty()) return false;
    int64_t held_bytes = 0;
    bool shared = false;
    for (size_t i = 0; i < wishes_.size(); ++i) {
      const ValueId v = node_.inputs[i];
      if (std::find(holders.begin(), holders.end(), static_cast<int>(i)) != holders.end()) {
        held_bytes += graph_.type(v).size_bytes();
        shared = shared || state_.num_uses[static_cast<size_t>(v)] > 1;
      } else if (wishes_[i] && wishes_[i]->splits(axis)) {
        return false;
      }
    }
    if (std::find(def_.linear_in.begin(), def_.linear_in.end(), holders) == def_.linear_in.end()) return false;
    int64_t result_bytes = 0;
    for (const ValueId v : node_.outputs) result_bytes += graph_.type(v).size_bytes();
    return def_.elementwise || (!shared && result_bytes <= held_bytes);
  }

  // A state of sums that nobody has read yet.
  bool takes_partial(size_t input) const {
    const auto v = static_cast<size_t>(node_.inputs[input]);
    return state_.unset[v] && state_.may_hold_partial[v];
  }

  // What the forward node has read whole is there: its gradient reads the same.
  bool may_stay_partial(size_t input) const {
    if (state_.unset[static_cast<size_t>(node_.inputs[input])]) return false;
    if (state_.options.whole_sums.contains(node_.inputs[input])) return false;
    if (node_.forward == ir::kNone) return true;
    const auto& read = graph_.node(node_.forward).inputs;
    return std::find(read.begin(), read.end(), node_.inputs[input]) == read.end();
  }

  std::string choose_factor(int axis) const {
    std::map<std::string, int64_t> bytes;
    for (size_t i = 0; i < wishes_.size(); ++i) {
      if (!wishes_[i]) continue;
      for (size_t dim = 0; dim < rule_.inputs[i].size(); ++dim) {
        const auto& factor = rule_.inputs[i][dim];
        if (!factor.empty() && contains(wishes_[i]->dims[dim], axis)) bytes[factor] += bytes_of(i);
      }
    }
    std::string best;
    for (const auto& [factor, weight] : bytes) {
      if (best.empty() || weight > bytes[best]) best = factor;
    }
    return best;
  }

  int64_t bytes_of(size_t input) const { return std::max<int64_t>(graph_.type(node_.inputs[input]).size_bytes(), 1); }

  // The order in which the largest operand that has these axes nests them.
  void order_axes(const std::string& factor, std::vector<int>& axes) const {
    const std::vector<int>* order = nullptr;
    int64_t most = 0;
    for (size_t i = 0; i < wishes_.size(); ++i) {
      if (!wishes_[i]) continue;
      for (size_t dim = 0; dim < rule_.inputs[i].size(); ++dim) {
        const auto& have = wishes_[i]->dims[dim];
        if (rule_.inputs[i][dim] != factor || have.size() < 2 || bytes_of(i) <= most) continue;
        most = bytes_of(i);
        order = &have;
      }
    }
    if (order == nullptr) return;
    const auto place = [&](int axis) { return std::find(order->begin(), order->end(), axis) - order->begin(); };
    std::stable_sort(axes.begin(), axes.end(), [&](int a, int b) { return place(a) < place(b); });
  }

  void write() {
    auto operands = operand_shardings(rule_, factors_);
    auto results = result_shardings(rule_, factors_);
    add_blocks(graph_, id_, mesh(), factors_, blocks_, operands, results);
    add_partial_sums(through_, operands, results);
    bool derived = false;
    for (size_t i = 0; i < operands.size(); ++i) {
      const auto v = static_cast<size_t>(node_.inputs[i]);
      derived = derived || state_.derived[v];
      if (!state_.unset[v]) continue;
      plan_.values[v] = operands[i];
      plan_.values[v].blocks.clear();  // parameters and states lie in balanced parts
      plan_.value_mesh[v] = mesh_;
      state_.unset[v] = false;
    }
    for (size_t o = 0; o < results.size(); ++o) {
      const auto v = static_cast<size_t>(node_.outputs[o]);
      plan_.values[v] = std::move(results[o]);
      plan_.value_mesh[v] = mesh_;
      state_.derived[v] = derived && node_.forward == ir::kNone;
    }
    plan_.node_mesh[static_cast<size_t>(id_)] = mesh_;
    plan_.operands[static_cast<size_t>(id_)] = std::move(operands);
    plan_.factors[static_cast<size_t>(id_)] = std::move(factors_);
  }

  PlanState& state_;
  Plan& plan_;
  const Graph& graph_;
  NodeId id_;
  const Node& node_;
  const ops::OpDef& def_;
  ops::IndexRule rule_;
  int mesh_ = 0;
  // By operand, on this node's mesh: how it lies, and how it is best taken; none for one that has no sharding yet.
  std::vector<std::optional<Sharding>> produced_;
  std::vector<std::optional<Sharding>> wishes_;
  FactorAxes factors_;
  FactorBlocks blocks_;
  std::map<int, std::vector<int>> through_;
};

}  // namespace

std::vector<Sharding> operand_shardings(const ops::IndexRule& rule, const FactorAxes& factors) {
  std::vector<Sharding> result;
  for (const auto& dims : rule.inputs) result.push_back(split_of(dims, factors));
  return result;
}

std::vector<Sharding> result_shardings(const ops::IndexRule& rule, const FactorAxes& factors) {
  std::vector<Sharding> result;
  for (const auto& dims : rule.outputs) {
    Sharding& sharding = result.emplace_back(split_of(dims, factors));
    for (const auto& [factor, axes] : factors) {
      if (std::find(dims.begin(), dims.end(), factor) != dims.end()) continue;
      if (rule.completion(factor) == ops::Completion::kWhole) continue;
      for (const int axis : axes) sharding.partial.push_back({axis, reduction_of(rule.completion(factor))});
    }
  }
  return result;
}

void add_blocks(const Graph& graph, NodeId id, const mesh::Mesh& mesh, const FactorAxes& factors,
                const FactorBlocks& blocks, std::vector<Sharding>& operands, std::vector<Sharding>& results) {
  const Node& node = graph.node(id);
  const bool reshapes = node.op == "reshape";
  if (factors.empty() || (blocks.empty() && !reshapes)) return;
  const auto rule = ops::rule_of(graph, id);
  const auto block_of = [&](const std::string& factor) {
    const auto it = blocks.find(factor);
    return it == blocks.end() ? int64_t{1} : it->second;
  };
  // How many elements the dims of a factor have, by the first operand that names it; another size is dealt singly.
  std::map<std::string, int64_t> sizes;
  const auto deal = [&](const ops::IndexRule::Dims& dims, ValueId v, Sharding& sharding) {
    const Shape& shape = graph.type(v).shape;
    std::vector<int64_t> wanted(dims.size(), 1);
    for (size_t dim = 0; dim < dims.size(); ++dim) {
      if (dims[dim].empty()) continue;
      const int64_t size = shape[static_cast<int>(dim)];
      if (sizes.try_emplace(dims[dim], size).first->second == size) wanted[dim] = block_of(dims[dim]);
    }
    sharding = with_blocks(shape, mesh, std::move(sharding), wanted);
  };
  for (size_t i = 0; i < operands.size(); ++i) deal(rule.inputs[i], node.inputs[i], operands[i]);
  if (!reshapes) {
    for (size_t o = 0; o < results.size(); ++o) deal(rule.outputs[o], node.outputs[o], results[o]);
    return;
  }
  const Shape& in = graph.type(node.inputs[0]).shape;
  const Shape& out = graph.type(node.outputs[0]).shape;
  std::vector<int64_t> wanted(static_cast<size_t>(out.ndim()), 1);
  for (const auto& group : ops::reshape_groups(in, out)) {
    if (group.in_dim < 0 || group.out_dim < 0) continue;
    const auto& factor = rule.inputs[0][static_cast<size_t>(group.in_dim)];
    wanted[static_cast<size_t>(group.out_dim)] = ops::reshaped_block(in, out, group, block_of(factor));
  }
  results[0] = with_blocks(out, mesh, std::move(results[0]), wanted);
}

FactorBlocks blocks_of(const Graph& graph, NodeId id, const FactorAxes& factors,
                       const std::vector<Sharding>& operands) {
  FactorBlocks blocks;
  const bool has_any = std::any_of(operands.begin(), operands.end(), [](const auto& s) { return !s.blocks.empty(); });
  if (factors.empty() || !has_any) return blocks;
  const auto rule = ops::rule_of(graph, id);
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t dim = 0; dim < rule.inputs[i].size(); ++dim) {
      const auto& factor = rule.inputs[i][dim];
      const int64_t block = operands[i].block(static_cast<int>(dim));
      if (block > 1 && factors.contains(factor)) blocks.try_emplace(factor, block);
    }
  }
  return blocks;
}

void add_partial_sums(const std::map<int, std::vector<int>>& through, std::vector<Sharding>& operands,
                      std::vector<Sharding>& results) {
  for (const auto& [axis, holders] : through) {
    for (const int i : holders) operands[static_cast<size_t>(i)].partial.push_back({axis, Reduction::kSum});
    for (auto& result : results) result.partial.push_back({axis, Reduction::kSum});
  }
  for (auto& result : results) {
    std::sort(result.partial.begin(), result.partial.end(),
              [](const Partial& a, const Partial& b) { return a.axis < b.axis; });
  }
}

StrategyFactors factors_of_strategy(const Graph& graph, NodeId id, const MeshChoice& mesh_choice) {
  const auto placement = strategy_placement(graph, id, mesh_choice.mesh(0).size());
  StrategyFactors result{mesh_choice.mesh_for(placement.matrix), {}};
  for (const auto& [factor, entries] : placement.factors) {
    auto& axes = result.factors[factor];
    for (const size_t entry : entries) {
      const auto own = mesh_choice.axes_of(result.mesh, placement.matrix, entry);
      axes.insert(axes.end(), own.begin(), own.end());
    }
  }
  return result;
}

void plan_node(PlanState& state, NodeId node) { NodePlanner(state, node).run(); }

}  // namespace tessera::compiler
