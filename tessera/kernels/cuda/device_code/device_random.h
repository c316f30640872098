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
// The inverse of the standard normal's distribution function, p in (0, 1). Logarithm and root are the device's: the
// last bit may differ from the host's.
TESSERA_DEVICE double inverse_normal_cdf(double p) {
  constexpr double a[] = {2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4,
                          4.5921953931549871457e+4, 1.3731693765509461125e+4, 1.9715909503065514427e+3,
                          1.3314166789178437745e+2, 3.3871328727963666080e+0};
  constexpr double b[] = {
      5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4, 2.1213794301586595867e+4,
      5.3941960214247511077e+3, 6.8718700749205790830e+2, 4.2313330701600911252e+1, 1.0};
  constexpr double c[] = {7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
                          1.27045825245236838258e+0, 3.64784832476320460504e+0, 5.76949722146069140550e+0,
                          4.63033784615654529590e+0, 1.42343711074968357734e+0};
  constexpr double d[] = {
      1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
      6.89767334985100004550e-1, 1.67638483018380384940e+0, 2.05319162663775882187e+0, 1.0};
  constexpr double e[] = {2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
                          2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e+0,
                          5.46378491116411436990e+0, 6.65790464350110377720e+0};
  constexpr double f[] = {
      2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
      1.48753612908506148525e-2,  1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0};
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = rounded_sum(0.180625, -rounded_product(q, q));
    return rounded_product(q, polynomial(a, r)) / polynomial(b, r);
  }
  const double r = std::sqrt(-std::log(q < 0 ? p : 1 - p));
  const double x = r <= 5 ? polynomial(c, rounded_sum(r, -1.6)) / polynomial(d, rounded_sum(r, -1.6))
                          : polynomial(e, rounded_sum(r, -5)) / polynomial(f, rounded_sum(r, -5));
  return q < 0 ? -x : x;
}
TESSERA_DEVICE double random_normal(uint64_t seed, uint64_t stream, uint64_t step, uint64_t index) {
  return inverse_normal_cdf(random_open_uniform(seed, stream, step, index));
}
