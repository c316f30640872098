// Strategy: the user's notation for how one operator is split, one tuple per tensor operand and one count per dim:
// ((2,1),(1,4)). A scalar's tuple is ().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::mesh {

using Strategy = std::vector<std::vector<int64_t>>;

// Reads what Python prints for a tuple of tuples; blanks and trailing commas are allowed. Throws InvalidArgument naming
// the text and the place of the fault, also for a count below 1.
Strategy parse_strategy(std::string_view text);
// "((2,1),(4,),())": parses back, here and in Python.
std::string to_string(const Strategy& strategy);

// Where the parts of a strategy lie, where the user says so: the ranks as a row-major grid, whose last axis varies
// fastest, and, for each tuple of the strategy and each of its dims, the axes of the grid that split it, outer first;
// their sizes give the count. Without sizes it says nothing: then the parts lie in the order in which the counts stand.
struct StrategyGrid {
  std::vector<int64_t> sizes = {};
  std::vector<std::vector<std::vector<int64_t>>> axes = {};

  bool empty() const { return sizes.empty(); }
  bool operator==(const StrategyGrid&) const = default;
};
// "(2,2):((0,_),(_,1))", of a dim that two axes split "0.1"; parses back. "" for an empty one.
std::string to_string(const StrategyGrid& grid);
// Throws InvalidArgument naming the text and the place of the fault, also for a size below 1 and an axis below 0.
StrategyGrid parse_strategy_grid(std::string_view text);

// The coarsest device matrix of which each of `device_matrices` is a merge of adjacent axes, all read row-major over
// `num_ranks` ranks: [4,2] and [2,4] give [2,2,2]. A matrix with fewer ranks is repeated along a last axis; axes of
// size 1 do not matter and the result has none. nullopt where there is none: [2,3] and [3,2] on 6 ranks. Throws
// InvalidArgument for a size below 1 or a product that does not divide num_ranks.
// Shards of a merged axis and those of its factors are the same only where refines_exactly() says so.
std::optional<std::vector<int64_t>> common_refinement(std::span<const std::vector<int64_t>> device_matrices,
                                                      int64_t num_ranks);

// Whether a dim of `dim_size` elements split by the axis sizes `coarse`, outer first, has the same parts in the same
// order when split by `fine`. `fine` must factorise each entry of `coarse` in turn: 12 by {6} and by {2,3}, but not 10:
// 2,2,2,2,1,1 against 2,2,1,2,2,1. Throws InvalidArgument when it does not.
bool refines_exactly(int64_t dim_size, std::span<const int64_t> coarse, std::span<const int64_t> fine);

}  // namespace tessera::mesh
