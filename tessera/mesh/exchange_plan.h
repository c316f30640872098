// Exchange: every rank sends the intersections of what it has with what others need, point to point, from any layout of
// a tensor to any other, also of other ranks. Needs no relation between the two meshes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tessera/mesh/box.h"
#include "tessera/mesh/layout.h"

namespace tessera::mesh {

// A box of a rank's local tensor, and the world rank it goes to or comes from.
struct ExchangePiece {
  int rank = 0;
  Box box;
  bool operator==(const ExchangePiece&) const = default;
};

struct ExchangePlan {
  std::vector<ExchangePiece> sends;     // boxes of the local tensor in `from`; ascending by rank, one per rank
  std::vector<ExchangePiece> receives;  // boxes of the local tensor in `to`; likewise
  // What the rank has already: a box of its tensor in `from`, and where it goes in `to`. Absent when empty.
  struct Kept {
    Box from_box;
    Box to_box;
  };
  std::optional<Kept> kept;
};

// What `rank` does in the exchange. Received and kept boxes tile its tensor in `to`; the box that a sends to b has the
// size of the one that b receives from a. Ranks that hold the same piece serve about equally many elements of it. The
// rank need not be in both meshes. Partial axes must be the same in both layouts, on equal meshes; values then move
// between ranks of equal coordinates on them. Throws InvalidArgument when they are not, or a layout does not fit.
ExchangePlan exchange_plan(const Shape& shape, const Layout& from, const Layout& to, int rank);

// What all ranks do in the exchange: visits each piece with the rank that sends it, the one that receives it, and its
// elements. What a rank keeps is no piece. The pieces of one rank are those of its exchange_plan(). Throws as it does.
using VisitPiece = std::function<void(int sender, int receiver, int64_t elements)>;
void visit_exchange(const Shape& shape, const Layout& from, const Layout& to, const VisitPiece& visit);

// The elements that the busiest rank receives: what it needs less what it has. Looks at every rank.
int64_t exchange_elements(const Shape& shape, const Mesh& from_mesh, const Sharding& from, const Mesh& to_mesh,
                          const Sharding& to);

}  // namespace tessera::mesh
