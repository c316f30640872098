// What writers of device text share: where elements lie, numbers as text, how many blocks some work is given.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/kernels/cuda/core/gpu.h"
#include "tessera/tensor/tensor.h"

namespace tessera::cuda {

// A value's strides over some shape, and the name of the variable that is to hold an offset by them.
struct NamedStrides {
  std::string name;
  Strides strides;
};

// "int", or "i64" where an offset or the number of elements would not fit.
std::string index_type(const Shape& shape, const std::vector<NamedStrides>& views);

// Statements that declare, for each view, a variable of its name: the offset of element number `index` of the shape,
// row-major. `index` is an expression; it is evaluated once.
std::string offsets_text(const Shape& shape, const std::vector<NamedStrides>& views, const std::string& index);

// A shape and how views lie over it.
struct ViewWalk {
  Shape shape;
  std::vector<NamedStrides> views;
};
// The same elements in the order in which the first view has them in memory, with as few dims as that takes. Whoever
// does the same to each element may walk so.
ViewWalk in_order_of_first(const Shape& shape, std::vector<NamedStrides> views);
// The walk over runs of `pack` elements, which lie one after another in each view, or are one and the same; nullopt
// where they do not.
std::optional<ViewWalk> packed(const ViewWalk& walk, int64_t pack);

// "for (...) {", a loop that deals the numbers [0, count) to all threads; `index` is the variable. The body and "}"
// follow.
std::string loop_text(const std::string& index_type, const std::string& index, int64_t count);

// Blocks of `threads` that are enough for `count` pieces of work, one for a thread, and not many more than the device
// has room for: threads do several pieces then.
int64_t blocks_for(const Gpu& gpu, int64_t count, int threads = 256);

// The strides of a view as NumPy stretches it to `shape`: 0 along repeated dims.
Strides stretched(const TensorView& view, const Shape& shape);

// A literal of that type that reads back as the same number; infinities and NaN, too.
std::string literal(double value, DType dtype);
// "true" or "false".
inline std::string literal(bool value) { return value ? "true" : "false"; }

// The dtype that elements are computed in: f32 for half types.
DType computed_in(DType dtype);

}  // namespace tessera::cuda
