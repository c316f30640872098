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
  // Acklam's rational approximation (relative error 1.2e-9), then one Halley step brings it to rounding level.
  constexpr double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                          1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double b[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02, 6.680131188771972e+01,
                          -1.328068155288572e+01};
  constexpr double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                          -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00};
  constexpr double kTail = 0.02425;
  // The step below takes differences of probabilities, which are exact to the last digit near 0 only.
  if (p > 1 - kTail) return -inverse_normal_cdf(1 - p);
  double x;
  if (p < kTail) {
    const double q = std::sqrt(-2 * std::log(p));
    x = (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
        ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
  } else {
    const double q = p - 0.5;
    const double r = q * q;
    x = (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
        (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
  }
  const double error = 0.5 * std::erfc(-x / std::sqrt(2.0)) - p;
  const double u = error * std::sqrt(2 * 3.14159265358979323846) * std::exp(x * x / 2);
  return x - u / (1 + x * u / 2);
}

}  // namespace tessera
