// How a graph is to be split on one mesh, as a problem for the solver: a node for each operator, whose choices are all
// that can be decided of it; a node for each parameter, state and data input, whose choices are how it may lie; a node
// for each value with several readers: how it lies for them, so that what is moved once is paid once. Edges are what
// moving values costs, each reader's own: PlanCost::searched_seconds() of the plan. What the graph returns is read
// behind the last operator, and is one reader more. Where memory has a limit each value that is read has such a node,
// and in use at a time are the bytes of the values that live then: a value as it is made until its first reader, from
// there on what the readers take.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/base/deadline.h"
#include "tessera/compiler/search/cost_model.h"
#include "tessera/solver/problem/problem.h"

namespace tessera::compiler {

// What has been decided of a graph on one mesh: PlanOptions::fixed and layouts of inputs for propagate().
struct PlanChoices {
  mesh::Mesh mesh;
  std::map<ir::NodeId, NodeChoice> nodes;
  std::map<std::string, mesh::Sharding> inputs;
  std::map<ir::ValueId, mesh::Sharding> copies;

  bool operator==(const PlanChoices&) const = default;
};

// What a second of communication counts for in a search, by the lane that it will run in (ir/schedule.h): 1 where
// nothing hides it, less where computing does.
struct LanePrices {
  double awaited = 1;
  double gradient = 1;
  bool operator==(const LanePrices&) const = default;
};

struct SearchProblemOptions {
  // Inputs that lie so already. They must be on the search's mesh.
  ShardingHints hints = {};
  // Operators whose choice is given.
  std::map<ir::NodeId, NodeChoice> fixed = {};
  // Forward operators that can be split over all ranks are.
  bool use_all_ranks = false;
  // The parts of a dim of a product's operands are multiples of so many elements.
  int64_t slice_align_size = 1;
  // Results that are no new values are wanted whole on every rank.
  bool whole_results = false;
  // The most bytes of values on a rank; 0: no limit.
  int64_t memory_limit_bytes = 0;
  LanePrices prices = {};
  // Asked for each operator and each value: the constructor throws Stopped where it is stopped. Time does not count.
  Deadline stop = {};
};

class SearchProblem {
 public:
  // Graph and cost model must outlive it.
  SearchProblem(const ir::Graph& graph, CostModel& costs, const SearchProblemOptions& options = {});

  const solver::Problem& problem() const { return problem_; }
  // What a solution says of the graph.
  PlanChoices choices_of(const std::vector<int>& solution) const;

  // Nodes of the problem by what they are in a layer: those at the same place of layers that are alike, which a list of
  // cells numbers, have one number, all others one of their own. The classes of nodes, as solver::fold() takes them.
  std::vector<int> classes() const;
  const mesh::Mesh& mesh() const { return costs_.mesh(); }
  // What it costs to bring a value from one sharding to another, by their numbers, for a reader; by its price.
  double way_cost(ir::ValueId v, int from, int to, ir::NodeId reader) const {
    return costs_.way_seconds(costs_.shardings_of(graph_.type(v)), from, to) * price_for(reader);
  }
  // The price of what is communicated within an operator, for which later operators wait.
  double own_price() const { return options_given_.prices.awaited; }
  // The solver's node for an operator, and for an input.
  int node_of(ir::NodeId node) const { return first_operator_ + node; }
  int node_of_input(size_t input) const { return static_cast<int>(input); }
  const NodeOptions& options_of(ir::NodeId node) const { return *options_[static_cast<size_t>(node)]; }

 private:
  // A value as its readers find it: the solver's node that says how it lies, and the sharding of each choice.
  struct Source {
    int node = 0;
    const std::vector<int>* shardings = nullptr;
  };
  // A value that several read, the graph's end among them.
  struct Copy {
    ir::ValueId value;
    int node;                    // the solver's
    std::vector<int> shardings;  // the shardings of its choices
    std::vector<int> made_of;    // how a persistent value whose memory counts lies, by choice
  };
  struct Reader {
    ir::NodeId node;
    size_t operand;
  };

  // Times at which a value is read: from the first reader until behind the last.
  struct Reading {
    int64_t begin = 0;
    int64_t end = 0;
  };

  void find_returns();
  void find_updates();
  // The price of ways to where a node reads.
  double price_for(ir::NodeId reader) const {
    return for_update_[static_cast<size_t>(reader)] ? options_given_.prices.gradient : options_given_.prices.awaited;
  }
  void add_inputs();
  void add_operators();
  void fix(solver::ProblemNode& node, ir::NodeId n) const;
  void forbid(solver::ProblemNode& node, ir::NodeId n) const;
  bool is_aligned(ir::NodeId n, size_t choice) const;
  void add_values();
  void add_return(ir::ValueId v, const Source& from, const ir::Input* replaced);
  // Whether the value is returned as a result, and not only as a parameter's or state's new value.
  bool is_result(ir::ValueId v) const;
  // Whether something reads the value, the graph's end included where it is a result.
  bool is_read(ir::ValueId v) const { return !readers_[static_cast<size_t>(v)].empty() || is_result(v); }
  // Whether it goes straight from where it is made to where it is returned, and nowhere else.
  bool is_only_returned(ir::ValueId v) const;
  // Never, where it is not read.
  Reading reading_of(ir::ValueId v) const;
  // The number of the sharding in which a result is returned that is made in another.
  int returned_sharding(ShardingTable& table, int made) const;
  Source source_of(ir::ValueId v) const;
  Source add_copy(ir::ValueId v, const Source& from);
  void add_made_of(const Source& from, Copy& copy, solver::ProblemNode& node, double price);
  void add_way(ir::ValueId v, const Source& from, int to_node, const std::vector<int>& to, double price);

  const ir::Graph& graph_;
  CostModel& costs_;
  const SearchProblemOptions& options_given_;
  solver::Problem problem_;
  int first_operator_ = 0;
  std::vector<const NodeOptions*> options_;   // by operator
  std::vector<std::vector<int>> inputs_;      // by input: the sharding of each choice
  std::vector<std::vector<Reader>> readers_;  // by value
  // By value: the inputs that it is returned as the new values of; null where it is a result. Once each.
  std::vector<std::vector<const ir::Input*>> returns_;
  std::vector<bool> for_update_;  // by operator: nothing but new values of parameters comes of it
  std::vector<std::unique_ptr<Copy>> copies_;
  // Costs of ways: by the type's table, the shardings that there are, those that are wanted, and the price.
  std::map<std::tuple<const ShardingTable*, std::vector<int>, std::vector<int>, double>, solver::SharedCosts> ways_;
};

}  // namespace tessera::compiler
