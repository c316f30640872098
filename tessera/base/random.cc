#include "tessera/base/random.h"

#include <cmath>

namespace tessera {
namespace {

std::array<uint32_t, 4> block(const RandomStream& s, uint64_t index) {
  // The stream's name goes into the key with the seed, the step and the index into the counter.
  uint64_t key = s.seed * 0x9E3779B97F4A7C15ULL ^ s.stream;
  key ^= key >> 29;
  const uint64_t low = index;
  const uint64_t high = s.step;
  return philox4x32({static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
                     static_cast<uint32_t>(high >> 32)},
                    {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
}

// c[0] * x^7 + ... + c[7].
double polynomial(const double (&c)[8], double x) {
  double sum = c[0];
  for (size_t i = 1; i < 8; ++i) sum = sum * x + c[i];
  return sum;
}

}  // namespace

uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ULL * c[0];
    const uint64_t p1 = 0xCD9E8D57ULL * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k = {k[0] + 0x9E3779B9U, k[1] + 0xBB67AE85U};
  }
  return c;
}

uint32_t random_bits(const RandomStream& stream, uint64_t index) { return block(stream, index)[0]; }

float random_uniform(const RandomStream& stream, uint64_t index) {
  return static_cast<float>(random_bits(stream, index) >> 8) * 0x1p-24F;
}

double random_open_uniform(const RandomStream& stream, uint64_t index) {
  const auto words = block(stream, index);
  const uint64_t bits = (static_cast<uint64_t>(words[0]) << 32 | words[1]) >> 12;  // 52 bits
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

double random_normal(const RandomStream& stream, uint64_t index) {
  return inverse_normal_cdf(random_open_uniform(stream, index));
}

double random_truncated_normal(const RandomStream& stream, uint64_t index, double limit) {
  const double low = 0.5 * std::erfc(limit / std::sqrt(2.0));
  return inverse_normal_cdf(low + (1.0 - 2.0 * low) * random_open_uniform(stream, index));
}

int64_t random_below(const RandomStream& stream, uint64_t index, int64_t n) {
  // Multiply-shift over 64 bits: the bias is below n * 2^-64 and one index stays one draw.
  const auto words = block(stream, index);
  const uint64_t bits = static_cast<uint64_t>(words[0]) << 32 | words[1];
  return static_cast<int64_t>(static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(n) >> 64);
}

double inverse_normal_cdf(double p) {
  // Wichura's algorithm AS 241 (PPND16, Applied Statistics 37, 1988): quotients of polynomials with a relative error of
  // about 1e-16. Most draws lie in the middle, where neither a logarithm nor a root is taken.
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
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(a, r) / polynomial(b, r);
  }
  const double r = std::sqrt(-std::log(q < 0 ? p : 1 - p));
  const double x =
      r <= 5 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6) : polynomial(e, r - 5) / polynomial(f, r - 5);
  return q < 0 ? -x : x;
}

}  // namespace tessera
