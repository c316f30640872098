// A graph whose nodes are groups of an instance's nodes: a choice of a group is one for each of its members. What is
// bounded edge by edge on the instance is bounded exactly within a group, so that the larger groups are, the higher the
// bound of a Dual; and a choice of a group may be seen to be bad where each of its members' choices is good for itself.
#pragma once

#include <memory>
#include <vector>

#include "tessera/solver/dual.h"
#include "tessera/solver/graph.h"
#include "tessera/solver/instance.h"

namespace tessera::solver {

struct Relaxation {
  // Each node alone; the instance must outlive it.
  explicit Relaxation(const Instance& instance);
  Relaxation() = default;

  std::shared_ptr<const Graph> graph;
  std::vector<std::vector<int>> members;  // of each group
  std::vector<std::vector<int>> choices;  // of each group: its members', row by row of its choices

  // The instance's choices for those of the groups.
  std::vector<int> of_instance(const std::vector<int>& of_groups) const;
};

// What a smaller relaxation is made of.
struct Contraction {
  std::vector<bool> is_out;  // by choice of the graph: left out
  std::vector<int> partner;  // by group: joined with it, -1: with none; of two, each is the other's
  double most = kForbidden;  // pairs that the dual says cost more than the least by this are left out
};

struct Contracted {
  Relaxation relaxation;
  Dual::State state;  // the dual's, as the new graph has it; it says no less
  bool is_empty = false;  // some group has no choice left; nothing else means anything then
};

// `state` is that after a pass of a dual of the graph.
Contracted contract(const Relaxation& relaxation, const Dual& dual, const Contraction& how);

// Marks choices that are forbidden, stand beside no allowed choice of a neighbour, or use more than the limit leaves
// beside the least of all others; whether any of the others is left of each group.
bool mark_impossible(const Instance& instance, const Relaxation& relaxation, std::vector<bool>& is_out);

struct PartnerLimits {
  size_t choices;  // of a group
  size_t pairs;    // of the graph, in all
};
// Groups to be joined: small ones, those that have most neighbours in common first.
std::vector<int> choose_partners(const Relaxation& relaxation, const Dual& dual, const std::vector<bool>& is_out,
                                 double most, const PartnerLimits& limits);

}  // namespace tessera::solver
