// Piece: some elements of a logical value as one rank has them, whole or as a term of a sum; and what slices and
// collectives make of pieces. What verify_local follows through local graphs, by ranks and places of elements alone.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/layout.h"
#include "tessera/ops/rules/exchange.h"

namespace tessera::compiler {

struct Piece {
  ir::ValueId logical = ir::kNone;
  mesh::Box box;
  // The world ranks, ascending, whose pieces are the terms of it; this rank alone where it is whole.
  std::vector<int> terms;
  std::string reduction = "sum";  // how the terms are reduced
};

// What `rank` has of a value of that type and layout.
Piece piece_of(const Type& type, ir::ValueId v, const mesh::Layout& layout, int rank);
// Boxes without elements are alike.
bool same_box(const mesh::Box& a, const mesh::Box& b);
bool same_terms(const Piece& a, const Piece& b);
// "[0:2,0:4]", "[0:2,0:4] as the sum of ranks 0,1".
std::string text_of(const Piece& piece);

// A piece, or why a node makes none.
struct PieceOrReason {
  std::optional<Piece> piece;
  std::string why;
};

// The piece that a strided_slice makes of its operand's piece.
PieceOrReason slice_piece(const ir::Node& node, const Piece& piece);

// What one member of a collective brings to it.
struct Member {
  int rank = 0;
  const ir::Node* node = nullptr;
  Piece piece;
};
// What an all_reduce, reduce_scatter, all_gather or exchange gives member `own`. Members are in the order of the group;
// `groups_of_terms` are the groups in which the ranks of this one's terms do the same collective.
PieceOrReason meet_pieces(std::span<const Member> members, size_t own,
                          std::span<const std::vector<int>> groups_of_terms);

}  // namespace tessera::compiler
