#include "tessera/kernels/cpu/images/winograd_tiles.h"

#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tessera/kernels/cpu/images/winograd_tiles.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which sets the target that it compiles for.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, kWinogradChannels>;
using DI = hn::RebindToSigned<D>;
using V = hn::Vec<D>;

constexpr int64_t kTaps = 9;

struct Tile {
  const float* image = nullptr;
  int64_t y = 0, x = 0;  // of its first pixel; may be negative
};

HWY_INLINE Tile tile_at(const WinogradTiles& tiles, const float* images, int64_t index) {
  const int64_t within = index % tiles.per_image;
  return {.image = images + index / tiles.per_image * tiles.image[0] * tiles.image[1] * tiles.channels,
          .y = tiles.origin[0] + within / tiles.per_line * 2,
          .x = tiles.origin[1] + within % tiles.per_line * 2};
}

// The offset of a pixel in its image, or -1 outside.
HWY_INLINE int64_t pixel_offset(const WinogradTiles& tiles, int64_t y, int64_t x) {
  const bool inside = y >= 0 && y < tiles.image[0] && x >= 0 && x < tiles.image[1];
  return inside ? (y * tiles.image[1] + x) * tiles.channels : -1;
}

void seen(const WinogradTiles& tiles, const float* images, const WinogradRun& run) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t index = run.first; index < run.last; ++index) {
    const Tile tile = tile_at(tiles, images, index);
    int64_t offsets[4][4];
    bool whole = true;
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) {
        offsets[i][j] = pixel_offset(tiles, tile.y + i, tile.x + j);
        whole = whole && offsets[i][j] >= 0;
      }
    }
    float* const out = run.planes + (index - run.first) * tiles.channels;
    const auto transform = [&](const auto& load) HWY_ATTR {
      for (int64_t c = 0; c < tiles.channels; c += lanes) {
        V half[4][4];  // B^T d
        for (int j = 0; j < 4; ++j) {
          const V d0 = load(0, j, c);
          const V d1 = load(1, j, c);
          const V d2 = load(2, j, c);
          const V d3 = load(3, j, c);
          half[0][j] = hn::Sub(d0, d2);
          half[1][j] = hn::Add(d1, d2);
          half[2][j] = hn::Sub(d2, d1);
          half[3][j] = hn::Sub(d1, d3);
        }
        float* to = out + c;
        for (int i = 0; i < 4; ++i, to += 4 * run.stride) {
          hn::StoreU(hn::Sub(half[i][0], half[i][2]), d, to);
          hn::StoreU(hn::Add(half[i][1], half[i][2]), d, to + run.stride);
          hn::StoreU(hn::Sub(half[i][2], half[i][1]), d, to + 2 * run.stride);
          hn::StoreU(hn::Sub(half[i][1], half[i][3]), d, to + 3 * run.stride);
        }
      }
    };
    if (whole) {
      transform([&](int i, int j, int64_t c) HWY_ATTR { return hn::LoadU(d, tile.image + offsets[i][j] + c); });
    } else {
      transform([&](int i, int j, int64_t c) HWY_ATTR {
        return offsets[i][j] >= 0 ? hn::LoadU(d, tile.image + offsets[i][j] + c) : hn::Zero(d);
      });
    }
  }
}

void result(const WinogradTiles& tiles, const WinogradRun& run, float* images) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t index = run.first; index < run.last; ++index) {
    const Tile tile = tile_at(tiles, images, index);
    float* const image = images + (tile.image - images);
    const float* const from = run.planes + (index - run.first) * tiles.channels;
    int64_t offsets[2][2];
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) offsets[i][j] = pixel_offset(tiles, tile.y + i, tile.x + j);
    }
    for (int64_t c = 0; c < tiles.channels; c += lanes) {
      V half[2][4];  // A^T m
      for (int j = 0; j < 4; ++j) {
        const float* column = from + j * run.stride + c;
        const V m0 = hn::LoadU(d, column);
        const V m1 = hn::LoadU(d, column + 4 * run.stride);
        const V m2 = hn::LoadU(d, column + 8 * run.stride);
        const V m3 = hn::LoadU(d, column + 12 * run.stride);
        half[0][j] = hn::Add(m0, hn::Add(m1, m2));
        half[1][j] = hn::Sub(hn::Sub(m1, m2), m3);
      }
      for (int i = 0; i < 2; ++i) {
        const V y0 = hn::Add(half[i][0], hn::Add(half[i][1], half[i][2]));
        const V y1 = hn::Sub(hn::Sub(half[i][1], half[i][2]), half[i][3]);
        if (offsets[i][0] >= 0) hn::StoreU(y0, d, image + offsets[i][0] + c);
        if (offsets[i][1] >= 0) hn::StoreU(y1, d, image + offsets[i][1] + c);
      }
    }
  }
}

void result_gradient(const WinogradTiles& tiles, const float* images, const WinogradRun& run) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t index = run.first; index < run.last; ++index) {
    const Tile tile = tile_at(tiles, images, index);
    float* const out = run.planes + (index - run.first) * tiles.channels;
    int64_t offsets[2][2];
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) offsets[i][j] = pixel_offset(tiles, tile.y + i, tile.x + j);
    }
    for (int64_t c = 0; c < tiles.channels; c += lanes) {
      V half[4][2];  // A y
      for (int j = 0; j < 2; ++j) {
        const V y0 = offsets[0][j] >= 0 ? hn::LoadU(d, tile.image + offsets[0][j] + c) : hn::Zero(d);
        const V y1 = offsets[1][j] >= 0 ? hn::LoadU(d, tile.image + offsets[1][j] + c) : hn::Zero(d);
        half[0][j] = y0;
        half[1][j] = hn::Add(y0, y1);
        half[2][j] = hn::Sub(y0, y1);
        half[3][j] = hn::Neg(y1);
      }
      float* to = out + c;
      for (int i = 0; i < 4; ++i, to += 4 * run.stride) {
        hn::StoreU(half[i][0], d, to);
        hn::StoreU(hn::Add(half[i][0], half[i][1]), d, to + run.stride);
        hn::StoreU(hn::Sub(half[i][0], half[i][1]), d, to + 2 * run.stride);
        hn::StoreU(hn::Neg(half[i][1]), d, to + 3 * run.stride);
      }
    }
  }
}

void weight(const WinogradWeight& sizes, const float* kernels, bool turned, int64_t first, int64_t last,
            float* planes) {
  const D d;
  const DI di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto nine = hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<int32_t>(kTaps)));
  const V half_one = hn::Set(d, 0.5F);
  for (int64_t co = first; co < last; ++co) {
    for (int64_t ci = 0; ci < sizes.ci; ci += lanes) {
      const float* const from = kernels + (co * sizes.ci + ci) * kTaps;
      const auto tap = [&](int i, int j) HWY_ATTR {
        return hn::GatherIndex(d, from + (turned ? kTaps - 1 - (3 * i + j) : 3 * i + j), nine);
      };
      V rows[4][3];  // G g
      for (int j = 0; j < 3; ++j) {
        const V g0 = tap(0, j);
        const V g1 = tap(1, j);
        const V g2 = tap(2, j);
        const V outer = hn::Add(g0, g2);
        rows[0][j] = g0;
        rows[1][j] = hn::Mul(half_one, hn::Add(outer, g1));
        rows[2][j] = hn::Mul(half_one, hn::Sub(outer, g1));
        rows[3][j] = g2;
      }
      float* to = planes + co * sizes.ci + ci;
      for (int i = 0; i < 4; ++i, to += 4 * sizes.stride) {
        const V outer = hn::Add(rows[i][0], rows[i][2]);
        hn::StoreU(rows[i][0], d, to);
        hn::StoreU(hn::Mul(half_one, hn::Add(outer, rows[i][1])), d, to + sizes.stride);
        hn::StoreU(hn::Mul(half_one, hn::Sub(outer, rows[i][1])), d, to + 2 * sizes.stride);
        hn::StoreU(rows[i][2], d, to + 3 * sizes.stride);
      }
    }
  }
}

void weight_gradient(const WinogradWeight& sizes, const float* planes, int64_t first, int64_t last, float* kernels) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V half_one = hn::Set(d, 0.5F);
  HWY_ALIGN float taps[kTaps][kWinogradChannels];
  for (int64_t co = first; co < last; ++co) {
    for (int64_t ci = 0; ci < sizes.ci; ci += lanes) {
      const float* const from = planes + co * sizes.ci + ci;
      V rows[3][4];  // G^T u
      for (int j = 0; j < 4; ++j) {
        const V u0 = hn::LoadU(d, from + j * sizes.stride);
        const V u1 = hn::LoadU(d, from + (4 + j) * sizes.stride);
        const V u2 = hn::LoadU(d, from + (8 + j) * sizes.stride);
        const V u3 = hn::LoadU(d, from + (12 + j) * sizes.stride);
        const V sum = hn::Mul(half_one, hn::Add(u1, u2));
        rows[0][j] = hn::Add(u0, sum);
        rows[1][j] = hn::Mul(half_one, hn::Sub(u1, u2));
        rows[2][j] = hn::Add(u3, sum);
      }
      for (int i = 0; i < 3; ++i) {
        const V sum = hn::Mul(half_one, hn::Add(rows[i][1], rows[i][2]));
        hn::Store(hn::Add(rows[i][0], sum), d, taps[3 * i]);
        hn::Store(hn::Mul(half_one, hn::Sub(rows[i][1], rows[i][2])), d, taps[3 * i + 1]);
        hn::Store(hn::Add(rows[i][3], sum), d, taps[3 * i + 2]);
      }
      float* to = kernels + (co * sizes.ci + ci) * kTaps;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        for (int64_t tap = 0; tap < kTaps; ++tap) *to++ = taps[tap][lane];
      }
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {

HWY_EXPORT(seen);
HWY_EXPORT(result);
HWY_EXPORT(result_gradient);
HWY_EXPORT(weight);
HWY_EXPORT(weight_gradient);

void winograd_seen(const WinogradTiles& tiles, const float* images, const WinogradRun& run) {
  HWY_DYNAMIC_DISPATCH(seen)(tiles, images, run);
}
void winograd_result(const WinogradTiles& tiles, const WinogradRun& run, float* images) {
  HWY_DYNAMIC_DISPATCH(result)(tiles, run, images);
}
void winograd_result_gradient(const WinogradTiles& tiles, const float* images, const WinogradRun& run) {
  HWY_DYNAMIC_DISPATCH(result_gradient)(tiles, images, run);
}
void winograd_weight(const WinogradWeight& sizes, const float* kernels, bool turned, int64_t first, int64_t last,
                     float* planes) {
  HWY_DYNAMIC_DISPATCH(weight)(sizes, kernels, turned, first, last, planes);
}
void winograd_weight_gradient(const WinogradWeight& sizes, const float* planes, int64_t first, int64_t last,
                              float* kernels) {
  HWY_DYNAMIC_DISPATCH(weight_gradient)(sizes, planes, first, last, kernels);
}

}  // namespace tessera::kernels::cpu
#endif
