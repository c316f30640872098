#include "tessera/comm/reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tessera/base/error.h"
#include "tessera/comm/reduce_vectors.h"

namespace tessera::comm {
namespace {

// Elements that are accumulated before the next block: the block stays in the first-level cache while the sources pass.
constexpr int64_t kBlock = 2048;

template <ReduceOp kOp, typename T>
T combine(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return kOp == ReduceOp::kMax ? a || b : a && b;
  } else if constexpr (kOp == ReduceOp::kSum || kOp == ReduceOp::kProd) {
    // Integers wrap: their sums are computed unsigned, where overflow is defined.
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, std::make_unsigned_t<T>>;
      const auto x = static_cast<Unsigned>(a);
      const auto y = static_cast<Unsigned>(b);
      return static_cast<T>(kOp == ReduceOp::kSum ? x + y : x * y);
    } else {
      return kOp == ReduceOp::kSum ? a + b : a * b;
    }
  } else if constexpr (kOp == ReduceOp::kMax) {
    return b > a || b != b ? b : a;  // NOLINT(misc-redundant-expression): a NaN
  } else {
    return b < a || b != b ? b : a;  // NOLINT(misc-redundant-expression): a NaN
  }
}

// The elements from `begin` on.
template <ReduceOp kOp, typename T>
void reduce_typed(std::span<void* const> outs, std::span<const void* const> sources, int64_t begin, int64_t count) {
  using Compute = ComputeType<T>;
  Compute sums[kBlock];
  T rounded[kBlock];
  for (; begin < count; begin += kBlock) {
    const int64_t length = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(sources[0]) + begin;
    for (int64_t i = 0; i < length; ++i) sums[i] = static_cast<Compute>(first[i]);
    for (size_t s = 1; s < sources.size(); ++s) {
      const T* source = static_cast<const T*>(sources[s]) + begin;
      for (int64_t i = 0; i < length; ++i) sums[i] = combine<kOp>(sums[i], static_cast<Compute>(source[i]));
    }
    for (int64_t i = 0; i < length; ++i) rounded[i] = static_cast<T>(sums[i]);
    for (void* out : outs) {
      std::memcpy(static_cast<T*>(out) + begin, rounded, static_cast<size_t>(length) * sizeof(T));
    }
  }
}

}  // namespace

void check_reducible(DType dtype, ReduceOp op, std::string_view who) {
  if (!is_compute(dtype)) throw_unsupported_dtype(dtype, who);
  if (dtype == DType::kBool && op == ReduceOp::kSum) {
    throw InvalidArgument("{}: the sum of bools is no bool; use max for any, min for all, or cast first", who);
  }
}

void reduce_in_order(std::span<void* const> outs, std::span<const void* const> sources, int64_t count, DType dtype,
                     ReduceOp op, bool past_caches) {
  // The gaps between the members of a bucket are reduced with them and may hold anything, which a bool may not.
  if (dtype == DType::kBool) dtype = DType::kU8;
  const auto on_line = [](const void* out) { return reinterpret_cast<uintptr_t>(out) % 64 == 0; };
  const bool streams = past_caches && std::all_of(outs.begin(), outs.end(), on_line);
  const int64_t done = reduce_vectors(outs, sources, count, dtype, op, streams);
  if (done == count) return;
  dispatch_dtype(dtype, "reduction", [&](auto zero) {
    using T = decltype(zero);
    switch (op) {
      case ReduceOp::kSum: return reduce_typed<ReduceOp::kSum, T>(outs, sources, done, count);
      case ReduceOp::kMax: return reduce_typed<ReduceOp::kMax, T>(outs, sources, done, count);
      case ReduceOp::kMin: return reduce_typed<ReduceOp::kMin, T>(outs, sources, done, count);
      case ReduceOp::kProd: return reduce_typed<ReduceOp::kProd, T>(outs, sources, done, count);
    }
  });
}

}  // namespace tessera::comm
