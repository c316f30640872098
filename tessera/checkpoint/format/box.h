// Box: a block of a tensor's global value, by the offset and the size in each dim. What a file holds of a split tensor
// is a box; converting from one split to another is intersecting boxes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tessera/tensor/tensor.h"

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

// A box of a global value: what is held of it, where that is only a part.
struct GlobalBox {
  Box box;
  Shape global;  // the shape of the whole value
};

// What both hold of one tensor; nullopt when that is nothing. The boxes have equally many dims.
std::optional<Box> intersection(const Box& a, const Box& b);

// A box by its place in a container of it.
Box relative(const Box& box, const Box& container);

// Whether the boxes hold each element of a tensor of this shape once.
bool covers_once(std::span<const Box> boxes, const Shape& shape);

// The part of a global value that a box is; the same memory.
TensorView view_of(const TensorView& global, const Box& box);

}  // namespace tessera::checkpoint
