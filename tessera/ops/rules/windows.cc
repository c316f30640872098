#include "tessera/ops/rules/windows.h"

#include <algorithm>

namespace tessera::ops {
namespace {

// [begin, end) as far as it lies in [0, size).
int64_t end_of(const SlidingWindow& window, size_t d, const mesh::Range& results) {
  return window.begin(d, results.offset + results.size - 1) + window.reach(d);
}

}  // namespace

mesh::Range clamped(int64_t begin, int64_t end, int64_t size) {
  const int64_t first = std::clamp<int64_t>(begin, 0, size);
  return {first, std::max<int64_t>(std::clamp<int64_t>(end, 0, size) - first, 0)};
}

mesh::Range SlidingWindow::pixels_of(size_t d, const mesh::Range& results, int64_t image_size) const {
  if (results.size == 0) return {0, 0};
  return clamped(begin(d, results.offset), end_of(*this, d, results), image_size);
}

mesh::Range SlidingWindow::results_of(size_t d, const mesh::Range& pixels, int64_t num_results) const {
  if (pixels.size == 0) return {0, 0};
  const int64_t step = strides[d];
  const int64_t top = padding[2 * d];
  const int64_t first = std::max<int64_t>(pixels.offset + top - reach(d) + step, 0) / step;
  return clamped(first, (pixels.offset + pixels.size - 1 + top) / step + 1, num_results);
}

bool splits_pixels(const LocalizeContext& context) { return context.is_split("h") || context.is_split("w"); }

std::vector<std::string> halo_factors(const LocalizeContext& context, const SlidingWindow& window) {
  std::vector<std::string> factors;
  for (size_t d = 0; d < 2; ++d) {
    const char* factor = d == 0 ? "h" : "w";
    const bool is_pointwise =
        window.taps[d] == 1 && window.strides[d] == 1 && window.padding[2 * d] == 0 && window.padding[2 * d + 1] == 0;
    if (context.is_split(factor) && !is_pointwise) factors.emplace_back(factor);
  }
  return factors;
}

Box over_pixels_of(const SlidingWindow& window, const Box& results, const Shape& image, Box box) {
  for (size_t d = 0; d < 2; ++d) box[d + 2] = window.pixels_of(d, results[d + 2], image[static_cast<int>(d) + 2]);
  return box;
}

Box over_results_of(const SlidingWindow& window, const Box& image, const Shape& results, Box box) {
  for (size_t d = 0; d < 2; ++d) box[d + 2] = window.results_of(d, image[d + 2], results[static_cast<int>(d) + 2]);
  return box;
}

Ints padding_around(const SlidingWindow& window, const Box& results, const Shape& image) {
  Ints padding;
  for (size_t d = 0; d < 2; ++d) {
    const auto held = window.pixels_of(d, results[d + 2], image[static_cast<int>(d) + 2]);
    padding.push_back(std::max<int64_t>(held.offset - window.begin(d, results[d + 2].offset), 0));
    padding.push_back(std::max<int64_t>(end_of(window, d, results[d + 2]) - held.offset - held.size, 0));
  }
  return padding;
}

Value place_pixels(Value pixels, const Box& held, const Box& wanted) {
  for (const size_t dim : {size_t{2}, size_t{3}}) {
    const int64_t begin = wanted[dim].offset - held[dim].offset;  // counted from the first pixel that is held
    const int64_t first = std::clamp<int64_t>(begin, 0, held[dim].size);
    const int64_t last = std::clamp<int64_t>(begin + wanted[dim].size, first, held[dim].size);
    const int64_t zeros_around = wanted[dim].size - (last - first);
    const int64_t before = std::clamp<int64_t>(first - begin, 0, zeros_around);
    const int at = static_cast<int>(dim);
    pixels = pad_along(slice_along(pixels, at, first, last), at, before, zeros_around - before);
  }
  return pixels;
}

}  // namespace tessera::ops
