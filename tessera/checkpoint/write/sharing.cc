#include "tessera/checkpoint/write/sharing.h"

#include <algorithm>
#include <map>

#include "tessera/base/error.h"

namespace tessera::checkpoint {
namespace {

Region region_of(const std::vector<mesh::Range>& ranges) {
  Region region;
  for (const auto& range : ranges) {
    region.offset.push_back(range.offset);
    region.shape.push_back(range.size);
  }
  return region;
}

// The first dim that gives every holder an index, else the longest.
int dim_to_cut(const Shape& shape, int64_t parts) {
  int longest = 0;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    if (shape[dim] >= parts) return dim;
    if (shape[dim] > shape[longest]) longest = dim;
  }
  return longest;
}

Region part_of(const Region& region, int parts, int index) {
  const int dim = dim_to_cut(region.shape, parts);
  const auto range = mesh::balanced_part(region.shape[dim], parts, index);
  Region part = region;
  part.offset[dim] += range.offset;
  part.shape[dim] = range.size;
  return part;
}

// What a rank of the layout has; nullopt where that is nothing.
std::optional<Region> region_in(const mesh::Layout& layout, const Shape& shape, int rank) {
  const auto& [mesh, sharding] = layout;
  if (std::find(mesh.ranks().begin(), mesh.ranks().end(), rank) == mesh.ranks().end()) return std::nullopt;
  const Region region = region_of(mesh::slice_of(shape, sharding, mesh, rank));
  return region.is_empty() ? std::nullopt : std::optional(region);
}

// A region that one of its holders writes.
struct Undivided {
  size_t value;
  Region region;
  std::vector<int> ranks;
  int64_t size_bytes;
};

}  // namespace

std::optional<Region> held_region(const HeldValue& value, int rank) {
  if (!value.layout)
    return value.type.shape.num_elements() == 0 ? std::nullopt : std::optional(Region::whole(value.type.shape));
  if (auto region = region_in(*value.layout, value.type.shape, rank)) return region;
  for (const auto& copy : value.copies) {
    if (auto region = region_in(copy, value.type.shape, rank)) return region;
  }
  return std::nullopt;
}

std::vector<Holders> holders(const HeldValue& value, std::span<const int> among) {
  std::map<std::vector<int64_t>, Holders> by_offset;
  const auto add = [&](const Region& region, int rank) {
    auto& known = by_offset[region.offset.to_vector()];
    known.region = region;
    known.ranks.push_back(rank);
  };
  if (!value.layout) {
    for (const int rank : among) {
      if (const auto region = held_region(value, rank)) add(*region, rank);
    }
  } else {
    std::vector<const mesh::Layout*> layouts = {&*value.layout};
    for (const auto& copy : value.copies) layouts.push_back(&copy);
    for (const mesh::Layout* layout : layouts) {
      const auto known = by_offset;
      for (const int rank : among) {
        const auto region = region_in(*layout, value.type.shape, rank);
        if (!region) continue;
        const auto same = known.find(region->offset.to_vector());
        if (known.empty() || (same != known.end() && same->second.region == *region)) add(*region, rank);
      }
    }
  }
  std::vector<Holders> result;
  for (auto& [offset, held] : by_offset) {
    std::sort(held.ranks.begin(), held.ranks.end());
    result.push_back(std::move(held));
  }
  return result;
}

bool is_first_holder(const HeldValue& value, int rank) {
  if (!value.layout) return rank == 0;
  const auto own = region_in(*value.layout, value.type.shape, rank);
  if (!own) return false;
  const auto& ranks = value.layout->mesh.ranks();
  return std::none_of(ranks.begin(), ranks.end(),
                      [&](int other) { return other < rank && held_region(value, other) == own; });
}

std::vector<std::optional<Region>> written_regions(std::span<const HeldValue> values, std::span<const int> together,
                                                   int rank, int64_t min_shared_bytes) {
  std::vector<std::optional<Region>> written(values.size());
  std::map<int, int64_t> bytes_of;  // of each rank, as far as is decided
  for (const int each : together) bytes_of[each] = 0;
  const auto assign = [&](size_t value, const Region& region, int to) {
    bytes_of.at(to) += region.shape.num_elements() * static_cast<int64_t>(size_bytes(values[value].type.dtype));
    if (to == rank && !region.is_empty()) written[value] = region;
  };
  std::vector<Undivided> undivided;
  for (size_t i = 0; i < values.size(); ++i) {
    for (auto& [region, ranks] : holders(values[i], together)) {
      const int64_t bytes = region.shape.num_elements() * static_cast<int64_t>(size_bytes(values[i].type.dtype));
      const auto parts = static_cast<int>(ranks.size());
      if (parts == 1) {
        assign(i, region, ranks[0]);
      } else if (bytes >= min_shared_bytes && region.ndim() > 0) {
        for (int part = 0; part < parts; ++part)
          assign(i, part_of(region, parts, part), ranks[static_cast<size_t>(part)]);
      } else {
        undivided.push_back({i, region, ranks, bytes});
      }
    }
  }
  // The largest first, each to the holder that has least to write.
  std::stable_sort(undivided.begin(), undivided.end(),
                   [](const auto& a, const auto& b) { return a.size_bytes > b.size_bytes; });
  for (const auto& item : undivided) {
    const int least = *std::min_element(item.ranks.begin(), item.ranks.end(),
                                        [&](int a, int b) { return bytes_of.at(a) < bytes_of.at(b); });
    assign(item.value, item.region, least);
  }
  return written;
}

}  // namespace tessera::checkpoint
