#include "tessera/compiler/plan.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ops/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using mesh::Mesh;
using mesh::Partial;
using mesh::Reduction;
using mesh::Sharding;

Reduction reduction_of(ops::Completion completion) {
  switch (completion) {
    case ops::Completion::kSum:
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

// One node: chooses the factor that each mesh axis splits, then reads off operands and results.
class NodePlanner {
 public:
  NodePlanner(const Graph& graph, const Node& node, const Plan& plan)
      : graph_(graph), node_(node), plan_(plan), def_(ops::OpRegistry::instance().get(node.op)) {
    for (const auto v : node.inputs) inputs_.push_back(graph.type(v));
    for (const auto v : node.outputs) outputs_.push_back(graph.type(v));
    rule_ = ops::rule_of(def_, node.attributes, inputs_, outputs_);
    check_equal(rule_.inputs.size(), inputs_.size(), "operands of an index rule");
    check_equal(rule_.outputs.size(), outputs_.size(), "results of an index rule");
  }

  void run(std::vector<Sharding>& operands, std::vector<Sharding>& results,
           std::map<std::string, std::vector<int>>& factors) {
    for (int axis = 0; axis < plan_.mesh.num_axes(); ++axis) {
      if (passes_partial(axis)) {
        through_.insert(axis);
      } else if (const auto factor = choose_factor(axis); !factor.empty()) {
        factors[factor].push_back(axis);
      }
    }
    for (size_t i = 0; i < inputs_.size(); ++i) operands.push_back(operand(i, factors));
    for (size_t o = 0; o < outputs_.size(); ++o) results.push_back(result(o, factors));
  }

 private:
  const Sharding& produced(size_t input) const { return plan_.values[static_cast<size_t>(node_.inputs[input])]; }

  // The operands that hold partial sums over `axis` are exactly one set that the operator is jointly linear in, and no
  // other operand is split along it.
  bool passes_partial(int axis) const {
    std::vector<int> holders;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (has_partial_sum(produced(i), axis)) holders.push_back(static_cast<int>(i));
      if (produced(i).splits(axis)) return false;
    }
    if (holders.empty()) return false;
    return std::find(def_.linear_in.begin(), def_.linear_in.end(), holders) != def_.linear_in.end();
  }

  std::string choose_factor(int axis) const {
    std::map<std::string, int64_t> bytes;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      for (size_t dim = 0; dim < rule_.inputs[i].size(); ++dim) {
        const auto& axes = produced(i).dims[dim];
        const auto& factor = rule_.inputs[i][dim];
        if (!factor.empty() && std::find(axes.begin(), axes.end(), axis) != axes.end()) {
          bytes[factor] += std::max<int64_t>(inputs_[i].size_bytes(), 1);
        }
      }
    }
    std::string best;
    for (const auto& [factor, weight] : bytes) {
      if (best.empty() || weight > bytes[best]) best = factor;
    }
    return best;
  }

  static std::vector<std::vector<int>> split_dims(const ops::IndexRule::Dims& dims,
                                                  const std::map<std::string, std::vector<int>>& factors) {
    std::vector<std::vector<int>> result(dims.size());
    for (size_t dim = 0; dim < dims.size(); ++dim) {
      if (const auto it = factors.find(dims[dim]); it != factors.end()) result[dim] = it->second;
    }
    return result;
  }

  Sharding operand(size_t i, const std::map<std::string, std::vector<int>>& factors) const {
    Sharding sharding{split_dims(rule_.inputs[i], factors), {}};
    for (const int axis : through_) {
      if (has_partial_sum(produced(i), axis)) sharding.partial.push_back({axis, Reduction::kSum});
    }
    return sharding;
  }

  Sharding result(size_t o, const std::map<std::string, std::vector<int>>& factors) const {
    Sharding sharding{split_dims(rule_.outputs[o], factors), {}};
    for (const int axis : through_) sharding.partial.push_back({axis, Reduction::kSum});
    for (const auto& [factor, axes] : factors) {
      const auto& dims = rule_.outputs[o];
      if (std::find(dims.begin(), dims.end(), factor) != dims.end()) continue;
      for (const int axis : axes) sharding.partial.push_back({axis, reduction_of(rule_.completion(factor))});
    }
    std::sort(sharding.partial.begin(), sharding.partial.end(),
              [](const Partial& a, const Partial& b) { return a.axis < b.axis; });
    return sharding;
  }

  const Graph& graph_;
  const Node& node_;
  const Plan& plan_;
  const ops::OpDef& def_;
  std::vector<Type> inputs_;
  std::vector<Type> outputs_;
  ops::IndexRule rule_;
  std::set<int> through_;
};

void check_hint(const std::string& name, const Type& type, const Sharding& sharding, const Mesh& mesh) {
  if (static_cast<int>(sharding.dims.size()) != type.shape.ndim()) {
    throw InvalidArgument("input \"{}\" is {}, its sharding {} has {} dims", name, type, sharding.to_string(mesh),
                          sharding.dims.size());
  }
  std::set<int> used;
  const auto use = [&](int axis) {
    if (axis < 0 || axis >= mesh.num_axes()) {
      throw InvalidArgument("input \"{}\": its sharding names axis {}, mesh {} has {}", name, axis, mesh.to_string(),
                            mesh.num_axes());
    }
    if (!used.insert(axis).second) {
      throw InvalidArgument("input \"{}\": its sharding {} uses axis \"{}\" twice", name, sharding.to_string(mesh),
                            mesh.axis(axis).name);
    }
  };
  for (const auto& axes : sharding.dims) std::for_each(axes.begin(), axes.end(), use);
  for (const auto& partial : sharding.partial) use(partial.axis);
}

}  // namespace

Plan propagate(const Graph& graph, const Mesh& mesh, const ShardingHints& hints) {
  Plan plan{.mesh = mesh};
  plan.values.resize(static_cast<size_t>(graph.num_values()));
  for (const auto& input : graph.inputs()) {
    const Type& type = graph.type(input.value);
    auto& sharding = plan.values[static_cast<size_t>(input.value)];
    const auto hint = hints.find(input.name);
    sharding = hint == hints.end() ? Sharding::replicated(type.shape.ndim()) : hint->second;
    check_hint(input.name, type, sharding, mesh);
  }
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.node(n);
    std::vector<Sharding> results;
    NodePlanner(graph, node, plan).run(plan.operands.emplace_back(), results, plan.factors.emplace_back());
    for (size_t o = 0; o < results.size(); ++o) plan.values[static_cast<size_t>(node.outputs[o])] = results[o];
  }
  for (const auto& output : graph.outputs()) {
    Sharding wanted = plan.values[static_cast<size_t>(output.value)];
    wanted.partial.clear();
    // A parameter's new value goes where the parameter is.
    if (const ir::Input* input = graph.find_input(output.name)) wanted = plan.values[static_cast<size_t>(input->value)];
    plan.outputs.push_back(wanted);
  }
  return plan;
}

Plan single_device_plan(const Graph& graph) { return propagate(graph, Mesh({{"data", 1}}), {}); }

std::string print(const Graph& graph, const Plan& plan) {
  std::string text = fmt::format("plan {} mesh {}\n", graph.name(), plan.mesh.to_string());
  const auto sharding_of = [&](ir::ValueId v) { return plan.values[static_cast<size_t>(v)].to_string(plan.mesh); };
  for (const auto& input : graph.inputs()) text += fmt::format("  {} {}\n", input.name, sharding_of(input.value));
  int number = 0;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.node(n);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      text += fmt::format("  %{} {}", ++number, sharding_of(node.outputs[o]));
      if (o == 0) {
        text += " = " + node.op;
        for (size_t i = 0; i < node.inputs.size(); ++i) {
          const auto& wanted = plan.operands[static_cast<size_t>(n)][i];
          const auto& produced = plan.values[static_cast<size_t>(node.inputs[i])];
          if (!(wanted == produced)) {
            text += fmt::format("  ({} -> {})", produced.to_string(plan.mesh), wanted.to_string(plan.mesh));
          }
        }
      }
      text += "\n";
    }
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    text += fmt::format("  return {} {}\n", graph.outputs()[i].name, plan.outputs[i].to_string(plan.mesh));
  }
  return text;
}

}  // namespace tessera::compiler
