#include "tessera/checkpoint/format/box.h"

#include <algorithm>
#include <vector>

#include "tessera/base/error.h"

namespace tessera::checkpoint {

Box Box::whole(const Shape& shape) {
  return {Shape(std::vector<int64_t>(static_cast<size_t>(shape.ndim()), 0)), shape};
}

std::string Box::to_string() const {
  std::string text = "[";
  for (int dim = 0; dim < ndim(); ++dim) {
    text += fmt::format("{}{}:{}", dim > 0 ? "," : "", offset[dim], offset[dim] + shape[dim]);
  }
  return text + "]";
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  check_equal(a.ndim(), b.ndim(), "dims of two boxes of one tensor");
  Box common = a;
  for (int dim = 0; dim < a.ndim(); ++dim) {
    const int64_t begin = std::max(a.offset[dim], b.offset[dim]);
    const int64_t end = std::min(a.offset[dim] + a.shape[dim], b.offset[dim] + b.shape[dim]);
    if (begin >= end) return std::nullopt;
    common.offset[dim] = begin;
    common.shape[dim] = end - begin;
  }
  return common;
}

Box relative(const Box& box, const Box& container) {
  Box result = box;
  for (int dim = 0; dim < box.ndim(); ++dim) result.offset[dim] -= container.offset[dim];
  return result;
}

bool covers_once(std::span<const Box> boxes, const Shape& shape) {
  int64_t elements = 0;
  for (size_t i = 0; i < boxes.size(); ++i) {
    elements += boxes[i].shape.num_elements();
    for (size_t j = 0; j < i; ++j) {
      if (intersection(boxes[i], boxes[j])) return false;
    }
  }
  return elements == shape.num_elements();
}

TensorView view_of(const TensorView& global, const Box& box) {
  TensorView view = global;
  int64_t offset = 0;
  for (int dim = 0; dim < box.ndim(); ++dim) {
    offset += box.offset[dim] * global.strides[dim];
    view.shape[dim] = box.shape[dim];
  }
  view.data = static_cast<std::byte*>(view.data) + offset * static_cast<int64_t>(size_bytes(view.dtype));
  return view;
}

}  // namespace tessera::checkpoint
