#include "tessera/mesh/box.h"

#include <algorithm>

namespace tessera::mesh {

Box empty_box(int ndim) { return Box(static_cast<size_t>(ndim)); }

Shape shape_of(const Box& box) {
  Shape shape;
  for (const Range& range : box) shape.push_back(range.size);
  return shape;
}

int64_t num_elements(std::span<const Range> box) {
  int64_t count = 1;
  for (const Range& range : box) count *= range.size;
  return count;
}

Range intersection(const Range& a, const Range& b) {
  const int64_t begin = std::max(a.offset, b.offset);
  return {begin, std::max<int64_t>(0, std::min(a.offset + a.size, b.offset + b.size) - begin)};
}

bool meet(const Box& a, const Box& b) {
  for (size_t dim = 0; dim < a.size(); ++dim) {
    if (intersection(a[dim], b[dim]).size == 0) return false;
  }
  return true;
}

Box intersection(const Box& a, const Box& b) {
  Box both;
  both.reserve(a.size());
  for (size_t dim = 0; dim < a.size(); ++dim) {
    both.push_back(intersection(a[dim], b[dim]));
    if (both.back().size == 0) return empty_box(static_cast<int>(a.size()));
  }
  return both;
}

Box relative_to(const Box& box, const Box& origin) {
  if (num_elements(box) == 0) return empty_box(static_cast<int>(box.size()));
  Box result = box;
  for (size_t dim = 0; dim < box.size(); ++dim) result[dim].offset -= origin[dim].offset;
  return result;
}

}  // namespace tessera::mesh
