// Windows that slide over images [n,c,h,w] whose height or width is split, as convolutions and pooling have them: each
// rank fetches the rows and columns of its neighbours that its windows reach into (its halo), and computes with the
// padding that is left at the image's own edges. The rules call the two dims the factors "h" and "w", of the image as
// of the results. Internal to ops/.
#pragma once

#include <string>
#include <vector>

#include "tessera/ops/rules/localize.h"

namespace tessera::ops {

// What of [begin, end) lies in [0, size); empty where nothing does.
mesh::Range clamped(int64_t begin, int64_t end, int64_t size);

// All of height and width; padding: top, bottom, left, right.
struct SlidingWindow {
  Ints taps;
  Ints strides;
  Ints padding;
  Ints dilation = {1, 1};

  // Along spatial dim d (0 height, 1 width): the pixels between which all taps lie, and where those of a result begin,
  // counted from the image's first pixel; negative in the padding.
  int64_t reach(size_t d) const { return dilation[d] * (taps[d] - 1) + 1; }
  int64_t begin(size_t d, int64_t result) const { return result * strides[d] - padding[2 * d]; }

  // The pixels of the image that the windows of these results reach over.
  mesh::Range pixels_of(size_t d, const mesh::Range& results, int64_t image_size) const;
  // The results, of so many, whose windows reach over these pixels.
  mesh::Range results_of(size_t d, const mesh::Range& pixels, int64_t num_results) const;
};

bool splits_pixels(const LocalizeContext& context);
// The split spatial dims whose parts need pixels of others: not those whose windows are the pixels themselves.
std::vector<std::string> halo_factors(const LocalizeContext& context, const SlidingWindow& window);

// `box` of an image [n,c,h,w] with the height and width that the windows of `results` reach over.
Box over_pixels_of(const SlidingWindow& window, const Box& results, const Shape& image, Box box);
// `box` of results with the height and width whose windows reach over the pixels of `image`.
Box over_results_of(const SlidingWindow& window, const Box& image, const Shape& results, Box box);
// The padding with which the windows of `results` fit the pixels that over_pixels_of gives them.
Ints padding_around(const SlidingWindow& window, const Box& results, const Shape& image);

// An image that covers `held` of the whole one as the image that covers `wanted`; zeros where it held nothing.
Value place_pixels(Value pixels, const Box& held, const Box& wanted);

inline bool has_no_pixels(const Box& box) { return box[2].size == 0 || box[3].size == 0; }

}  // namespace tessera::ops
