// The counter-based random numbers of base/random.h: the same bits on a device.
#pragma once

struct RandomWords {
  uint32_t words[4];
};
// The block of draws number `index` of (seed, stream, step).
TESSERA_DEVICE RandomWords random_block(uint64_t seed, uint64_t stream, uint64_t step, uint64_t index) {
  uint64_t key = (seed * 0x9E3779B97F4A7C15ULL) ^ stream;
  key ^= key >> 29;
  uint32_t c0 = uint32_t(index), c1 = uint32_t(index >> 32), c2 = uint32_t(step), c3 = uint32_t(step >> 32);
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ULL * c0;
    const uint64_t p1 = 0xCD9E8D57ULL * c2;
    c0 = uint32_t(p1 >> 32) ^ c1 ^ k0;
    c1 = uint32_t(p1);
    c2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c3 = uint32_t(p0);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}
// Draws from [0, 1), 24 bits.
TESSERA_DEVICE float random_uniform(uint64_t seed, uint64_t stream, uint64_t step, uint64_t index) {
  return float(random_block(seed, stream, step, index).words[0] >> 8) * 0x1p-24F;
}
// Draws from (0, 1), 52 bits.
TESSERA_DEVICE double random_open_uniform(uint64_t seed, uint64_t stream, uint64_t step, uint64_t index) {
  const RandomWords r = random_block(seed, stream, step, index);
  const uint64_t bits = ((uint64_t(r.words[0]) << 32) | r.words[1]) >> 12;
  return (double(bits) + 0.5) * 0x1p-52;
}
// The upper half of a product of 128 bits.
TESSERA_DEVICE uint64_t high_product(uint64_t a, uint64_t b) {
#ifdef TESSERA_EMULATED
  return uint64_t(static_cast<unsigned __int128>(a) * b >> 64);
#else
  return __umul64hi(a, b);
#endif
}
// Draws an integer from [0, n).
TESSERA_DEVICE int64_t random_below(uint64_t seed, uint64_t stream, uint64_t step, uint64_t index, int64_t n) {
  const RandomWords r = random_block(seed, stream, step, index);
  return int64_t(high_product((uint64_t(r.words[0]) << 32) | r.words[1], uint64_t(n)));
}

// a + b and a * b, each rounded by itself, as the host's are: a compiler of device code makes one operation of both.
#ifdef TESSERA_EMULATED
TESSERA_DEVICE double rounded_sum(double a, double b) { return a + b; }
TESSERA_DEVICE double rounded_product(double a, double b) { return a * b; }
#else
TESSERA_DEVICE double rounded_sum(double a, double b) { return __dadd_rn(a, b); }
TESSERA_DEVICE double rounded_product(double a, double b) { return __dmul_rn(a, b); }
#endif

// c[0] * x^n + ... + c[n], as base/random.cc computes it.
template <int kCount>
TESSERA_DEVICE double polynomial(const double (&c)[kCount], double x) {
  double sum = c[0];
#pragma unroll
  for (int i = 1; i < kCount; ++i) sum = rounded_sum(rounded_product(sum, x), c[i]);
  return sum;
}
// The inverse of the standard normal's distribution function, p in (0, 1). Logarithm, root and erfc are the device's:
// the last bit may differ from the host's.
TESSERA_DEVICE double inverse_normal_cdf(double p) {
  constexpr double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                          1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double b[] = {-5.447609879822406e+01, 1.615858368580409e+02,  -1.556989798598866e+02,
                          6.680131188771972e+01,  -1.328068155288572e+01, 1.0};
  constexpr double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                          -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00,
                          1.0};
  constexpr double kTail = 0.02425;
  constexpr double kSqrt2 = 1.4142135623730951;
  constexpr double kSqrt2Pi = 2.5066282746310002;
  const bool is_upper = p > 1 - kTail;
  if (is_upper) p = 1 - p;
  double x;
  if (p < kTail) {
    const double q = std::sqrt(-2 * std::log(p));
    x = polynomial(c, q) / polynomial(d, q);
  } else {
    const double q = p - 0.5;
    const double r = rounded_product(q, q);
    x = rounded_product(polynomial(a, r), q) / polynomial(b, r);
  }
  const double error = rounded_sum(rounded_product(0.5, std::erfc(-x / kSqrt2)), -p);
  const double u = rounded_product(rounded_product(error, kSqrt2Pi), std::exp(rounded_product(x, x) / 2));
  const double step = u / rounded_sum(1, rounded_product(x, u) / 2);
  return is_upper ? -(x - step) : x - step;
}
TESSERA_DEVICE double random_normal(uint64_t seed, uint64_t stream, uint64_t step, uint64_t index) {
  return inverse_normal_cdf(random_open_uniform(seed, stream, step, index));
}
