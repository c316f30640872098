// Which rank writes what, when ranks save together: each part of each value once, though many ranks may hold it, and
// about as many bytes on every rank. Pure arithmetic on layouts: all ranks come to the same answer without talking.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/region.h"
#include "tessera/mesh/layout.h"
#include "tessera/tensor/type.h"

namespace tessera::checkpoint {

// A value of a running job, as its ranks hold it.
struct HeldValue {
  std::string name;
  Type type;                           // global
  std::optional<mesh::Layout> layout;  // absent: whole on every rank. Partial axes count as replicas.
  std::vector<mesh::Layout> copies =
      {};  // on other ranks, each whole as well: of what several stages of a pipeline have
};

// What a rank holds of the value; nullopt where that is no element.
std::optional<Region> held_region(const HeldValue& value, int rank);
// The regions that ranks of `among` hold, each with those ranks in their order. Copies that are split in another way
// than the first one that these ranks have do not count.
struct Holders {
  Region region;
  std::vector<int> ranks;
};
std::vector<Holders> holders(const HeldValue& value, std::span<const int> among);
// Whether the rank holds a region of the first copy that no lower rank holds.
bool is_first_holder(const HeldValue& value, int rank);

// Regions of at least so many bytes are cut into one part for each rank that holds them; smaller ones are written by
// one.
inline constexpr int64_t kMinSharedBytes = int64_t{1} << 20;

// For each value the region that `rank` writes of it, where the ranks `together` (ascending, `rank` among them) save
// into one directory. The regions of all of them do not overlap; together they are what those ranks hold.
std::vector<std::optional<Region>> written_regions(std::span<const HeldValue> values, std::span<const int> together,
                                                   int rank, int64_t min_shared_bytes = kMinSharedBytes);

}  // namespace tessera::checkpoint
