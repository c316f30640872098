#include "tessera/compiler/search/recursive_search.h"

#include <algorithm>
#include <numeric>

#include "tessera/solver/elimination.h"

namespace tessera::compiler {
namespace {

using ir::NodeId;

// What a choice does with one axis: a factor's name, or the operands that pass partial sums.
std::string use_of(const NodeChoice& choice, int axis) {
  for (const auto& [factor, axes] : choice.factors) {
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) return factor;
  }
  const auto it = choice.through.find(axis);
  if (it == choice.through.end()) return "";
  std::string text = "+";
  for (const int operand : it->second) text += std::to_string(operand) + ",";
  return text;
}

class RecursiveSearch {
 public:
  RecursiveSearch(const ir::Graph& graph, const SearchProblem& problem, const Deadline& stop)
      : graph_(graph), problem_(problem), stop_(stop) {
    const auto nodes = static_cast<size_t>(graph.num_nodes());
    taken_.assign(nodes, 0);
    readers_.resize(nodes);
    order_.resize(nodes);
    std::iota(order_.begin(), order_.end(), 0);
    const auto work = [&](NodeId n) { return problem_.options_of(n).compute_seconds[0]; };
    std::stable_sort(order_.begin(), order_.end(), [&](NodeId a, NodeId b) { return work(a) > work(b); });
    for (NodeId n = 0; n < graph.num_nodes(); ++n) {
      const auto& inputs = graph.node(n).inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const auto& info = graph.info(inputs[i]);
        if (info.node == ir::kNone) continue;
        readers_[static_cast<size_t>(info.node)].push_back({static_cast<size_t>(info.index), n, i});
      }
    }
  }

  std::vector<int> run() {
    const int num_axes = problem_.mesh().num_axes();
    for (int axis = 0; axis < num_axes; ++axis) {
      decided_.assign(taken_.size(), false);
      for (const NodeId n : order_) {
        stop_.throw_if_stopped();
        decide(n, axis);
        decided_[static_cast<size_t>(n)] = true;
      }
    }
    return with_inputs();
  }

 private:
  struct Reader {
    size_t result;
    NodeId node;
    size_t operand;
  };

  // Whether the choice keeps what was decided for lower axes and leaves higher ones alone.
  bool extends(const NodeChoice& choice, const NodeChoice& so_far, int axis) const {
    for (int a = 0; a < problem_.mesh().num_axes(); ++a) {
      if (a == axis) continue;
      if (use_of(choice, a) != (a < axis ? use_of(so_far, a) : "")) return false;
    }
    return true;
  }

  // Whether the operands that are to pass partial sums over the axis are decided to hold them.
  bool has_partial_operands(NodeId n, const NodeChoice& choice, int axis) const {
    const auto through = choice.through.find(axis);
    if (through == choice.through.end()) return true;
    return std::all_of(through->second.begin(), through->second.end(), [&](int operand) {
      const NodeId producer = graph_.info(graph_.node(n).inputs[static_cast<size_t>(operand)]).node;
      return producer != ir::kNone && decided_[static_cast<size_t>(producer)];
    });
  }

  // Beside the neighbours that have been decided in this round.
  double cost_of(NodeId n, size_t choice) const {
    const NodeOptions& options = problem_.options_of(n);
    double cost = options.compute_seconds[choice] + problem_.own_price() * options.communication_seconds[choice];
    const auto& inputs = graph_.node(n).inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto& info = graph_.info(inputs[i]);
      if (info.node == ir::kNone || !decided_[static_cast<size_t>(info.node)]) continue;
      const auto& results = problem_.options_of(info.node).results[static_cast<size_t>(info.index)];
      cost += problem_.way_cost(inputs[i], results[taken(info.node)], options.operands[i][choice], n);
    }
    for (const Reader& reader : readers_[static_cast<size_t>(n)]) {
      if (!decided_[static_cast<size_t>(reader.node)]) continue;
      const int wanted = problem_.options_of(reader.node).operands[reader.operand][taken(reader.node)];
      cost += problem_.way_cost(graph_.node(n).outputs[reader.result], options.results[reader.result][choice], wanted,
                                reader.node);
    }
    return cost;
  }

  void decide(NodeId n, int axis) {
    const NodeOptions& options = problem_.options_of(n);
    const NodeChoice so_far = options.choices[taken(n)];
    double least = solver::kForbidden;
    for (size_t choice = 0; choice < options.choices.size(); ++choice) {
      // A given strategy is the only choice.
      if (options.choices.size() > 1 && !extends(options.choices[choice], so_far, axis)) continue;
      if (!has_partial_operands(n, options.choices[choice], axis)) continue;
      const double cost = cost_of(n, choice);
      if (cost >= least) continue;
      least = cost;
      taken_[static_cast<size_t>(n)] = choice;
    }
  }

  size_t taken(NodeId n) const { return taken_[static_cast<size_t>(n)]; }

  // Inputs and copies lie as is best for the operators.
  std::vector<int> with_inputs() const {
    solver::Problem rest = problem_.problem();
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      auto& costs = rest.nodes[static_cast<size_t>(problem_.node_of(n))].costs;
      for (size_t choice = 0; choice < costs.size(); ++choice) {
        if (choice != taken(n)) costs[choice] = solver::kForbidden;
      }
    }
    rest.usage_limit = solver::kNoLimit;
    return solver::solve_by_elimination(rest, Clock::system(), stop_).choices;
  }

  const ir::Graph& graph_;
  const SearchProblem& problem_;
  const Deadline& stop_;
  std::vector<size_t> taken_;  // by operator: its choice
  std::vector<bool> decided_;  // in this round
  std::vector<NodeId> order_;
  std::vector<std::vector<Reader>> readers_;
};

}  // namespace

solver::Solution search_recursively(const ir::Graph& graph, const SearchProblem& problem, const Clock& clock,
                                    const Deadline& stop) {
  const int64_t begin_ns = clock.monotonic_ns();
  solver::Solution solution;
  auto choices = RecursiveSearch(graph, problem, stop).run();
  solution.seconds = 1e-9 * static_cast<double>(clock.monotonic_ns() - begin_ns);
  if (choices.empty()) return solution;
  const auto evaluation = solver::evaluate(problem.problem(), choices);
  if (!evaluation.feasible) return solution;
  solution.choices = std::move(choices);
  solution.cost = evaluation.cost;
  solution.status = solver::Status::kFeasible;
  return solution;
}

}  // namespace tessera::compiler
