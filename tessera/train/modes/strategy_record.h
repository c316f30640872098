// What a plan says of a training step, as a strategy file holds it, and back: pure functions on graph, plan and file.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tessera/checkpoint/strategy/group_file.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tessera/compiler/partition/partition.h"
#include "tessera/compiler/plan/plan.h"

namespace tessera::train {

// "MatMul_fc.weight": the operator as strategy files name it, and the first parameter that it reads (or reads the cast
// of). "" for a node that reads none, and for gradients, updates and casts.
std::string strategy_node_name(const ir::Graph& graph, ir::NodeId node);

// The strategies of all operators with parameters, and the layouts of all parameters and of the states that belong to
// one (moments.fc.weight). Throws InvalidArgument where two operators share a name and are split differently.
checkpoint::StrategyFile record_strategies(const ir::Graph& graph, const compiler::Plan& plan);

// The layouts alone.
std::vector<checkpoint::ParameterLayout> record_layouts(const ir::Graph& graph, const compiler::Plan& plan);
// The layouts of a graph that updates parameters, whose values the operators of another graph read.
std::vector<checkpoint::ParameterLayout> record_layouts_of_update(const ir::Graph& update, const compiler::Plan& plan,
                                                                  const ir::Graph& readers,
                                                                  const compiler::Plan& plan_of_readers);

// Gives the operators the file's strategies. Throws InvalidArgument naming `path` and each name of the file that the
// graph lacks, or whose shape or number of operands is another.
void apply_strategies(ir::Graph& graph, const checkpoint::StrategyFile& file, const std::string& path);
// Does the same for the operators that the graph has. It is for graphs that are a part of the one whose file this is.
void apply_known_strategies(ir::Graph& graph, const checkpoint::StrategyFile& file);

// The parameters whose rows the replicas share, for the optimizer's sake.
std::set<std::string> optimizer_shards_of(const checkpoint::StrategyFile& file);

// Throws InvalidArgument naming `path` and the first operator or parameter that a plan with the file's strategies
// splits in another way than the file says.
void require_recorded(const checkpoint::StrategyFile& file, const ir::Graph& graph, const compiler::Plan& plan,
                      const std::string& path);

// The groups in which `rank` communicates, named by their size and a hash of their ranks, and the ranks that hold the
// same slices as it.
checkpoint::GroupFile record_groups(const ir::Graph& graph, const compiler::Plan& plan,
                                    const compiler::GroupLists& groups, int rank);

}  // namespace tessera::train
