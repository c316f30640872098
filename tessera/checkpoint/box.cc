#include "tessera/checkpoint/box.h"

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

}  // namespace tessera::checkpoint
