#include "tessera/tensor/strided_copy.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera {
namespace {

// A transpose goes through memory in pieces of this many elements of the operand's neighbours and of the result's: both
// sides are then read and written in runs of cache lines, and the pages that are open at a time are few.
constexpr int64_t kAcross = 16;
constexpr int64_t kInner = 64;
constexpr int64_t kUnitBytes = 65536;
constexpr int64_t kSmall = 4;  // what is transposed in registers

// to[a * to_stride + i] = from[i * from_stride + a] for i, a < 4, with what every x86-64 has.
void transpose_4x4(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
  const auto load = [&](int64_t i) { return _mm_loadu_ps(reinterpret_cast<const float*>(from + i * from_stride)); };
  __m128 row0 = load(0);
  __m128 row1 = load(1);
  __m128 row2 = load(2);
  __m128 row3 = load(3);
  _MM_TRANSPOSE4_PS(row0, row1, row2, row3);
  const auto store = [&](int64_t a, __m128 row) { _mm_storeu_ps(reinterpret_cast<float*>(to + a * to_stride), row); };
  store(0, row0);
  store(1, row1);
  store(2, row2);
  store(3, row3);
}

// Vector by vector, which at -O2 no compiler makes of a loop over elements.
template <typename Bits>
void repeat(Bits element, Bits* to, int64_t count) {
  constexpr int64_t kElements = sizeof(__m128i) / sizeof(Bits);
  Bits elements[kElements];
  std::fill_n(elements, kElements, element);
  const __m128i vector = _mm_loadu_si128(reinterpret_cast<const __m128i*>(elements));
  int64_t i = 0;
  for (; i + kElements <= count; i += kElements) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), vector);
  for (; i < count; ++i) to[i] = element;
}

}  // namespace

StridedCopy::StridedCopy(const Shape& shape, const Strides& from, const Strides& to, size_t element_bytes)
    : element_bytes_(element_bytes) {
  if (shape.num_elements() == 0) {
    num_outer_ = 0;
    return;
  }
  take_dims(shape, from, to);
  choose_across();
  divide(static_cast<int64_t>(element_bytes));
}

// Outermost first as the result lies in memory, neighbours that both walk as one merged; the last is inner.
void StridedCopy::take_dims(const Shape& shape, const Strides& from, const Strides& to) {
  std::array<Dim, kMaxNdim> dims{};
  int count = 0;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (shape[d] == 1) continue;
    check(to[d] != 0, "the elements of a copy's result lie apart");
    int at = count++;
    for (; at > 0 && std::abs(dims[static_cast<size_t>(at - 1)].to) < std::abs(to[d]); --at) {
      dims[static_cast<size_t>(at)] = dims[static_cast<size_t>(at - 1)];
    }
    dims[static_cast<size_t>(at)] = {shape[d], from[d], to[d]};
  }
  int merged = 0;
  for (int d = 0; d < count; ++d) {
    const Dim& dim = dims[static_cast<size_t>(d)];
    Dim* last = merged > 0 ? &outer_[static_cast<size_t>(merged - 1)] : nullptr;
    if (last != nullptr && last->from == dim.from * dim.size && last->to == dim.to * dim.size) {
      *last = {last->size * dim.size, dim.from, dim.to};
    } else {
      outer_[static_cast<size_t>(merged++)] = dim;
    }
  }
  if (merged > 0) inner_ = outer_[static_cast<size_t>(--merged)];
  num_outer_dims_ = merged;
}

// The dim along which the operand lies densest (a transpose), or just the next one.
void StridedCopy::choose_across() {
  if (num_outer_dims_ > 0) {
    int across = num_outer_dims_ - 1;
    for (int d = across; inner_.from != 1 && d >= 0; --d) {
      if (outer_[static_cast<size_t>(d)].from == 1) across = d;
    }
    across_ = outer_[static_cast<size_t>(across)];
    std::copy(outer_.begin() + across + 1, outer_.begin() + num_outer_dims_, outer_.begin() + across);
    --num_outer_dims_;
  }
  for (int d = 0; d < num_outer_dims_; ++d) num_outer_ *= outer_[static_cast<size_t>(d)].size;
}

void StridedCopy::divide(int64_t element_bytes) {
  const bool is_line = across_.size == 1;
  const int64_t whole = is_line ? inner_.size : across_.size;
  const int64_t bytes_of_one = is_line ? element_bytes : inner_.size * element_bytes;
  // Whole blocks of a transpose.
  unit_size_ = std::min(whole, std::max<int64_t>(1, kUnitBytes / bytes_of_one / kAcross) * kAcross);
  units_per_outer_ = (whole + unit_size_ - 1) / unit_size_;
  grain_ = std::max<int64_t>(1, kUnitBytes / (unit_size_ * bytes_of_one));
}

void StridedCopy::run(const void* from, void* to, int64_t begin, int64_t end) const {
  const auto run_as = [&](auto bits) {
    using Bits = decltype(bits);
    run_units(static_cast<const Bits*>(from), static_cast<Bits*>(to), begin, end);
  };
  switch (element_bytes_) {
    case 1: run_as(uint8_t()); break;
    case 2: run_as(uint16_t()); break;
    case 4: run_as(uint32_t()); break;
    default: run_as(uint64_t()); break;
  }
}

template <typename Bits>
void StridedCopy::run_units(const Bits* from, Bits* to, int64_t begin, int64_t end) const {
  while (begin < end) {
    int64_t rest = begin / units_per_outer_;
    const int64_t unit = begin % units_per_outer_;
    const int64_t units = std::min(units_per_outer_ - unit, end - begin);
    const int64_t first = unit * unit_size_;
    const bool is_line = across_.size == 1;
    const Dim& divided = is_line ? inner_ : across_;
    const int64_t size = std::min(divided.size - first, units * unit_size_);
    const Bits* source = from + first * divided.from;
    Bits* target = to + first * divided.to;
    for (int d = num_outer_dims_; d-- > 0;) {
      const Dim& dim = outer_[static_cast<size_t>(d)];
      source += rest % dim.size * dim.from;
      target += rest % dim.size * dim.to;
      rest /= dim.size;
    }
    copy_plane(source, target, is_line ? 1 : size, is_line ? size : inner_.size);
    begin += units;
  }
}

template <typename Bits>
void StridedCopy::copy_plane(const Bits* from, Bits* to, int64_t across_size, int64_t inner_size) const {
  if (inner_.from == 1 && inner_.to == 1) {
    for (int64_t a = 0; a < across_size; ++a) {
      std::memcpy(to + a * across_.to, from + a * across_.from, static_cast<size_t>(inner_size) * sizeof(Bits));
    }
    return;
  }
  if (inner_.from == 0 && inner_.to == 1) {
    for (int64_t a = 0; a < across_size; ++a) repeat(from[a * across_.from], to + a * across_.to, inner_size);
    return;
  }
  for (int64_t i = 0; i < inner_size; i += kInner) {
    for (int64_t a = 0; a < across_size; a += kAcross) {
      copy_piece(from + a * across_.from + i * inner_.from, to + a * across_.to + i * inner_.to,
                 std::min(kAcross, across_size - a), std::min(kInner, inner_size - i));
    }
  }
}

// A piece of a transpose; a whole one through a buffer in the first-level cache: read along across, written along
// inner.
template <typename Bits>
void StridedCopy::copy_piece(const Bits* from, Bits* to, int64_t a_end, int64_t i_end) const {
  const auto one_by_one = [&](int64_t a_first, int64_t a_last, int64_t i_first, int64_t i_last) {
    for (int64_t a = a_first; a < a_last; ++a) {
      const Bits* source = from + a * across_.from;
      Bits* target = to + a * across_.to;
      for (int64_t i = i_first; i < i_last; ++i) target[i * inner_.to] = source[i * inner_.from];
    }
  };
  if (across_.from != 1 || inner_.to != 1) return one_by_one(0, a_end, 0, i_end);
  if (a_end < kAcross || i_end < kInner) {
    if constexpr (sizeof(Bits) == 4) {
      const int64_t a_whole = a_end / kSmall * kSmall;
      const int64_t i_whole = i_end / kSmall * kSmall;
      for (int64_t i = 0; i < i_whole; i += kSmall) {
        for (int64_t a = 0; a < a_whole; a += kSmall) {
          transpose_4x4(from + i * inner_.from + a, inner_.from, to + a * across_.to + i, across_.to);
        }
      }
      one_by_one(a_whole, a_end, 0, i_whole);
      one_by_one(0, a_end, i_whole, i_end);
    } else {
      one_by_one(0, a_end, 0, i_end);
    }
    return;
  }
  // No prefetcher sees these patterns coming: ask for the lines of this piece's result and of the next one's operand.
  for (int64_t a = 0; a < kAcross; ++a) {
    const auto* line = reinterpret_cast<const std::byte*>(to + a * across_.to);
    for (size_t at = 0; at < kInner * sizeof(Bits); at += 64) __builtin_prefetch(line + at, 1, 2);
  }
  for (int64_t i = 0; i < kInner; ++i) __builtin_prefetch(from + i * inner_.from + kAcross, 0, 2);
  alignas(64) Bits buffer[kAcross][kInner];
  if constexpr (sizeof(Bits) == 4) {
    for (int64_t i = 0; i < kInner; i += kSmall) {
      for (int64_t a = 0; a < kAcross; a += kSmall) {
        transpose_4x4(from + i * inner_.from + a, inner_.from, &buffer[a][i], kInner);
      }
    }
  } else {
    for (int64_t i = 0; i < kInner; ++i) {
      const Bits* source = from + i * inner_.from;
      for (int64_t a = 0; a < kAcross; ++a) buffer[a][i] = source[a];
    }
  }
  for (int64_t a = 0; a < kAcross; ++a) std::memcpy(to + a * across_.to, buffer[a], sizeof buffer[a]);
}

}  // namespace tessera
