// Region: a block of a tensor's global value, by the offset and the size in each dim. What a file holds of a split
// tensor is a region; converting from one split to another is intersecting regions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tessera/tensor/tensor.h"

namespace tessera::checkpoint {

struct Region {
  Shape offset;
  Shape shape;

  static Region whole(const Shape& shape);
  int ndim() const { return shape.ndim(); }
  bool is_empty() const { return shape.num_elements() == 0; }
  bool operator==(const Region&) const = default;
  // "[0:4,8:16]": first and one past the last index of each dim.
  std::string to_string() const;
};

// A region of a global value: what is held of it, where that is only a part.
struct GlobalRegion {
  Region region;
  Shape global;  // the shape of the whole value
};

// What both hold of one tensor; nullopt when that is nothing. The regions have equally many dims.
std::optional<Region> intersection(const Region& a, const Region& b);

// A region by its place in a container of it.
Region relative(const Region& region, const Region& container);

// Whether the regions hold each element of a tensor of this shape once.
bool covers_once(std::span<const Region> regions, const Shape& shape);

// The part of a global value that a region is; the same memory.
TensorView view_of(const TensorView& global, const Region& region);

}  // namespace tessera::checkpoint
