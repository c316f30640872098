// The inner loops of the image transforms, on plain memory, for the widest vectors of the CPU at hand. Every operation
// is rounded by itself (no fused multiply-add), so that results are bit-equal on every CPU and whether transforms run
// one by one or in one pass.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::data {

// out[i] = (in[i] * scale + shift - mean[i]) * inverse_std[i]: rescale and normalize; mean and inverse_std are spelled
// out for a whole row.
struct Finish {
  float scale = 1;
  float shift = 0;
  const float* mean = nullptr;
  const float* inverse_std = nullptr;
};
void finish_u8(const uint8_t* in, int64_t n, const Finish& finish, float* out);
void finish_f32(const float* in, int64_t n, const Finish& finish, float* out);

// Where an output row or column of a bilinear resize comes from: first + weight * (second - first).
struct Tap {
  int32_t first = 0;
  int32_t second = 0;
  float weight = 0;
};
// The taps of `to` points over `from` points. Centres are at half integers; both are >= 1.
std::vector<Tap> make_taps(int64_t from, int64_t to);

void to_float(const uint8_t* in, int64_t n, float* out);
// Pixels of 3 channels: out[x] blends in[taps[x].first] and in[taps[x].second]. `in` and `out` must have one element of
// room behind their last pixel.
void resample_row3(const float* in, const Tap* taps, int64_t width, float* out);
// Blends likewise for any number of channels, without that room.
void resample_row(const float* in, const Tap* taps, int64_t width, int64_t channels, float* out);
// out = a + weight * (b - a); the u8 form rounds to nearest even; the last rounds likewise and goes on to finish.
void blend_f32(const float* a, const float* b, float weight, int64_t n, float* out);
void blend_u8(const float* a, const float* b, float weight, int64_t n, uint8_t* out);
void blend_finish(const float* a, const float* b, float weight, int64_t n, const Finish& finish, float* out);

// These two take n pixels r g b r g b ... to three planes, and back.
void deinterleave3(const float* in, int64_t n, float* plane0, float* plane1, float* plane2);
void interleave3(const uint8_t* plane0, const uint8_t* plane1, const uint8_t* plane2, int64_t n, uint8_t* out);

// A window of an image [height, width, pixels of pixel_bytes], whose first row and column may lie outside; outside is
// zero. Mirrored when `flip`.
struct ImageWindow {
  int64_t top = 0, left = 0, height = 0, width = 0;
  bool flip = false;
};
void cut_window(const uint8_t* image, int64_t height, int64_t width, int64_t pixel_bytes, const ImageWindow& window,
                uint8_t* out);

}  // namespace tessera::data
