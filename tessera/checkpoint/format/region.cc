#include "tessera/checkpoint/format/region.h"

#include <algorithm>
#include <vector>

#include "tessera/base/error.h"

namespace tessera::checkpoint {

Region Region::whole(const Shape& shape) {
  return {Shape(std::vector<int64_t>(static_cast<size_t>(shape.ndim()), 0)), shape};
}

std::string Region::to_string() const {
  std::string text = "[";
  for (int dim = 0; dim < ndim(); ++dim) {
    text += fmt::format("{}{}:{}", dim > 0 ? "," : "", offset[dim], offset[dim] + shape[dim]);
  }
  return text + "]";
}

std::optional<Region> intersection(const Region& a, const Region& b) {
  check_equal(a.ndim(), b.ndim(), "dims of two regions of one tensor");
  Region common = a;
  for (int dim = 0; dim < a.ndim(); ++dim) {
    const int64_t begin = std::max(a.offset[dim], b.offset[dim]);
    const int64_t end = std::min(a.offset[dim] + a.shape[dim], b.offset[dim] + b.shape[dim]);
    if (begin >= end) return std::nullopt;
    common.offset[dim] = begin;
    common.shape[dim] = end - begin;
  }
  return common;
}

Region relative(const Region& region, const Region& container) {
  Region result = region;
  for (int dim = 0; dim < region.ndim(); ++dim) result.offset[dim] -= container.offset[dim];
  return result;
}

bool covers_once(std::span<const Region> regions, const Shape& shape) {
  int64_t elements = 0;
  for (size_t i = 0; i < regions.size(); ++i) {
    elements += regions[i].shape.num_elements();
    for (size_t j = 0; j < i; ++j) {
      if (intersection(regions[i], regions[j])) return false;
    }
  }
  return elements == shape.num_elements();
}

TensorView view_of(const TensorView& global, const Region& region) {
  TensorView view = global;
  int64_t offset = 0;
  for (int dim = 0; dim < region.ndim(); ++dim) {
    offset += region.offset[dim] * global.strides[dim];
    view.shape[dim] = region.shape[dim];
  }
  view.data = static_cast<std::byte*>(view.data) + offset * static_cast<int64_t>(size_bytes(view.dtype));
  return view;
}

}  // namespace tessera::checkpoint
