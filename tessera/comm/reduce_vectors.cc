// Compiled once per instruction set; the one that this machine has is chosen when it runs.
#include "tessera/comm/reduce_vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tessera/comm/reduce_vectors.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which sets the target that it compiles for.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::comm {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// How elements of T are read into, and written from, the vectors that they are computed in.
template <typename T>
struct Plain {
  using Element = T;
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static HWY_INLINE V load(const T* p) { return hn::LoadU(D(), p); }
  static HWY_INLINE void store(V v, T* p) { hn::StoreU(v, D(), p); }
  static HWY_INLINE void stream(V v, T* p) { hn::Stream(v, D(), p); }
};

struct BF16AsF32 {
  using Element = uint16_t;
  using D = hn::ScalableTag<float>;
  using D32 = hn::RebindToUnsigned<D>;
  using D16 = hn::Rebind<uint16_t, D>;
  using V = hn::Vec<D>;
  static HWY_INLINE V load(const uint16_t* p) {
    return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(D32(), hn::LoadU(D16(), p))));
  }
  // To nearest even, as BFloat16 rounds.
  static HWY_INLINE void store(V v, uint16_t* p) {
    const D32 d;
    const auto wide = hn::BitCast(d, v);
    const auto odd = hn::And(hn::ShiftRight<16>(wide), hn::Set(d, 1U));
    const auto rounded = hn::Add(wide, hn::Add(hn::Set(d, 0x7FFFU), odd));
    const auto quiet = hn::Or(wide, hn::Set(d, 0x00400000U));
    const auto is_nan = hn::MaskFromVec(hn::BitCast(d, hn::VecFromMask(D(), hn::IsNaN(v))));
    const auto bits = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
    hn::StoreU(hn::DemoteTo(D16(), hn::BitCast(hn::RebindToSigned<D32>(), bits)), D16(), p);
  }
  static HWY_INLINE void stream(V v, uint16_t* p) { store(v, p); }
};

template <ReduceOp kOp, typename V>
HWY_INLINE V combine(V a, V b) {
  if constexpr (kOp == ReduceOp::kSum) {
    return hn::Add(a, b);
  } else if constexpr (kOp == ReduceOp::kProd) {
    return hn::Mul(a, b);
  } else {
    // A NaN in b is taken, one in a is kept.
    const auto takes_b = kOp == ReduceOp::kMax ? hn::Gt(b, a) : hn::Lt(b, a);
    return hn::IfThenElse(hn::Or(takes_b, hn::IsNaN(b)), b, a);
  }
}

template <class Io, ReduceOp kOp, bool kStream>
int64_t reduce(std::span<void* const> outs, std::span<const void* const> sources, int64_t count) {
  using T = typename Io::Element;
  const auto lanes = static_cast<int64_t>(hn::Lanes(typename Io::D()));
  const auto source = [&](size_t s) { return static_cast<const T*>(sources[s]); };
  const auto put = [](auto v, T* p) {
    if constexpr (kStream) {
      Io::stream(v, p);
    } else {
      Io::store(v, p);
    }
  };
  int64_t i = 0;
  // Four vectors at a time: a source's or result's address is then fetched seldom.
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const T* first = source(0) + i;
    auto a = Io::load(first);
    auto b = Io::load(first + lanes);
    auto c = Io::load(first + 2 * lanes);
    auto d = Io::load(first + 3 * lanes);
    for (size_t s = 1; s < sources.size(); ++s) {
      const T* p = source(s) + i;
      a = combine<kOp>(a, Io::load(p));
      b = combine<kOp>(b, Io::load(p + lanes));
      c = combine<kOp>(c, Io::load(p + 2 * lanes));
      d = combine<kOp>(d, Io::load(p + 3 * lanes));
    }
    for (void* out : outs) {
      T* p = static_cast<T*>(out) + i;
      put(a, p);
      put(b, p + lanes);
      put(c, p + 2 * lanes);
      put(d, p + 3 * lanes);
    }
  }
  for (; i + lanes <= count; i += lanes) {
    auto a = Io::load(source(0) + i);
    for (size_t s = 1; s < sources.size(); ++s) a = combine<kOp>(a, Io::load(source(s) + i));
    for (void* out : outs) put(a, static_cast<T*>(out) + i);
  }
  // Streamed lines are seen by other cores in the order of later stores only after this.
  if constexpr (kStream) hwy::FlushStream();
  return i;
}

template <class Io, bool kStream>
int64_t reduce_by(ReduceOp op, std::span<void* const> outs, std::span<const void* const> sources, int64_t count) {
  switch (op) {
    case ReduceOp::kSum: return reduce<Io, ReduceOp::kSum, kStream>(outs, sources, count);
    case ReduceOp::kMax: return reduce<Io, ReduceOp::kMax, kStream>(outs, sources, count);
    case ReduceOp::kMin: return reduce<Io, ReduceOp::kMin, kStream>(outs, sources, count);
    case ReduceOp::kProd: return reduce<Io, ReduceOp::kProd, kStream>(outs, sources, count);
  }
  return 0;
}

int64_t reduce_any(std::span<void* const> outs, std::span<const void* const> sources, int64_t count, DType dtype,
                   ReduceOp op, bool past_caches) {
  if (dtype == DType::kF32) {
    return past_caches ? reduce_by<Plain<float>, true>(op, outs, sources, count)
                       : reduce_by<Plain<float>, false>(op, outs, sources, count);
  }
#if HWY_HAVE_FLOAT64
  if (dtype == DType::kF64) {
    return past_caches ? reduce_by<Plain<double>, true>(op, outs, sources, count)
                       : reduce_by<Plain<double>, false>(op, outs, sources, count);
  }
#endif
  if (dtype == DType::kBF16) return reduce_by<BF16AsF32, false>(op, outs, sources, count);
  return 0;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera::comm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::comm {

HWY_EXPORT(reduce_any);

int64_t reduce_vectors(std::span<void* const> outs, std::span<const void* const> sources, int64_t count, DType dtype,
                       ReduceOp op, bool past_caches) {
  return HWY_DYNAMIC_DISPATCH(reduce_any)(outs, sources, count, dtype, op, past_caches);
}

}  // namespace tessera::comm
#endif
