// Kept pieces: which piece of each value a rank has kept, as text beside the values, so that ranks of another number
// can put the values together. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/checkpoint/format/region.h"
#include "tessera/tensor/type.h"

namespace tessera::train {

struct KeptPiece {
  Type type;  // of the whole value
  checkpoint::Region region;
  int64_t at = 0;  // where the piece begins among the bytes of the values
};

// By the names of the values; of a value that others cannot use it has nothing.
using KeptPieces = std::map<std::string, KeptPiece>;

std::string print_pieces(const KeptPieces& pieces);
// Throws InvalidArgument where the text is none of print_pieces().
KeptPieces parse_pieces(std::string_view text);

// A piece that the rank which has a version gives to all.
struct PieceSource {
  size_t version = 0;
  checkpoint::Region region;
  int64_t at = 0;
};
// The pieces that make up a whole value of this type, from the pieces of each version: each element once, of the
// versions that have it the first one. nullopt where they do not make up the whole.
std::optional<std::vector<PieceSource>> find_sources(const std::vector<KeptPieces>& of_versions,
                                                     const std::string& name, const Type& type);

}  // namespace tessera::train
