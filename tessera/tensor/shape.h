// Shape: the sizes of a tensor's dims, outermost first; at most kMaxNdim of them; a scalar has none. Sizes are >= 0.
// Held in place: making and copying one allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

inline constexpr int kMaxNdim = 8;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) : Shape(std::span<const int64_t>(sizes.begin(), sizes.size())) {}
  // Throws InvalidArgument for more than kMaxNdim dims.
  explicit Shape(std::span<const int64_t> sizes);
  explicit Shape(const std::vector<int64_t>& sizes) : Shape(std::span<const int64_t>(sizes)) {}

  int ndim() const { return ndim_; }
  int64_t operator[](int dim) const { return sizes_[static_cast<size_t>(dim)]; }
  int64_t& operator[](int dim) { return sizes_[static_cast<size_t>(dim)]; }
  int64_t back() const { return sizes_[static_cast<size_t>(ndim_ - 1)]; }
  // 1 for a scalar. Throws InvalidArgument when the product does not fit int64.
  int64_t num_elements() const;
  void push_back(int64_t size);

  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + ndim_; }
  std::vector<int64_t> to_vector() const { return {begin(), end()}; }
  std::string to_string() const;  // "[2,3]"
  bool operator==(const Shape& other) const;

 private:
  int ndim_ = 0;
  std::array<int64_t, kMaxNdim> sizes_{};
};

// Distance in elements between neighbours along each dim. Same container as a shape, other meaning.
using Strides = Shape;

// Returns the row-major strides of a dense tensor.
Strides dense_strides(const Shape& shape);
// Strides of a dense tensor whose dim 1 varies fastest in memory: NHWC for a logical NCHW; the row-major ones below 3
// dims.
Strides channels_last_strides(const Shape& shape);
bool is_dense(const Shape& shape, const Strides& strides);
bool is_channels_last(const Shape& shape, const Strides& strides);

// Broadcasts two shapes as NumPy does. Throws InvalidArgument naming both when they do not fit.
Shape broadcast_shapes(const Shape& a, const Shape& b);
// -1 counts from the end. Throws InvalidArgument naming `what` when outside [-ndim, ndim).
int normalize_axis(int64_t axis, int ndim, std::string_view what);

}  // namespace tessera

#include <fmt/format.h>
template <>
struct fmt::formatter<tessera::Shape> : fmt::formatter<std::string> {
  auto format(const tessera::Shape& shape, fmt::format_context& context) const {
    return fmt::formatter<std::string>::format(shape.to_string(), context);
  }
};
