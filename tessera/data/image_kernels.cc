#include "tessera/data/image_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tessera/data/image_kernels.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::data {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Ints = hn::Rebind<int32_t, Floats>;
using Bytes = hn::Rebind<uint8_t, Floats>;

HWY_INLINE hn::Vec<Floats> load(const float* in) { return hn::LoadU(Floats(), in); }
HWY_INLINE hn::Vec<Floats> load(const uint8_t* in) {
  return hn::ConvertTo(Floats(), hn::PromoteTo(Ints(), hn::LoadU(Bytes(), in)));
}

HWY_INLINE float finish_one(float value, int64_t i, const Finish& f) {
  return (value * f.scale + f.shift - f.mean[i]) * f.inverse_std[i];
}

HWY_INLINE hn::Vec<Floats> finish_vector(hn::Vec<Floats> value, int64_t i, const Finish& f) {
  const Floats d;
  const auto rescaled = hn::Add(hn::Mul(value, hn::Set(d, f.scale)), hn::Set(d, f.shift));
  return hn::Mul(hn::Sub(rescaled, load(f.mean + i)), load(f.inverse_std + i));
}

template <typename T>
HWY_INLINE void finish(const T* HWY_RESTRICT in, int64_t n, const Finish& f, float* HWY_RESTRICT out) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(finish_vector(load(in + i), i, f), Floats(), out + i);
  for (; i < n; ++i) out[i] = finish_one(static_cast<float>(in[i]), i, f);
}
void finish_u8(const uint8_t* in, int64_t n, const Finish& f, float* out) { finish(in, n, f, out); }
void finish_f32(const float* in, int64_t n, const Finish& f, float* out) { finish(in, n, f, out); }

void to_float(const uint8_t* HWY_RESTRICT in, int64_t n, float* HWY_RESTRICT out) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(load(in + i), Floats(), out + i);
  for (; i < n; ++i) out[i] = static_cast<float>(in[i]);
}

// One pixel is one vector of four lanes whose last is overwritten by the next pixel.
void resample_row3(const float* HWY_RESTRICT in, const Tap* taps, int64_t width, float* HWY_RESTRICT out) {
#if HWY_TARGET == HWY_SCALAR
  resample_row(in, taps, width, 3, out);
#else
  const hn::FixedTag<float, 4> d;
  for (int64_t x = 0; x < width; ++x) {
    const auto a = hn::LoadU(d, in + 3 * static_cast<int64_t>(taps[x].first));
    const auto b = hn::LoadU(d, in + 3 * static_cast<int64_t>(taps[x].second));
    hn::StoreU(hn::Add(a, hn::Mul(hn::Sub(b, a), hn::Set(d, taps[x].weight))), d, out + 3 * x);
  }
#endif
}

HWY_INLINE hn::Vec<Floats> blend(const float* a, const float* b, hn::Vec<Floats> weight) {
  const auto from = load(a);
  return hn::Add(from, hn::Mul(hn::Sub(load(b), from), weight));
}

void blend_f32(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, float weight, int64_t n,
               float* HWY_RESTRICT out) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  const auto w = hn::Set(Floats(), weight);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(blend(a + i, b + i, w), Floats(), out + i);
  for (; i < n; ++i) out[i] = a[i] + (b[i] - a[i]) * weight;
}

void blend_u8(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, float weight, int64_t n,
              uint8_t* HWY_RESTRICT out) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  const auto w = hn::Set(Floats(), weight);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::DemoteTo(Bytes(), hn::NearestInt(blend(a + i, b + i, w))), Bytes(), out + i);
  }
  for (; i < n; ++i) out[i] = static_cast<uint8_t>(std::nearbyint(a[i] + (b[i] - a[i]) * weight));
}

void blend_finish(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, float weight, int64_t n, const Finish& f,
                  float* HWY_RESTRICT out) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  const auto w = hn::Set(Floats(), weight);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto grey = hn::ConvertTo(Floats(), hn::NearestInt(blend(a + i, b + i, w)));
    hn::StoreU(finish_vector(grey, i, f), Floats(), out + i);
  }
  for (; i < n; ++i) out[i] = finish_one(std::nearbyint(a[i] + (b[i] - a[i]) * weight), i, f);
}

void deinterleave3(const float* HWY_RESTRICT in, int64_t n, float* HWY_RESTRICT plane0, float* HWY_RESTRICT plane1,
                   float* HWY_RESTRICT plane2) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::Vec<Floats> v0, v1, v2;
    hn::LoadInterleaved3(d, in + 3 * i, v0, v1, v2);
    hn::StoreU(v0, d, plane0 + i);
    hn::StoreU(v1, d, plane1 + i);
    hn::StoreU(v2, d, plane2 + i);
  }
  for (; i < n; ++i) {
    plane0[i] = in[3 * i];
    plane1[i] = in[3 * i + 1];
    plane2[i] = in[3 * i + 2];
  }
}

void interleave3(const uint8_t* HWY_RESTRICT plane0, const uint8_t* HWY_RESTRICT plane1,
                 const uint8_t* HWY_RESTRICT plane2, int64_t n, uint8_t* HWY_RESTRICT out) {
  const hn::ScalableTag<uint8_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreInterleaved3(hn::LoadU(d, plane0 + i), hn::LoadU(d, plane1 + i), hn::LoadU(d, plane2 + i), d, out + 3 * i);
  }
  for (; i < n; ++i) {
    out[3 * i] = plane0[i];
    out[3 * i + 1] = plane1[i];
    out[3 * i + 2] = plane2[i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::data
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::data {

HWY_EXPORT(finish_u8);
HWY_EXPORT(finish_f32);
HWY_EXPORT(to_float);
HWY_EXPORT(resample_row3);
HWY_EXPORT(blend_f32);
HWY_EXPORT(blend_u8);
HWY_EXPORT(blend_finish);
HWY_EXPORT(deinterleave3);
HWY_EXPORT(interleave3);

void finish_u8(const uint8_t* in, int64_t n, const Finish& f, float* out) {
  HWY_DYNAMIC_DISPATCH(finish_u8)(in, n, f, out);
}
void finish_f32(const float* in, int64_t n, const Finish& f, float* out) {
  HWY_DYNAMIC_DISPATCH(finish_f32)(in, n, f, out);
}
void to_float(const uint8_t* in, int64_t n, float* out) { HWY_DYNAMIC_DISPATCH(to_float)(in, n, out); }
void resample_row3(const float* in, const Tap* taps, int64_t width, float* out) {
  HWY_DYNAMIC_DISPATCH(resample_row3)(in, taps, width, out);
}
void blend_f32(const float* a, const float* b, float weight, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(blend_f32)(a, b, weight, n, out);
}
void blend_u8(const float* a, const float* b, float weight, int64_t n, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(blend_u8)(a, b, weight, n, out);
}
void blend_finish(const float* a, const float* b, float weight, int64_t n, const Finish& f, float* out) {
  HWY_DYNAMIC_DISPATCH(blend_finish)(a, b, weight, n, f, out);
}
void deinterleave3(const float* in, int64_t n, float* plane0, float* plane1, float* plane2) {
  HWY_DYNAMIC_DISPATCH(deinterleave3)(in, n, plane0, plane1, plane2);
}
void interleave3(const uint8_t* plane0, const uint8_t* plane1, const uint8_t* plane2, int64_t n, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(interleave3)(plane0, plane1, plane2, n, out);
}

std::vector<Tap> make_taps(int64_t from, int64_t to) {
  std::vector<Tap> taps(static_cast<size_t>(to));
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  for (int64_t i = 0; i < to; ++i) {
    const double centre = std::max(0.0, (static_cast<double>(i) + 0.5) * scale - 0.5);
    const int64_t first = std::min(static_cast<int64_t>(centre), from - 1);
    taps[static_cast<size_t>(i)] = {static_cast<int32_t>(first), static_cast<int32_t>(std::min(first + 1, from - 1)),
                                    static_cast<float>(centre - static_cast<double>(first))};
  }
  return taps;
}

void resample_row(const float* in, const Tap* taps, int64_t width, int64_t channels, float* out) {
  for (int64_t x = 0; x < width; ++x) {
    const float* a = in + taps[x].first * channels;
    const float* b = in + taps[x].second * channels;
    for (int64_t c = 0; c < channels; ++c) out[x * channels + c] = a[c] + (b[c] - a[c]) * taps[x].weight;
  }
}

void cut_window(const uint8_t* image, int64_t height, int64_t width, int64_t pixel_bytes, const ImageWindow& window,
                uint8_t* out) {
  const int64_t row_bytes = window.width * pixel_bytes;
  // Output columns [begin, end), before mirroring, that lie in the image.
  const int64_t begin = std::clamp<int64_t>(-window.left, 0, window.width);
  const int64_t end = std::clamp<int64_t>(width - window.left, begin, window.width);
  for (int64_t y = 0; y < window.height; ++y, out += row_bytes) {
    const int64_t from = y + window.top;
    if (from < 0 || from >= height || begin == end) {
      std::memset(out, 0, static_cast<size_t>(row_bytes));
      continue;
    }
    const uint8_t* pixels = image + (from * width + window.left + begin) * pixel_bytes;
    const int64_t zeros_left = window.flip ? window.width - end : begin;
    const int64_t zeros_right = window.flip ? begin : window.width - end;
    std::memset(out, 0, static_cast<size_t>(zeros_left * pixel_bytes));
    uint8_t* inside = out + zeros_left * pixel_bytes;
    const int64_t count = end - begin;
    if (!window.flip) {
      std::memcpy(inside, pixels, static_cast<size_t>(count * pixel_bytes));
    } else if (pixel_bytes == 3) {
      const uint8_t* last = pixels + 3 * (count - 1);
      for (int64_t x = 0; x < count; ++x) {
        inside[3 * x] = last[-3 * x];
        inside[3 * x + 1] = last[-3 * x + 1];
        inside[3 * x + 2] = last[-3 * x + 2];
      }
    } else {
      for (int64_t x = 0; x < count; ++x) {
        std::memcpy(inside + x * pixel_bytes, pixels + (count - 1 - x) * pixel_bytes, static_cast<size_t>(pixel_bytes));
      }
    }
    std::memset(inside + count * pixel_bytes, 0, static_cast<size_t>(zeros_right * pixel_bytes));
  }
}

}  // namespace tessera::data
#endif  // HWY_ONCE
