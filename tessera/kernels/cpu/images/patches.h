// Patches: what the taps of a convolution see of channels-last images, as the rows of a matrix. A row belongs to one
// pixel that the convolution makes and holds, tap after tap, the channels of the pixel under the tap, zeros where that
// is padding. Taps that see nothing but padding wherever they stand are left out: of 3x3 taps on an image of one pixel
// one remains.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::kernels::cpu {

struct PatchGeometry {
  using PerDim = std::array<int64_t, 2>;  // height, width
  int64_t channels = 0;
  PerDim image{}, result{};  // pixels
  PerDim kernel{}, stride{1, 1}, dilation{1, 1};
  PerDim padding{};  // before; may be negative
};

class Patches {
 public:
  // `element_bytes` is the size of a channel's element.
  Patches(const PatchGeometry& geometry, int64_t element_bytes);

  // The taps that are left, as indices into the row-major kernel, in the order in which rows hold them.
  const std::vector<int64_t>& taps() const { return taps_; }
  int64_t row_elements() const { return static_cast<int64_t>(taps_.size()) * geometry_.channels; }
  // The images themselves are the rows: nothing is to be gathered.
  bool are_the_images() const;

  // A line is one row of result pixels of one image; lines are counted through all images of a batch.
  void gather(const std::byte* images, int64_t first_line, int64_t last_line, std::byte* rows) const;
  // The reverse, for one tap: puts the rows under it, and leaves the pixels that no row belongs to as they are.
  void scatter(const std::byte* rows, int64_t first_line, int64_t last_line, std::byte* images) const;

 private:
  // The image's line and column under a tap, which may lie outside.
  int64_t under(int dim, int64_t result, int64_t tap) const {
    const auto d = static_cast<size_t>(dim);
    return result * geometry_.stride[d] + tap * geometry_.dilation[d] - geometry_.padding[d];
  }
  void gather_pixel(const std::byte* image, int64_t y, int64_t x, std::byte* row) const;

  PatchGeometry geometry_;
  size_t pixel_bytes_;
  std::array<int64_t, 2> first_{}, last_{};  // the range of taps that are left
  std::vector<int64_t> taps_;
};

}  // namespace tessera::kernels::cpu
