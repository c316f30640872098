// SearchTable: the nodes of the search by number, and by state: open addressing, because there may be many thousands.
#pragma once

#include <vector>

#include "tessera/mesh/redistribution/search_space.h"

namespace tessera::mesh {

// How a state was reached from its parent.
struct Move {
  MoveKind kind = MoveKind::kRelabel;
  int dim = -1;
  int to_dim = -1;
  int64_t elements = 0;
};

struct SearchNode {
  ShardingState state;
  MoveCost cost;
  MoveCost ahead;  // a lower bound of what follows
  int parent = -1;
  Move move;
};

class SearchTable {
 public:
  SearchNode& operator[](int node) { return nodes_[static_cast<size_t>(node)]; }
  const SearchNode& operator[](int node) const { return nodes_[static_cast<size_t>(node)]; }

  int size() const { return static_cast<int>(nodes_.size()); }

  // -1 if there is none.
  int find(const ShardingState& state) const { return slots_[slot_of(state)]; }
  // Adds a state that is not there yet.
  int insert(const SearchNode& node) {
    const int number = append(node);
    if (nodes_.size() * 2 > slots_.size()) {
      std::vector<int> old(slots_.size() * 4, -1);
      old.swap(slots_);
      for (const int known : old) {
        if (known >= 0) slots_[slot_of((*this)[known].state)] = known;
      }
    }
    slots_[slot_of(node.state)] = number;
    return number;
  }
  // A node that find() does not find.
  int append(const SearchNode& node) {
    nodes_.push_back(node);
    return static_cast<int>(nodes_.size()) - 1;
  }

 private:
  size_t slot_of(const ShardingState& state) const {
    size_t slot = state.hash() & (slots_.size() - 1);
    while (slots_[slot] >= 0 && !((*this)[slots_[slot]].state == state)) slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }

  std::vector<SearchNode> nodes_;
  std::vector<int> slots_ = std::vector<int>(1024, -1);
};

}  // namespace tessera::mesh
