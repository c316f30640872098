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
// Uniform in [0, 1), 24 bits.
TESSERA_DEVICE float random_uniform(uint64_t seed, uint64_t stream, uint64_t step, uint64_t index) {
  return float(random_block(seed, stream, step, index).words[0] >> 8) * 0x1p-24F;
}
// Uniform in (0, 1), 52 bits.
TESSERA_DEVICE double random_open_uniform(uint64_t seed, uint64_t stream, uint64_t step, uint64_t index) {
  const RandomWords r = random_block(seed, stream, step, index);
  const uint64_t bits = ((uint64_t(r.words[0]) << 32) | r.words[1]) >> 12;
  return (double(bits) + 0.5) * 0x1p-52;
}
// Uniform integer in [0, n).
TESSERA_DEVICE int64_t random_below(uint64_t seed, uint64_t stream, uint64_t step, uint64_t index, int64_t n) {
  const RandomWords r = random_block(seed, stream, step, index);
  const uint64_t high = uint64_t(r.words[0]) * uint64_t(n);
  const uint64_t low = (uint64_t(r.words[1]) * uint64_t(n & 0xFFFFFFFF)) >> 32;
  // n < 2^32 needs no more than these two products.
  return int64_t((high + low) >> 32);
}
