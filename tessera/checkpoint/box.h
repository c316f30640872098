// Box: a block of a tensor's global value, by the offset and the size in each dim. What a file holds of a split tensor
// is a box; converting from one split to another is intersecting boxes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/tensor/shape.h"

namespace tessera::checkpoint {

struct Box {
  Shape offset;
  Shape shape;

  static Box whole(const Shape& shape);
  int ndim() const { return shape.ndim(); }
  bool is_empty() const { return shape.num_elements() == 0; }
  bool operator==(const Box&) const = default;
  // "[0:4,8:16]": first and one past the last index of each dim.
  std::string to_string() const;
};

// What both hold of one tensor; nullopt when that is nothing. The boxes have equally many dims.
std::optional<Box> intersection(const Box& a, const Box& b);

}  // namespace tessera::checkpoint
