// Counter-based random numbers (Philox 4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// A number is a pure function of (seed, stream, step, index): no state, so the result depends on no layout, thread or
// order. Values are made by inverse CDF, never by rejection, so one index is one draw.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

// The name of a sequence of draws: the user's seed, who draws (a hash of a name and its call count), and when.
struct RandomStream {
  uint64_t seed = 0;
  uint64_t stream = 0;
  uint64_t step = 0;
};

// FNV-1a, 64 bits: turns the name of a random operator into RandomStream::stream.
uint64_t hash_name(std::string_view name);

// 32 random bits number `index` of a stream.
uint32_t random_bits(const RandomStream& stream, uint64_t index);
// Uniform in [0, 1), 24 bits.
float random_uniform(const RandomStream& stream, uint64_t index);
// Uniform in (0, 1), 53 bits: never an end point, so it may go through an inverse CDF.
double random_open_uniform(const RandomStream& stream, uint64_t index);
// Draws from the standard normal distribution, by inverse CDF.
double random_normal(const RandomStream& stream, uint64_t index);
// Standard normal conditioned on [-limit, limit].
double random_truncated_normal(const RandomStream& stream, uint64_t index, double limit);
// Uniform integer in [0, n); n >= 1.
int64_t random_below(const RandomStream& stream, uint64_t index, int64_t n);

// The inverse of the standard normal's distribution function, p in (0, 1); relative error below 1e-15.
double inverse_normal_cdf(double p);

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

}  // namespace tessera
