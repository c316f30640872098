#include "tessera/kernels/cpu/normalization/batch_norm_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tessera/kernels/cpu/normalization/batch_norm_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which sets the target that it compiles for.
#include "hwy/highway.h"
#include "tessera/kernels/cpu/rows/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// Rows that are added in f32 before they go to f64.
constexpr int64_t kBlockRows = 256;
// Rows that are read twice, for their mean first.
constexpr int64_t kFirstRows = 32;
// How far ahead of a row to ask for what comes, in bytes: enough to cover the way to memory.
constexpr int64_t kAheadBytes = 4096;

HWY_INLINE VF load(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF load(const BFloat16* p) {
  const DU d;
  const hn::Rebind<uint16_t, DU> d16;
  const auto* bits = reinterpret_cast<const uint16_t*>(p);
  return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(d16, bits))));
}
HWY_INLINE VF load(const Float16* p) {
  const DU d;
  const hn::Rebind<uint16_t, DU> d16;
  return vfrom_f16_bits(hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p))));
}

HWY_INLINE void store(VF x, float* p) { hn::StoreU(x, DF(), p); }
// The arithmetic shift keeps the value within int16, so that the saturating narrowing changes nothing.
template <class V>
HWY_INLINE void store_upper_half(V bits, void* p) {
  const hn::Rebind<int16_t, DF> d16;
  hn::StoreU(hn::DemoteTo(d16, hn::ShiftRight<16>(hn::BitCast(DI(), bits))), d16, static_cast<int16_t*>(p));
}
HWY_INLINE void store(VF x, BFloat16* p) { store_upper_half(vround_bf16_bits(x), p); }
HWY_INLINE void store(VF x, Float16* p) { store_upper_half(hn::ShiftLeft<16>(vto_f16_bits(x)), p); }

template <class T>
HWY_INLINE void prefetch(const T* p) {
  __builtin_prefetch(reinterpret_cast<const char*>(p) + kAheadBytes, 0, 2);
}

// Where a vector's worth of channels stands: all of them neighbours, or the last few of a row, which go through
// buffers so that they are computed as the others are.
struct Whole {
  template <class T>
  HWY_INLINE VF read(const T* p) const {
    return load(p);
  }
  template <class T>
  HWY_INLINE void write(VF x, T* p) const {
    store(x, p);
  }
};
struct Part {
  size_t size;
  template <class T>
  HWY_INLINE VF read(const T* p) const {
    HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(float)] = {};
    std::memcpy(buffer, p, size * sizeof(T));
    return load(buffer);
  }
  template <class T>
  HWY_INLINE void write(VF x, T* p) const {
    HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(float)];
    store(x, buffer);
    std::memcpy(p, buffer, size * sizeof(T));
  }
};

// f(offset of a vector's first channel in the images, the channel, Whole or Part) for rows [first, last).
template <class F>
HWY_INLINE void for_each_vector(int64_t first, int64_t last, int64_t channels, const F& f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  for (int64_t row = first; row < last; ++row) {
    int64_t c = 0;
    for (; c + lanes <= channels; c += lanes) f(row * channels + c, c, Whole());
    if (c < channels) f(row * channels + c, c, Part{static_cast<size_t>(channels - c)});
  }
}

template <class At>
HWY_INLINE VF apply(const ChannelAffine& affine, VF centred, int64_t c, At at) {
  return hn::MulAdd(centred, at.read(affine.scale + c), at.read(affine.shift + c));
}
template <class At>
HWY_INLINE VF centre(const ChannelAffine& affine, VF x, int64_t c, At at) {
  return hn::Sub(x, at.read(affine.mean + c));
}
HWY_INLINE VF where_positive(VF y, VF x) { return hn::IfThenElseZero(hn::Gt(y, hn::Zero(DF())), x); }

enum class Residual { kNone, kValue, kNorm };

template <class T, Residual kResidual>
struct Normalise {
  const NormaliseRows& images;
  VF lowest;

  template <class At>
  HWY_INLINE void operator()(int64_t i, int64_t c, At at) const {
    const T* x = static_cast<const T*>(images.x) + i;
    prefetch(x);
    VF y = apply(images.affine, centre(images.affine, at.read(x), c, at), c, at);
    if constexpr (kResidual != Residual::kNone) {
      const T* residual = static_cast<const T*>(images.residual) + i;
      prefetch(residual);
      VF more = at.read(residual);
      if constexpr (kResidual == Residual::kNorm) {
        more = apply(*images.residual_affine, centre(*images.residual_affine, more, c, at), c, at);
      }
      y = hn::Add(y, more);
    }
    // Of NaN it is not said that it is lower.
    at.write(hn::IfThenElse(hn::Lt(y, lowest), lowest, y), static_cast<T*>(images.y) + i);
  }
};

template <class T>
void normalise(const NormaliseRows& images, int64_t first, int64_t last, int64_t channels) {
  const VF lowest = vset(images.relu ? 0 : -std::numeric_limits<float>::infinity());
  if (images.residual == nullptr) {
    for_each_vector(first, last, channels, Normalise<T, Residual::kNone>{images, lowest});
  } else if (images.residual_affine == nullptr) {
    for_each_vector(first, last, channels, Normalise<T, Residual::kValue>{images, lowest});
  } else {
    for_each_vector(first, last, channels, Normalise<T, Residual::kNorm>{images, lowest});
  }
}

// Adds one vector of cotangents to the partial sums.
template <class At>
HWY_INLINE void add_gradient(VF gradient, VF centred, float* partial, float* products, At at) {
  at.write(hn::Add(at.read(partial), gradient), partial);
  at.write(hn::MulAdd(gradient, centred, at.read(products)), products);
}

// kRelu: where affine(x) is positive.
template <class T, bool kRelu>
struct AddGradients {
  const GradientRows& images;
  float* partial;
  float* products;

  template <class At>
  HWY_INLINE void operator()(int64_t i, int64_t c, At at) const {
    const T* dy = static_cast<const T*>(images.dy) + i;
    const T* x = static_cast<const T*>(images.x) + i;
    prefetch(dy);
    prefetch(x);
    const VF centred = centre(images.affine, at.read(x), c, at);
    VF gradient = at.read(dy);
    if constexpr (kRelu) gradient = where_positive(apply(images.affine, centred, c, at), gradient);
    add_gradient(gradient, centred, partial + c, products + c, at);
  }
};

template <class T, bool kMore>
struct AddMaskedGradients {
  const GradientRows& images;
  float* partial;
  float* products;

  template <class At>
  HWY_INLINE void operator()(int64_t i, int64_t c, At at) const {
    const T* dy = static_cast<const T*>(images.dy) + i;
    const T* x = static_cast<const T*>(images.x) + i;
    const T* y = static_cast<const T*>(images.y) + i;
    prefetch(dy);
    prefetch(x);
    prefetch(y);
    VF gradient = at.read(dy);
    if constexpr (kMore) {
      const T* more = static_cast<const T*>(images.more_dy) + i;
      prefetch(more);
      gradient = hn::Add(gradient, at.read(more));
    }
    gradient = where_positive(at.read(y), gradient);
    const VF centred = centre(images.affine, at.read(x), c, at);
    at.write(gradient, static_cast<T*>(images.masked) + i);
    add_gradient(gradient, centred, partial + c, products + c, at);
  }
};

template <class T>
void add_gradients(const GradientRows& images, int64_t first, int64_t last, int64_t channels, float* partial,
                   double* sums) {
  float* products = partial + channels;
  for (int64_t begin = first; begin < last; begin += kBlockRows) {
    const int64_t end = std::min(begin + kBlockRows, last);
    std::fill_n(partial, 2 * channels, 0.0F);
    if (images.y == nullptr && images.affine.scale == nullptr) {
      for_each_vector(begin, end, channels, AddGradients<T, false>{images, partial, products});
    } else if (images.y == nullptr) {
      for_each_vector(begin, end, channels, AddGradients<T, true>{images, partial, products});
    } else if (images.more_dy == nullptr) {
      for_each_vector(begin, end, channels, AddMaskedGradients<T, false>{images, partial, products});
    } else {
      for_each_vector(begin, end, channels, AddMaskedGradients<T, true>{images, partial, products});
    }
    for (int64_t c = 0; c < 2 * channels; ++c) sums[c] += partial[c];
  }
}

template <class T, bool kRelu>
struct GradientInput {
  const GradientInputRows& images;

  template <class At>
  HWY_INLINE void operator()(int64_t i, int64_t c, At at) const {
    const T* dy = static_cast<const T*>(images.dy) + i;
    const T* x = static_cast<const T*>(images.x) + i;
    prefetch(dy);
    prefetch(x);
    const VF centred = centre(images.affine, at.read(x), c, at);
    VF gradient = at.read(dy);
    if constexpr (kRelu) gradient = where_positive(apply(images.affine, centred, c, at), gradient);
    const VF rest = hn::NegMulAdd(centred, at.read(images.slope + c), hn::Sub(gradient, at.read(images.shift + c)));
    at.write(hn::Mul(at.read(images.affine.scale + c), rest), static_cast<T*>(images.dx) + i);
  }
};

template <class T>
void gradient_input(const GradientInputRows& images, int64_t first, int64_t last, int64_t channels) {
  if (images.affine.shift == nullptr) return for_each_vector(first, last, channels, GradientInput<T, false>{images});
  for_each_vector(first, last, channels, GradientInput<T, true>{images});
}

template <class T>
struct AddDifferences {
  const T* x;
  const float* about;
  float* differences;
  float* squares;

  template <class At>
  HWY_INLINE void operator()(int64_t i, int64_t c, At at) const {
    prefetch(x + i);
    const VF difference = hn::Sub(at.read(x + i), at.read(about + c));
    at.write(hn::Add(at.read(differences + c), difference), differences + c);
    at.write(hn::MulAdd(difference, difference, at.read(squares + c)), squares + c);
  }
};

// The squares are taken about the mean of the rows so far, of the first few about their own. What a block loses to the
// distance of its mean from that, it adds to the total in the same measure, as long as it is no longer than what came
// before: the result is as good as that of a second pass.
template <class T>
void add_moments(const void* images, int64_t first, int64_t last, int64_t channels, float* partial, Moments& moments) {
  const T* x = static_cast<const T*>(images);
  float* about = partial;
  float* differences = partial + channels;
  float* squares = partial + 2 * channels;
  const AddDifferences<T> add{x, about, differences, squares};
  if (moments.count == 0 && first < last) {
    const int64_t rows = std::min(kFirstRows, last - first);
    std::fill_n(about, channels, 0.0F);
    std::fill_n(differences, 2 * channels, 0.0F);
    for_each_vector(first, first + rows, channels, add);
    for (int64_t c = 0; c < channels; ++c) moments.mean[c] = differences[c] / static_cast<float>(rows);
  }
  for (int64_t begin = first; begin < last;) {
    const int64_t end = std::min(begin + std::clamp(moments.count, kFirstRows, kBlockRows), last);
    for (int64_t c = 0; c < channels; ++c) about[c] = static_cast<float>(moments.mean[c]);
    std::fill_n(differences, 2 * channels, 0.0F);
    for_each_vector(begin, end, channels, add);
    const auto rows = static_cast<double>(end - begin);
    const auto before = static_cast<double>(moments.count);
    const double share = rows / (before + rows);
    const double per_row = 1 / rows;
    for (int64_t c = 0; c < channels; ++c) {
      const double shift = differences[c] * per_row;
      const double delta = about[c] + shift - moments.mean[c];
      moments.squares[c] += squares[c] - shift * differences[c] + delta * delta * before * share;
      moments.mean[c] += delta * share;
    }
    moments.count += end - begin;
    begin = end;
  }
}

struct InverseDeviation {
  const float* variance;
  const float* gamma;
  float eps;
  float* scale;

  template <class At>
  HWY_INLINE void operator()(int64_t, int64_t c, At at) const {
    const VF numerator = gamma == nullptr ? vset(1.0F) : at.read(gamma + c);
    at.write(hn::Div(numerator, hn::Sqrt(hn::Add(at.read(variance + c), vset(eps)))), scale + c);
  }
};

void inverse_deviations(const float* variance, float eps, const float* gamma, int64_t channels, float* scale) {
  for_each_vector(0, 1, channels, InverseDeviation{variance, gamma, eps, scale});
}

template <class T>
constexpr BatchNormFunctions functions_of() {
  return {normalise<T>, add_gradients<T>, gradient_input<T>, add_moments<T>, inverse_deviations};
}

}  // namespace

const BatchNormFunctions* get_batch_norm_functions(DType images) {
  static constexpr BatchNormFunctions kF32 = functions_of<float>();
  static constexpr BatchNormFunctions kBF16 = functions_of<BFloat16>();
  static constexpr BatchNormFunctions kF16 = functions_of<Float16>();
  switch (images) {
    case DType::kF32: return &kF32;
    case DType::kBF16: return &kBF16;
    case DType::kF16: return &kF16;
    default: return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {
namespace {
HWY_EXPORT(get_batch_norm_functions);
}  // namespace

const BatchNormFunctions* batch_norm_functions(DType images) {
  return HWY_DYNAMIC_DISPATCH(get_batch_norm_functions)(images);
}

void combine_moments(const Moments& more, int64_t channels, Moments& to) {
  if (more.count == 0) return;
  const auto count = static_cast<double>(to.count);
  const double share = static_cast<double>(more.count) / static_cast<double>(to.count + more.count);
  for (int64_t c = 0; c < channels; ++c) {
    const double delta = more.mean[c] - to.mean[c];
    to.squares[c] += more.squares[c] + delta * delta * count * share;
    to.mean[c] += delta * share;
  }
  to.count += more.count;
}

}  // namespace tessera::kernels::cpu
#endif  // HWY_ONCE
