// Where a thread stands, and what the threads of a block find out together. All blocks have one dim, and whole warps.
#pragma once

// `i` of the first element that this thread computes; the next is num_threads() further.
template <typename Index>
TESSERA_DEVICE Index first_index() {
  return Index(blockIdx.x) * Index(blockDim.x) + Index(threadIdx.x);
}
template <typename Index>
TESSERA_DEVICE Index num_threads() {
  return Index(gridDim.x) * Index(blockDim.x);
}

// Sums, largest ones and the like: combine(a, b), in an order that depends on the size of the block alone. Every thread
// of the block calls it and is given the result.
template <typename T, typename F>
TESSERA_DEVICE T reduce_warp(T value, F combine) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(0xFFFFFFFFU, value, distance));
  }
  return value;
}
template <typename T, typename F>
TESSERA_DEVICE T reduce_block(T value, F combine) {
  __shared__ T of_warps[32];
  value = reduce_warp(value, combine);
  const int num_warps = int(blockDim.x) / 32;
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  T all = of_warps[0];
  for (int warp = 1; warp < num_warps; ++warp) all = combine(all, of_warps[warp]);
  __syncthreads();
  return all;
}
struct Plus {
  template <typename T>
  TESSERA_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};
template <typename T>
TESSERA_DEVICE T sum_block(T value) {
  return reduce_block(value, Plus());
}
template <typename T>
TESSERA_DEVICE T sum_warp(T value) {
  return reduce_warp(value, Plus());
}

// a + b as unsigned numbers, where integers overflow.
template <typename T>
TESSERA_DEVICE T wrapping_add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return T(uint64_t(a) + uint64_t(b));
  } else {
    return a + b;
  }
}
template <typename T>
TESSERA_DEVICE T wrapping_mul(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return T(uint64_t(a) * uint64_t(b));
  } else {
    return a * b;
  }
}
