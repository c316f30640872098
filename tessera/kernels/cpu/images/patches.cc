#include "tessera/kernels/cpu/images/patches.h"

#include <algorithm>
#include <cstring>

namespace tessera::kernels::cpu {

Patches::Patches(const PatchGeometry& geometry, int64_t element_bytes)
    : geometry_(geometry), pixel_bytes_(static_cast<size_t>(geometry.channels * element_bytes)) {
  for (int dim = 0; dim < 2; ++dim) {
    const auto d = static_cast<size_t>(dim);
    const auto sees_image = [&](int64_t tap) {
      for (int64_t result = 0; result < geometry.result[d]; ++result) {
        const int64_t at = under(dim, result, tap);
        if (at >= 0 && at < geometry.image[d]) return true;
      }
      return false;
    };
    first_[d] = geometry.kernel[d];
    for (int64_t tap = 0; tap < geometry.kernel[d]; ++tap) {
      if (!sees_image(tap)) continue;
      first_[d] = std::min(first_[d], tap);
      last_[d] = tap + 1;
    }
  }
  for (int64_t y = first_[0]; y < last_[0]; ++y) {
    for (int64_t x = first_[1]; x < last_[1]; ++x) taps_.push_back(y * geometry.kernel[1] + x);
  }
}

bool Patches::are_the_images() const {
  if (taps_.size() != 1 || geometry_.image != geometry_.result) return false;
  for (int dim = 0; dim < 2; ++dim) {
    const auto d = static_cast<size_t>(dim);
    const bool same_stride = geometry_.stride[d] == 1 || geometry_.result[d] == 1;
    if (!same_stride || under(dim, 0, first_[d]) != 0) return false;
  }
  return true;
}

void Patches::gather_pixel(const std::byte* image, int64_t y, int64_t x, std::byte* row) const {
  const int64_t width = geometry_.image[1];
  const int64_t taps = last_[1] - first_[1];
  for (int64_t tap_y = first_[0]; tap_y < last_[0]; ++tap_y) {
    const int64_t at_y = under(0, y, tap_y);
    const auto fill = [&](int64_t at_x, int64_t count, bool inside) {
      const size_t bytes = static_cast<size_t>(count) * pixel_bytes_;
      if (inside) {
        std::memcpy(row, image + static_cast<size_t>(at_y * width + at_x) * pixel_bytes_, bytes);
      } else {
        std::memset(row, 0, bytes);
      }
      row += bytes;
    };
    const int64_t at_x = under(1, x, first_[1]);
    if (at_y < 0 || at_y >= geometry_.image[0]) {
      fill(0, taps, false);
    } else if (geometry_.dilation[1] == 1) {
      // Neighbouring taps see neighbouring pixels: one piece of memory.
      const int64_t before = std::clamp<int64_t>(-at_x, 0, taps);
      const int64_t after = std::clamp<int64_t>(at_x + taps - width, 0, taps - before);
      if (before > 0) fill(0, before, false);
      if (taps > before + after) fill(at_x + before, taps - before - after, true);
      if (after > 0) fill(0, after, false);
    } else {
      for (int64_t tap_x = first_[1]; tap_x < last_[1]; ++tap_x) {
        const int64_t at = under(1, x, tap_x);
        fill(at, 1, at >= 0 && at < width);
      }
    }
  }
}

void Patches::gather(const std::byte* images, int64_t first_line, int64_t last_line, std::byte* rows) const {
  const size_t image_bytes = static_cast<size_t>(geometry_.image[0] * geometry_.image[1]) * pixel_bytes_;
  const size_t row_bytes = taps_.size() * pixel_bytes_;
  for (int64_t line = first_line; line < last_line; ++line) {
    const std::byte* image = images + static_cast<size_t>(line / geometry_.result[0]) * image_bytes;
    for (int64_t x = 0; x < geometry_.result[1]; ++x, rows += row_bytes) {
      gather_pixel(image, line % geometry_.result[0], x, rows);
    }
  }
}

void Patches::scatter(const std::byte* rows, int64_t first_line, int64_t last_line, std::byte* images) const {
  const size_t image_bytes = static_cast<size_t>(geometry_.image[0] * geometry_.image[1]) * pixel_bytes_;
  for (int64_t line = first_line; line < last_line; ++line) {
    std::byte* image = images + static_cast<size_t>(line / geometry_.result[0]) * image_bytes;
    const int64_t y = under(0, line % geometry_.result[0], first_[0]);
    for (int64_t result = 0; result < geometry_.result[1]; ++result, rows += pixel_bytes_) {
      const int64_t x = under(1, result, first_[1]);
      if (y < 0 || y >= geometry_.image[0] || x < 0 || x >= geometry_.image[1]) continue;
      std::memcpy(image + static_cast<size_t>(y * geometry_.image[1] + x) * pixel_bytes_, rows, pixel_bytes_);
    }
  }
}

}  // namespace tessera::kernels::cpu
