// max_pool2d and avg_pool2d with their gradients, channels-last, f32 or a half type: for every output pixel the pixels
// of its window are gone through with vectors of channels. The gradients gather too (an input pixel asks the windows
// that hold it), so that no two threads write one place and sums have one order.
#include <algorithm>
#include <array>
#include <memory>

#include "tessera/kernels/cpu/registry/families.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tessera/kernels/cpu/images/pooling.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which sets the target that it compiles for.
#include "hwy/highway.h"
#include "tessera/kernels/cpu/rows/vector_math-inl.h"

#ifndef TESSERA_KERNELS_CPU_POOLING_TAPS
#define TESSERA_KERNELS_CPU_POOLING_TAPS
namespace tessera::kernels::cpu {

// At most as many places in a window as an index of u8 tells apart.
inline constexpr size_t kMaxTaps = 255;

// The pixels that one result is made of: for each its channels, its index's channels and its place or weight.
struct Taps {
  int count = 0;
  std::array<const void*, kMaxTaps> data;
  std::array<const uint8_t*, kMaxTaps> index;
  std::array<int, kMaxTaps> place;
  std::array<float, kMaxTaps> weight;
};

// For images of one dtype; half types are compared and added up in f32.
struct PoolFunctions {
  // y = the largest of the taps, index = its place; the first of equals, the first NaN before all.
  void (*max)(const Taps& taps, int64_t channels, void* y, uint8_t* index);
  // dx = the sum of the taps whose index is their place.
  void (*select_sum)(const Taps& taps, int64_t channels, void* dx);
  // y = the sum of weight * tap.
  void (*weighted_sum)(const Taps& taps, int64_t channels, void* y);
};

}  // namespace tessera::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

template <typename T>
const T* tap(const Taps& taps, size_t t) {
  return static_cast<const T*>(taps.data[t]);
}

template <typename T>
void pool_max(const Taps& taps, int64_t channels, void* result, uint8_t* index) {
  T* y = static_cast<T*>(result);
  const DF d;
  const DI di;
  const hn::Rebind<uint8_t, DI> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) {
    VF best = vload(tap<T>(taps, 0) + c);
    VF place = vset(static_cast<float>(taps.place[0]));
    for (size_t t = 1; t < static_cast<size_t>(taps.count); ++t) {
      const VF value = vload(tap<T>(taps, t) + c);
      const auto first_nan = hn::AndNot(hn::IsNaN(best), hn::IsNaN(value));
      const auto better = hn::Or(hn::Gt(value, best), first_nan);
      best = hn::IfThenElse(better, value, best);
      place = hn::IfThenElse(better, vset(static_cast<float>(taps.place[t])), place);
    }
    vstore(best, y + c);
    hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(di, place)), d8, index + c);
  }
  for (; c < channels; ++c) {
    float best = tap<T>(taps, 0)[c];
    int place = taps.place[0];
    for (size_t t = 1; t < static_cast<size_t>(taps.count); ++t) {
      const float value = tap<T>(taps, t)[c];
      if (value > best || (std::isnan(value) && !std::isnan(best))) {
        best = value;
        place = taps.place[t];
      }
    }
    y[c] = best;
    index[c] = static_cast<uint8_t>(place);
  }
}

template <typename T>
void pool_select_sum(const Taps& taps, int64_t channels, void* result) {
  T* dx = static_cast<T*>(result);
  const DF d;
  const DI di;
  const hn::Rebind<uint8_t, DI> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) {
    VF sum = hn::Zero(d);
    for (size_t t = 0; t < static_cast<size_t>(taps.count); ++t) {
      const auto index = hn::PromoteTo(di, hn::LoadU(d8, taps.index[t] + c));
      const auto chosen = hn::RebindMask(d, hn::Eq(index, hn::Set(di, taps.place[t])));
      sum = hn::Add(sum, hn::IfThenElseZero(chosen, vload(tap<T>(taps, t) + c)));
    }
    vstore(sum, dx + c);
  }
  for (; c < channels; ++c) {
    float sum = 0;
    for (size_t t = 0; t < static_cast<size_t>(taps.count); ++t) {
      if (taps.index[t][c] == taps.place[t]) sum += tap<T>(taps, t)[c];
    }
    dx[c] = sum;
  }
}

template <typename T>
void pool_weighted_sum(const Taps& taps, int64_t channels, void* result) {
  T* y = static_cast<T*>(result);
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) {
    VF sum = hn::Zero(d);
    for (size_t t = 0; t < static_cast<size_t>(taps.count); ++t) {
      sum = hn::MulAdd(vload(tap<T>(taps, t) + c), vset(taps.weight[t]), sum);
    }
    vstore(sum, y + c);
  }
  for (; c < channels; ++c) {
    float sum = 0;
    for (size_t t = 0; t < static_cast<size_t>(taps.count); ++t)
      sum += static_cast<float>(tap<T>(taps, t)[c]) * taps.weight[t];
    y[c] = sum;
  }
}

}  // namespace

template <typename T>
const PoolFunctions* functions_of() {
  static const PoolFunctions functions = {pool_max<T>, pool_select_sum<T>, pool_weighted_sum<T>};
  return &functions;
}

// nullptr for dtypes that it does not take.
const PoolFunctions* get_pool_functions(DType dtype) {
  switch (dtype) {
    case DType::kF32: return functions_of<float>();
    case DType::kBF16: return functions_of<BFloat16>();
    case DType::kF16: return functions_of<Float16>();
    default: return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {
namespace {

HWY_EXPORT(get_pool_functions);

struct Pool {
  std::array<int64_t, 2> size, strides, padding;  // padding: top, left
  bool count_include_pad = false;
  bool average = false;
  const PoolFunctions* functions = nullptr;

  int64_t begin(size_t d, int64_t o) const { return o * strides[d] - padding[d]; }
  // The output positions, out of `count`, whose windows hold pixel i: [first, last).
  int64_t first(size_t d, int64_t i) const {
    const int64_t reach = i + padding[d] - size[d] + 1;
    return reach <= 0 ? 0 : (reach + strides[d] - 1) / strides[d];
  }
  int64_t last(size_t d, int64_t i, int64_t count) const { return std::min(count, (i + padding[d]) / strides[d] + 1); }
  // How many of the window's places along d lie in the image.
  int64_t inside(size_t d, int64_t o, int64_t image) const {
    return std::min(begin(d, o) + size[d], image) - std::max<int64_t>(begin(d, o), 0);
  }
  float weight(const Shape& image, int64_t oy, int64_t ox) const {
    if (!average) return 0;
    const int64_t count = count_include_pad ? size[0] * size[1] : inside(0, oy, image[2]) * inside(1, ox, image[3]);
    return 1.0F / static_cast<float>(count);
  }
};

std::byte* pixel(const TensorView& view, int64_t n, int64_t y, int64_t x) {
  const int64_t elements = n * view.strides[0] + y * view.strides[2] + x * view.strides[3];
  return static_cast<std::byte*>(view.data) + elements * static_cast<int64_t>(size_bytes(view.dtype));
}
uint8_t* index_pixel(const TensorView& view, int64_t n, int64_t y, int64_t x) {
  return reinterpret_cast<uint8_t*>(pixel(view, n, y, x));
}

// Calls f(n, y, x) for every pixel of a view, lines of pixels in parallel.
template <typename F>
void for_each_pixel(const KernelArgs& args, const Shape& shape, F&& f) {
  const int64_t grain = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, shape[1] * shape[3]));
  args.parallel_for(shape[0] * shape[2], grain, [&](int64_t begin, int64_t end) {
    Taps taps;
    for (int64_t line = begin; line < end; ++line) {
      for (int64_t x = 0; x < shape[3]; ++x) f(taps, line / shape[2], line % shape[2], x);
    }
  });
}

void run_forward(const Pool& pool, const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& y = args.outputs[0];
  for_each_pixel(args, y.shape, [&](Taps& taps, int64_t n, int64_t oy, int64_t ox) {
    const int64_t top = pool.begin(0, oy);
    const int64_t left = pool.begin(1, ox);
    const float weight = pool.weight(x.shape, oy, ox);
    taps.count = 0;
    for (int64_t ky = std::max<int64_t>(0, -top); ky < std::min(pool.size[0], x.shape[2] - top); ++ky) {
      for (int64_t kx = std::max<int64_t>(0, -left); kx < std::min(pool.size[1], x.shape[3] - left); ++kx) {
        const auto t = static_cast<size_t>(taps.count++);
        taps.data[t] = pixel(x, n, top + ky, left + kx);
        taps.place[t] = static_cast<int>(ky * pool.size[1] + kx);
        taps.weight[t] = weight;
      }
    }
    if (pool.average) {
      pool.functions->weighted_sum(taps, x.shape[1], pixel(y, n, oy, ox));
    } else {
      pool.functions->max(taps, x.shape[1], pixel(y, n, oy, ox), index_pixel(args.outputs[1], n, oy, ox));
    }
  });
}

void run_gradient(const Pool& pool, const KernelArgs& args) {
  const TensorView& dy = args.inputs[0];
  const TensorView& dx = args.outputs[0];
  for_each_pixel(args, dx.shape, [&](Taps& taps, int64_t n, int64_t iy, int64_t ix) {
    taps.count = 0;
    for (int64_t oy = pool.first(0, iy); oy < pool.last(0, iy, dy.shape[2]); ++oy) {
      for (int64_t ox = pool.first(1, ix); ox < pool.last(1, ix, dy.shape[3]); ++ox) {
        const auto t = static_cast<size_t>(taps.count++);
        taps.data[t] = pixel(dy, n, oy, ox);
        if (!pool.average) taps.index[t] = index_pixel(args.inputs[1], n, oy, ox);
        taps.place[t] = static_cast<int>((iy - pool.begin(0, oy)) * pool.size[1] + ix - pool.begin(1, ox));
        taps.weight[t] = pool.weight(dx.shape, oy, ox);
      }
    }
    std::byte* to = pixel(dx, n, iy, ix);
    if (pool.average) {
      pool.functions->weighted_sum(taps, dx.shape[1], to);
    } else {
      pool.functions->select_sum(taps, dx.shape[1], to);
    }
  });
}

std::optional<PreparedKernel> prepare(const KernelRequest& request, bool average, bool gradient) {
  for (const auto& views : {request.inputs, request.outputs}) {
    for (const TensorView& view : views) {
      const bool is_index = !average && &view == &views.back();
      if (view.shape.ndim() != 4 || (view.shape[1] != 1 && view.strides[1] != 1)) return std::nullopt;
      const DType expected = is_index && view.dtype == DType::kU8 ? DType::kU8 : request.inputs[0].dtype;
      if (view.dtype != expected) return std::nullopt;
    }
  }
  const Ints& kernel = request.attributes.get_ints("kernel");
  const Ints& strides = request.attributes.get_ints("strides");
  const Ints& padding = request.attributes.get_ints("padding");
  if (kernel[0] * kernel[1] > static_cast<int64_t>(kMaxTaps)) return std::nullopt;
  // A window that lies in the padding alone has no maximum.
  if (padding[0] >= kernel[0] || padding[2] >= kernel[1]) return std::nullopt;
  Pool pool{.size = {kernel[0], kernel[1]},
            .strides = {strides[0], strides[1]},
            .padding = {padding[0], padding[2]},
            .count_include_pad = average && request.attributes.get_bool("count_include_pad"),
            .average = average,
            .functions = HWY_DYNAMIC_DISPATCH(get_pool_functions)(request.inputs[0].dtype)};
  if (pool.functions == nullptr) return std::nullopt;
  const TensorView& image = gradient ? request.outputs[0] : request.inputs[0];
  const TensorView& pooled = gradient ? request.inputs[0] : request.outputs[0];
  for (size_t d = 0; d < 2; ++d) {
    const auto dim = static_cast<int>(d) + 2;
    if (pooled.shape[dim] > 0 && pool.begin(d, pooled.shape[dim] - 1) >= image.shape[dim]) return std::nullopt;
  }
  return PreparedKernel{.name = "cpu." + request.op, .run = [pool, gradient](const KernelArgs& args) {
                          if (args.outputs[0].num_elements() == 0) return;
                          gradient ? run_gradient(pool, args) : run_forward(pool, args);
                        }};
}

}  // namespace

void add_pooling(KernelRegistry& registry) {
  registry.add("max_pool2d", [](const KernelRequest& r) { return prepare(r, /*average=*/false, /*gradient=*/false); });
  registry.add("max_pool2d_grad",
               [](const KernelRequest& r) { return prepare(r, /*average=*/false, /*gradient=*/true); });
  registry.add("avg_pool2d", [](const KernelRequest& r) { return prepare(r, /*average=*/true, /*gradient=*/false); });
  registry.add("avg_pool2d_grad",
               [](const KernelRequest& r) { return prepare(r, /*average=*/true, /*gradient=*/true); });
}

}  // namespace tessera::kernels::cpu
#endif  // HWY_ONCE
