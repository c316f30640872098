// PlannedPart: a part of a planned graph that is compiled by itself. PartBuilder makes one: it copies nodes of a
// planned graph into a graph of its own, with what the plan says of them: on the ranks of one stage of a pipeline, in
// place of the ranks 0 to n-1 that the plan is made for.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/compiler/plan/plan.h"

namespace tessera::compiler {

// A part of a planned graph that can be compiled by itself.
struct PlannedPart {
  ir::Graph graph;
  Plan plan;
};

class PartBuilder {
 public:
  // The graph and the plan must last as long as the builder. `ranks`: as many as the plan's.
  PartBuilder(const ir::Graph& graph, const Plan& plan, const std::vector<int>& ranks, const std::string& name);

  bool has(ir::ValueId v) const { return values_.contains(v); }
  // The value of the whole graph is an input here, of that kind and name: an input of its own name as it lies, another
  // one as its readers take it.
  void add_input(ir::ValueId v, ir::InputKind kind, const std::string& name);
  // Its operands must be here.
  void add_node(ir::NodeId n);
  void add_output(const std::string& name, ir::ValueId v, const mesh::Sharding& sharding);
  // An output that is kept in the state of this name.
  void add_kept(const std::string& name, ir::ValueId v);
  PlannedPart finish() { return std::move(part_); }

 private:
  void set(ir::ValueId v, ir::Value here, const mesh::Sharding& sharding);
  void set_plan(ir::Value here, const mesh::Sharding& sharding, int mesh);

  const ir::Graph& graph_;
  const Plan& plan_;
  PlannedPart part_;
  std::map<ir::ValueId, ir::ValueId> values_;
  std::vector<ir::NodeId> nodes_;
};

// The same grid of other ranks.
mesh::Mesh with_ranks(const mesh::Mesh& mesh, std::vector<int> ranks);
// The mesh on other ranks: rank i becomes ranks[i].
mesh::Mesh on_ranks(const mesh::Mesh& mesh, const std::vector<int>& ranks);

}  // namespace tessera::compiler
