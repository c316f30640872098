#include "tessera/compiler/verify/verify_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/integers.h"
#include "tessera/compiler/verify/sharding_difference.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using mesh::Mesh;
using mesh::Partial;
using mesh::Reduction;
using mesh::Sharding;

// Most often the plan's only one.
bool same_mesh(const Mesh& a, const Mesh& b) { return &a == &b || a == b; }

// An axis of one rank splits nothing and leaves nothing partial.
Sharding without_unit_axes(Sharding sharding, const Mesh& mesh) {
  for (auto& axes : sharding.dims) std::erase_if(axes, [&](int axis) { return mesh.axis(axis).size == 1; });
  std::erase_if(sharding.partial, [&](const Partial& p) { return mesh.axis(p.axis).size == 1; });
  return sharding;
}

// This and the following stand in the planner, too (node_planner.cc): they are written apart on purpose, so that a
// fault of the planner is not the verifier's as well.
//
// What a rule says of a contracted factor, as the reduction that completes it: localize has scaled the parts of a mean.
Reduction completing(ops::Completion completion) {
  switch (completion) {
    case ops::Completion::kMax: return Reduction::kMax;
    case ops::Completion::kMin: return Reduction::kMin;
    case ops::Completion::kProd: return Reduction::kProd;
    case ops::Completion::kSum:
    case ops::Completion::kMean:
    case ops::Completion::kWhole: break;  // the last leaves nothing to complete
  }
  return Reduction::kSum;
}

Sharding split_by(const ops::IndexRule::Dims& dims, const FactorAxes& factors) {
  Sharding sharding = Sharding::replicated(static_cast<int>(dims.size()));
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    if (const auto it = factors.find(dims[dim]); it != factors.end()) sharding.dims[dim] = it->second;
  }
  return sharding;
}

bool is_split_by(const Sharding& sharding, const ops::IndexRule::Dims& dims, const FactorAxes& factors) {
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    const auto it = factors.find(dims[dim]);
    if (it == factors.end() ? !sharding.dims[dim].empty() : it->second != sharding.dims[dim]) return false;
  }
  return true;
}

bool has_factor(const ops::IndexRule::Dims& dims, const std::string& factor) {
  return std::find(dims.begin(), dims.end(), factor) != dims.end();
}

class PlanVerifier {
 public:
  PlanVerifier(const Graph& graph, const Plan& plan) : graph_(graph), plan_(plan) {
    for (const auto& output : graph.outputs()) {
      if (graph.find_input(output.name) != nullptr) new_values_.insert(output.value);
    }
  }

  std::vector<std::string> run() {
    if (!has_an_entry_for_each()) return std::move(faults_);
    // On one rank every piece is the whole.
    if (plan_.ranks().size() == 1) return {};
    for (const auto& input : graph_.inputs()) {
      const auto why = misfit(graph_.type(input.value), plan_.mesh_of(input.value), value(input.value));
      if (!why.empty()) fault(fmt::format("{} {}: {}", ir::to_string(input.kind), input.name, why));
    }
    for (const auto& [v, copy] : plan_.copies) check_copy(v, copy);
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) check_node(n);
    for (size_t i = 0; i < graph_.outputs().size(); ++i) check_output(i);
    return std::move(faults_);
  }

 private:
  const Sharding& value(ValueId v) const { return plan_.values[static_cast<size_t>(v)]; }
  const Sharding& operand(NodeId n, size_t i) const { return plan_.operands[static_cast<size_t>(n)][i]; }
  const FactorAxes& factors(NodeId n) const { return plan_.factors[static_cast<size_t>(n)]; }

  void fault(std::string text) { faults_.push_back(std::move(text)); }
  void node_fault(NodeId n, const std::string& text) {
    const auto& outputs = graph_.node(n).outputs;
    const auto name = outputs.empty() ? "?" : graph_.value_name(outputs[0]);
    fault(fmt::format("{} = {}: {}", name, graph_.node_name(n), text));
  }
  std::string operand_name(NodeId n, size_t i) const {
    return fmt::format("operand {} ({})", i, graph_.value_name(graph_.node(n).inputs[i]));
  }

  bool has_an_entry_for_each() {
    const auto count = [&](size_t has, size_t needs, const char* what) {
      if (has != needs) fault(fmt::format("the plan has shardings for {} {}, the graph has {}", has, what, needs));
      return has == needs;
    };
    const auto num_nodes = static_cast<size_t>(graph_.num_nodes());
    const auto num_values = static_cast<size_t>(graph_.num_values());
    bool complete = count(plan_.values.size(), num_values, "values");
    complete = count(plan_.value_mesh.size(), num_values, "values' meshes") && complete;
    complete = count(plan_.node_mesh.size(), num_nodes, "nodes' meshes") && complete;
    complete = count(plan_.operands.size(), num_nodes, "nodes' operands") && complete;
    complete = count(plan_.factors.size(), num_nodes, "nodes' factors") && complete;
    complete = count(plan_.outputs.size(), graph_.outputs().size(), "results") && complete;
    for (size_t n = 0; complete && n < num_nodes; ++n) {
      const auto id = static_cast<NodeId>(n);
      if (plan_.operands[n].size() == graph_.node(id).inputs.size()) continue;
      complete = count(plan_.operands[n].size(), graph_.node(id).inputs.size(), graph_.node_name(id).c_str());
    }
    const auto is_mesh = [&](int index) { return index >= 0 && index < static_cast<int>(plan_.meshes.size()); };
    if (plan_.meshes.empty() || !std::all_of(plan_.value_mesh.begin(), plan_.value_mesh.end(), is_mesh) ||
        !std::all_of(plan_.node_mesh.begin(), plan_.node_mesh.end(), is_mesh)) {
      fault(fmt::format("the plan names a mesh that is none of its {}", plan_.meshes.size()));
      complete = false;
    }
    return complete;
  }

  static bool fits(const Type& type, const Mesh& mesh, const Sharding& sharding) {
    std::vector<bool> used(static_cast<size_t>(mesh.num_axes()));
    const auto use = [&](int axis) {
      const auto at = static_cast<size_t>(axis);  // a negative one becomes too large
      if (at >= used.size() || used[at]) return false;
      used[at] = true;
      return true;
    };
    const auto& partial = sharding.partial;
    for (size_t i = 0; i < partial.size(); ++i) {
      if (!use(partial[i].axis) || partial[i].reduction != partial[0].reduction) return false;
      if (i > 0 && partial[i - 1].axis > partial[i].axis) return false;
    }
    return static_cast<int>(sharding.dims.size()) == type.shape.ndim() &&
           std::all_of(sharding.dims.begin(), sharding.dims.end(),
                       [&](const auto& axes) { return std::all_of(axes.begin(), axes.end(), use); });
  }

  // The sharding alone: dims of the shape, axes of the mesh, none twice, one reduction. Empty where it fits.
  static std::string misfit(const Type& type, const Mesh& mesh, const Sharding& sharding) {
    if (fits(type, mesh, sharding)) return "";
    try {
      mesh::validate(type.shape, {mesh, sharding});
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    for (const auto& partial : sharding.partial) {
      if (partial.reduction == sharding.partial[0].reduction) continue;
      return fmt::format("{}: partial values of several reductions do not commute", sharding.to_string(mesh));
    }
    return "";
  }

  // What readers take a value from: made of the value, so partial only where that is.
  void check_copy(ValueId v, const Sharding& copy) {
    if (v < 0 || v >= graph_.num_values()) return fault(fmt::format("the plan copies value {}, which is not there", v));
    const Mesh& mesh = plan_.mesh_of(v);
    auto why = misfit(graph_.type(v), mesh, copy);
    for (const Partial& partial : copy.partial) {
      const Partial* produced = why.empty() ? find_partial(value(v), partial.axis) : nullptr;
      if (!why.empty() || (produced != nullptr && *produced == partial)) continue;
      why = fmt::format("{} cannot be made of {}", copy.to_string(mesh), value(v).to_string(mesh));
    }
    if (!why.empty()) fault(fmt::format("the copy of {}: {}", graph_.value_name(v), why));
  }

  void check_node(NodeId n) {
    const Node& node = graph_.node(n);
    const Mesh& mesh = plan_.mesh_of_node(n);
    const auto& def = ops::OpRegistry::instance().get(node.op);
    if (def.collective && mesh.size() > 1) check_user_collective(n, mesh);
    if (is_replicated_all_over(n)) return;  // needs no rule
    const auto rule = ops::rule_of(graph_, n);
    bool sound = check_factors(n, rule, mesh);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto why = misfit(graph_.type(node.inputs[i]), mesh, operand(n, i));
      if (!why.empty()) node_fault(n, fmt::format("{}: {}", operand_name(n, i), why));
      sound = sound && why.empty();
    }
    for (const ValueId v : node.outputs) {
      if (!same_mesh(plan_.mesh_of(v), mesh)) {
        node_fault(n, fmt::format("{} lies on {}, the node on {}", graph_.value_name(v), plan_.mesh_of(v).to_string(),
                                  mesh.to_string()));
        sound = false;
        continue;
      }
      const auto why = misfit(graph_.type(v), plan_.mesh_of(v), value(v));
      if (!why.empty()) node_fault(n, fmt::format("{}: {}", graph_.value_name(v), why));
      sound = sound && why.empty();
    }
    if (!sound) return;
    // A fault has others in its train: one operand is named, not what follows from it.
    const auto num_faults = faults_.size();
    for (size_t i = 0; i < node.inputs.size(); ++i) check_arrival(n, i, rule, mesh);
    if (faults_.size() > num_faults) return;
    check_blocks(n, rule);
    if (faults_.size() > num_faults) return;
    const auto through = check_partial_operands(n, def, mesh);
    if (faults_.size() == num_faults) check_results(n, rule, mesh, through);
  }

  bool is_replicated_all_over(NodeId n) const {
    const auto is_whole = [&](ValueId v, const Sharding& sharding) {
      return sharding.is_replicated() && static_cast<int>(sharding.dims.size()) == graph_.type(v).shape.ndim();
    };
    const Node& node = graph_.node(n);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!is_whole(node.inputs[i], operand(n, i))) return false;
    }
    return factors(n).empty() && std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) {
             return is_whole(v, value(v)) && same_mesh(plan_.mesh_of(v), plan_.mesh_of_node(n));
           });
  }

  bool check_factors(NodeId n, const ops::IndexRule& rule, const Mesh& mesh) {
    if (factors(n).empty()) return true;
    const auto names = [](const std::vector<ops::IndexRule::Dims>& side, const std::string& factor) {
      return std::any_of(side.begin(), side.end(), [&](const auto& dims) { return has_factor(dims, factor); });
    };
    const auto num_faults = faults_.size();
    std::set<int> used;
    for (const auto& [factor, axes] : factors(n)) {
      if (factor.empty() || (!names(rule.inputs, factor) && !names(rule.outputs, factor))) {
        node_fault(n, fmt::format("the plan splits \"{}\", which is no factor of {}", factor, rule.to_string()));
      }
      for (const int axis : axes) {
        if (axis < 0 || axis >= mesh.num_axes()) {
          node_fault(n, fmt::format("splits {} over axis {}, the mesh is {}", factor, axis, mesh.to_string()));
        } else if (!used.insert(axis).second) {
          node_fault(n, fmt::format("splits over {} twice", mesh.axis(axis).name));
        }
      }
    }
    return faults_.size() == num_faults;
  }

  std::string factors_text(NodeId n, const Mesh& mesh) const {
    std::string text;
    for (const auto& [factor, axes] : factors(n)) {
      for (const int axis : axes) {
        text += fmt::format("{}{} over {}", text.empty() ? "" : ", ", factor, mesh.axis(axis).name);
      }
    }
    return text.empty() ? "nothing" : text;
  }

  // From what was produced to what the node takes, and whether that is what it computes on.
  void check_arrival(NodeId n, size_t i, const ops::IndexRule& rule, const Mesh& mesh) {
    const ValueId v = graph_.node(n).inputs[i];
    if (is_split_by(operand(n, i), rule.inputs[i], factors(n)) && !operand(n, i).is_partial()) return;
    const Type& type = graph_.type(v);
    const Sharding taken = without_unit_axes(operand(n, i), mesh);
    Sharding computed = without_unit_axes(split_by(rule.inputs[i], factors(n)), mesh);
    if (computed.dims != taken.dims) {
      computed.partial = taken.partial;
      std::erase_if(computed.partial, [&](const Partial& p) { return computed.splits(p.axis); });
      node_fault(n, fmt::format("{} comes in {}, the node splits {} and wants {}{}", operand_name(n, i),
                                operand(n, i).to_string(mesh), factors_text(n, mesh), computed.to_string(mesh),
                                way_between(type, mesh, taken, computed)));
    }
    // A sum to which the first rank contributes the whole, and the others nothing, can be made of any value.
    for (const Partial& partial : taken.partial) {
      const Partial* produced = same_mesh(plan_.mesh_of(v), mesh) ? find_partial(value(v), partial.axis) : nullptr;
      if (partial.reduction == Reduction::kSum || (produced != nullptr && *produced == partial)) continue;
      node_fault(n,
                 fmt::format("{} is {} and taken as {}; only a partial sum can be made of a whole value",
                             operand_name(n, i), value(v).to_string(plan_.mesh_of(v)), operand(n, i).to_string(mesh)));
      return;
    }
  }

  // Dims of one index and one size are dealt alike. What a reshape makes of blocks shows in its parts (verify_local).
  void check_blocks(NodeId n, const ops::IndexRule& rule) {
    const Node& node = graph_.node(n);
    if (node.op == "reshape") return;
    std::map<std::pair<std::string, int64_t>, int64_t> blocks;
    const auto look = [&](const ops::IndexRule::Dims& dims, ValueId v, const Sharding& sharding) {
      for (size_t dim = 0; dim < dims.size(); ++dim) {
        if (dims[dim].empty() || sharding.dims[dim].empty()) continue;
        const int64_t block = sharding.block(static_cast<int>(dim));
        const int64_t size = graph_.type(v).shape[static_cast<int>(dim)];
        const int64_t known = blocks.try_emplace({dims[dim], size}, block).first->second;
        if (known == block) continue;
        node_fault(n, fmt::format("{} is dealt in blocks of {} in {} and of {} in another operand or result", dims[dim],
                                  block, graph_.value_name(v), known));
      }
    };
    for (size_t i = 0; i < node.inputs.size(); ++i) look(rule.inputs[i], node.inputs[i], operand(n, i));
    for (size_t o = 0; o < node.outputs.size(); ++o) look(rule.outputs[o], node.outputs[o], value(node.outputs[o]));
  }

  // The axes along which the operands' partial sums pass to the results. Each must be one set of operands in which the
  // operator is jointly linear.
  std::vector<int> check_partial_operands(NodeId n, const ops::OpDef& def, const Mesh& mesh) {
    std::vector<int> through;
    const auto& operands = plan_.operands[static_cast<size_t>(n)];
    if (std::none_of(operands.begin(), operands.end(), [](const Sharding& s) { return s.is_partial(); })) return {};
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      if (mesh.axis(axis).size == 1) continue;
      std::vector<int> holders;
      for (size_t i = 0; i < graph_.node(n).inputs.size(); ++i) {
        if (find_partial(operand(n, i), axis) != nullptr) holders.push_back(static_cast<int>(i));
      }
      if (holders.empty()) continue;
      if (const auto why = why_not_through(n, def, axis, holders, mesh); why.empty()) {
        through.push_back(axis);
      } else {
        for (const int i : holders) refuse_partial(n, static_cast<size_t>(i), axis, why, mesh);
      }
    }
    return through;
  }

  std::string why_not_through(NodeId n, const ops::OpDef& def, int axis, const std::vector<int>& holders,
                              const Mesh& mesh) const {
    for (const int i : holders) {
      const Reduction reduction = find_partial(operand(n, static_cast<size_t>(i)), axis)->reduction;
      if (reduction == Reduction::kSum) continue;
      return fmt::format("a partial {} passes through nothing", mesh::to_string(reduction));
    }
    for (const auto& [factor, axes] : factors(n)) {
      if (contains(axes, axis)) return fmt::format("the node splits {} along it", factor);
    }
    const auto& sets = def.linear_in;
    if (std::find(sets.begin(), sets.end(), holders) != sets.end()) return "";
    for (const auto& set : sets) {
      if (!std::includes(set.begin(), set.end(), holders.begin(), holders.end())) continue;
      std::vector<std::string> whole;
      for (const int i : set) {
        if (!contains(holders, i)) whole.push_back(operand_name(n, static_cast<size_t>(i)));
      }
      return fmt::format("{} would be counted {} times", fmt::join(whole, ", "), mesh.axis(axis).size);
    }
    return fmt::format("{} is not linear in {}", def.name, holders.size() == 1 ? "it" : "them together");
  }

  void refuse_partial(NodeId n, size_t i, int axis, const std::string& why, const Mesh& mesh) {
    const Sharding& taken = operand(n, i);
    Sharding whole = taken;
    std::erase_if(whole.partial, [axis](const Partial& p) { return p.axis == axis; });
    const ValueId v = graph_.node(n).inputs[i];
    const bool is_update = std::all_of(graph_.node(n).outputs.begin(), graph_.node(n).outputs.end(),
                                       [&](ValueId result) { return new_values_.contains(result); });
    node_fault(n, fmt::format("{} is taken as {}, partial over {}: {}; wanted: {}{}{}", operand_name(n, i),
                              taken.to_string(mesh), mesh.axis(axis).name, why, whole.to_string(mesh),
                              way_between(graph_.type(v), mesh, taken, whole),
                              is_update ? ", or reduce_scatter it and shard the update" : ""));
  }

  void check_results(NodeId n, const ops::IndexRule& rule, const Mesh& mesh, const std::vector<int>& through) {
    const Node& node = graph_.node(n);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const ValueId v = node.outputs[o];
      const bool contracts = std::any_of(factors(n).begin(), factors(n).end(),
                                         [&](const auto& entry) { return !has_factor(rule.outputs[o], entry.first); });
      if (!contracts && through.empty() && !value(v).is_partial() &&
          is_split_by(value(v), rule.outputs[o], factors(n))) {
        continue;
      }
      Sharding computed = split_by(rule.outputs[o], factors(n));
      for (const auto& [factor, axes] : factors(n)) {
        if (has_factor(rule.outputs[o], factor)) continue;
        if (rule.completion(factor) == ops::Completion::kWhole) continue;
        for (const int axis : axes) computed.partial.push_back({axis, completing(rule.completion(factor))});
      }
      for (const int axis : through) computed.partial.push_back({axis, Reduction::kSum});
      std::sort(computed.partial.begin(), computed.partial.end(),
                [](const Partial& a, const Partial& b) { return a.axis < b.axis; });
      computed = without_unit_axes(std::move(computed), mesh);
      const Sharding said = without_unit_axes(value(v), mesh);
      computed.blocks = said.blocks;  // check_blocks() looks at them
      if (computed == said) continue;
      const auto which = o == 0 ? "" : fmt::format("result {} ({}) ", o, graph_.value_name(v));
      node_fault(n, fmt::format("{}is computed as {}, the plan says {}{}{}", which, computed.to_string(mesh),
                                value(v).to_string(mesh), difference(mesh, computed, said),
                                way_between(graph_.type(v), mesh, computed, said)));
    }
  }

  // "all_reduce, all_gather and broadcast": those that reduce first.
  static std::string names_that_give_one() {
    std::vector<std::string> names;
    for (const bool reduces : {true, false}) {
      for (const auto& [name, def] : ops::OpRegistry::instance().all()) {
        if (def.collective == nullptr || !def.collective->gives_one || def.collective->reduces != reduces) continue;
        names.push_back(name);
      }
    }
    const std::string last = names.back();
    names.pop_back();
    return fmt::format("{} and {}", fmt::join(names, ", "), last);
  }

  // A collective that the user wrote is the same node for all ranks: only between all of them, and with one result, is
  // that what a graph for one device means.
  void check_user_collective(NodeId n, const Mesh& mesh) {
    const Node& node = graph_.node(n);
    auto members = node.attributes.get_ints("ranks");
    Ints all(mesh.ranks().begin(), mesh.ranks().end());
    std::sort(members.begin(), members.end());
    std::sort(all.begin(), all.end());
    if (ops::collective_of(node)->gives_one && members == all) return;
    node_fault(n, fmt::format("gives the ranks results of their own, in the group [{}] of {} ranks; a plan for several "
                              "ranks holds only what is equal on all of them: {} between all",
                              fmt::join(node.attributes.get_ints("ranks"), ","), mesh.size(), names_that_give_one()));
  }

  void check_output(size_t i) {
    const auto& output = graph_.outputs()[i];
    const Type& type = graph_.type(output.value);
    const auto who = "return " + output.name;
    const mesh::Layout layout = plan_.output_layout(graph_, i);
    const Mesh& mesh = layout.mesh;
    const ir::Input* input = graph_.find_input(output.name);
    if (const auto why = misfit(type, plan_.mesh_of(input != nullptr ? input->value : output.value), plan_.outputs[i]);
        !why.empty()) {
      fault(fmt::format("{}: {}", who, why));
      return;
    }
    const Sharding given = without_unit_axes(layout.sharding, mesh);
    Sharding wanted = given;
    if (input != nullptr) {
      wanted = without_unit_axes(value(input->value), mesh);
    } else {
      wanted.partial.clear();
    }
    if (given == wanted) return;
    const auto why = input == nullptr ? std::string("a result must be whole")
                                      : fmt::format("the {} of that name lies so", ir::to_string(input->kind));
    fault(fmt::format("{}: is given as {}, wanted: {}, for {}{}", who, given.to_string(mesh), wanted.to_string(mesh),
                      why, way_between(type, mesh, given, wanted)));
  }

  const Graph& graph_;
  const Plan& plan_;
  std::set<ValueId> new_values_;  // of parameters and states
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> verify_plan(const Graph& graph, const Plan& plan) { return PlanVerifier(graph, plan).run(); }

void verify_plan_or_throw(const Graph& graph, const Plan& plan) {
  const auto faults = verify_plan(graph, plan);
  if (faults.empty()) return;
  throw InvalidArgument("the plan of graph {} has {} fault{}:\n  {}", graph.name(), faults.size(),
                        faults.size() == 1 ? "" : "s", fmt::join(faults, "\n  "));
}

}  // namespace tessera::compiler
