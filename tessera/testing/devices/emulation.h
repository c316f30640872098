// In front of a kernel's text where a compiler of the host compiles it for an emulated device. The threads of a block
// run in turns, from one barrier to the next; see testing/emulated_gpu.h.
#define TESSERA_EMULATED 1
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

struct TesseraIndex {
  unsigned x;
};
extern "C" {
TesseraIndex tessera_thread, tessera_block, tessera_block_dim, tessera_grid_dim;
// Has the other threads of the block go on; returns when this one's turn comes. With `all`, only when all are here.
void (*tessera_yield)(int all);
alignas(16) unsigned char tessera_exchange[1024 * 16];
}
#define threadIdx tessera_thread
#define blockIdx tessera_block
#define blockDim tessera_block_dim
#define gridDim tessera_grid_dim

inline void __syncthreads() { tessera_yield(1); }
inline void __syncwarp(unsigned = 0xFFFFFFFFU) { tessera_yield(0); }
template <typename T>
inline T tessera_shuffle(T value, unsigned from) {
  static_assert(sizeof(T) <= 16);
  const unsigned self = tessera_thread.x;
  __builtin_memcpy(tessera_exchange + self * 16, &value, sizeof(T));
  tessera_yield(0);
  T other;
  __builtin_memcpy(&other, tessera_exchange + (self / 32 * 32 + from % 32) * 16, sizeof(T));
  tessera_yield(0);
  return other;
}
template <typename T>
inline T __shfl_xor_sync(unsigned, T value, int mask) {
  return tessera_shuffle(value, (tessera_thread.x % 32) ^ unsigned(mask));
}
template <typename T>
inline T __shfl_sync(unsigned, T value, int lane) {
  return tessera_shuffle(value, unsigned(lane));
}
template <typename T>
inline T __shfl_down_sync(unsigned, T value, int distance) {
  const unsigned lane = tessera_thread.x % 32;
  return tessera_shuffle(value, lane + unsigned(distance) < 32 ? lane + unsigned(distance) : lane);
}
template <typename T>
inline T atomicAdd(T* to, T value) {
  const T before = *to;
  *to = before + value;
  return before;
}
