#include "tessera/kernels/cpu/rows/random_rows.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tessera/kernels/cpu/rows/random_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which sets the target that it compiles for.
#include "hwy/highway.h"
#include "tessera/kernels/cpu/rows/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// The key of base/random.cc: the stream's name mixed into the seed.
uint64_t key_of(const RandomStream& stream) {
  const uint64_t key = stream.seed * 0x9E3779B97F4A7C15ULL ^ stream.stream;
  return key ^ key >> 29;
}

struct Product {
  VU high, low;
};

// The upper and the lower 32 bits of each product with `factor`, the same in all lanes.
HWY_INLINE Product multiply(VU a, VU factor) {
  const DU d;
#if HWY_TARGET == HWY_SCALAR
  const uint64_t product = uint64_t{hn::GetLane(a)} * hn::GetLane(factor);
  return {hn::Set(d, static_cast<uint32_t>(product >> 32)), hn::Set(d, static_cast<uint32_t>(product))};
#else
  const hn::Repartition<uint64_t, DU> d64;
  const auto low_half = hn::Set(d64, 0xFFFFFFFFULL);
  const auto even = hn::MulEven(a, factor);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a))), factor);
  return {hn::BitCast(d, hn::Or(hn::ShiftRight<32>(even), hn::AndNot(low_half, odd))),
          hn::BitCast(d, hn::Or(hn::And(even, low_half), hn::ShiftLeft<32>(odd)))};
#endif
}

// Philox 4x32-10's state for a vector of counters.
struct Philox {
  VU c0, c1, c2, c3;

  HWY_INLINE void round(VU k0, VU k1) {
    const Product p0 = multiply(c0, hn::Set(DU(), 0xD2511F53U));
    const Product p1 = multiply(c2, hn::Set(DU(), 0xCD9E8D57U));
    c0 = hn::Xor(hn::Xor(p1.high, c1), k0);
    c1 = p1.low;
    c2 = hn::Xor(hn::Xor(p0.high, c3), k1);
    c3 = p0.low;
  }
};

// bits of the vector of counters low, low + step, ... and of the three vectors after it. A round is a chain of slow
// operations: four at a time hide it.
HWY_INLINE void four_vectors(VU low, VU vector_step, uint32_t high, uint64_t step, uint64_t key, uint32_t* bits) {
  const DU d;
  const size_t lanes = hn::Lanes(d);
  const VU c1 = hn::Set(d, high);
  const VU c2 = hn::Set(d, static_cast<uint32_t>(step));
  const VU c3 = hn::Set(d, static_cast<uint32_t>(step >> 32));
  const VU low1 = hn::Add(low, vector_step);
  const VU low2 = hn::Add(low1, vector_step);
  Philox a{low, c1, c2, c3};
  Philox b{low1, c1, c2, c3};
  Philox c{low2, c1, c2, c3};
  Philox e{hn::Add(low2, vector_step), c1, c2, c3};
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const VU v0 = hn::Set(d, k0);
    const VU v1 = hn::Set(d, k1);
    a.round(v0, v1);
    b.round(v0, v1);
    c.round(v0, v1);
    e.round(v0, v1);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  hn::StoreU(hn::ShiftRight<8>(a.c0), d, bits);
  hn::StoreU(hn::ShiftRight<8>(b.c0), d, bits + lanes);
  hn::StoreU(hn::ShiftRight<8>(c.c0), d, bits + 2 * lanes);
  hn::StoreU(hn::ShiftRight<8>(e.c0), d, bits + 3 * lanes);
}

void uniform_bits_of(const RandomStream& stream, uint64_t first, uint64_t stride, uint32_t* bits, int64_t n) {
  const DU d;
  const DI di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const uint64_t key = key_of(stream);
  const VU stride32 = hn::Set(d, static_cast<uint32_t>(stride));
  const VU steps = hn::Mul(hn::BitCast(d, hn::Iota(di, 0)), stride32);
  const VU vector_step = hn::Set(d, static_cast<uint32_t>(static_cast<uint64_t>(lanes) * stride));
  for (int64_t i = 0; i < n; i += 4 * lanes) {
    const uint64_t begin = first + static_cast<uint64_t>(i) * stride;
    const int64_t count = std::min(4 * lanes, n - i);
    const uint64_t last = begin + static_cast<uint64_t>(count - 1) * stride;
    if (count < 4 * lanes || begin >> 32 != last >> 32) {
      // The end, or a place where the counter's upper word changes.
      for (int64_t j = 0; j < count; ++j) {
        bits[i + j] = random_bits(stream, begin + static_cast<uint64_t>(j) * stride) >> 8;
      }
      continue;
    }
    const VU low = hn::Add(hn::Set(d, static_cast<uint32_t>(begin)), steps);
    four_vectors(low, vector_step, static_cast<uint32_t>(begin >> 32), stream.step, key, bits + i);
  }
}

void drop_row_of(const float* x, const uint32_t* bits, uint32_t threshold, float divisor, float* y, int64_t n) {
  const DF d;
  const DI di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    // 24 bits: the signed comparison will do.
    const auto drawn = hn::BitCast(di, hn::LoadU(DU(), bits + i));
    const auto kept = hn::RebindMask(d, hn::Lt(drawn, hn::Set(di, static_cast<int32_t>(threshold))));
    hn::StoreU(hn::IfThenElseZero(kept, hn::Div(hn::LoadU(d, x + i), vset(divisor))), d, y + i);
  }
  for (; i < n; ++i) y[i] = bits[i] < threshold ? x[i] / divisor : 0.0F;
}

}  // namespace

UniformBits get_uniform_bits() { return uniform_bits_of; }
DropRow get_drop_row() { return drop_row_of; }

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {
namespace {
HWY_EXPORT(get_uniform_bits);
HWY_EXPORT(get_drop_row);
}  // namespace

UniformBits uniform_bits() { return HWY_DYNAMIC_DISPATCH(get_uniform_bits)(); }
DropRow drop_row() { return HWY_DYNAMIC_DISPATCH(get_drop_row)(); }

}  // namespace tessera::kernels::cpu
#endif  // HWY_ONCE
