// Compiled once per instruction set; the one that this machine has is chosen when it runs.
#include "tessera/checkpoint/format/element_hash.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tessera/checkpoint/format/element_hash.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which sets the target that it compiles for.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::checkpoint {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr uint64_t kStep = 0x9E3779B97F4A7C15;
constexpr uint64_t kMultiplier1 = 0xBF58476D1CE4E5B9;
constexpr uint64_t kMultiplier2 = 0x94D049BB133111EB;

using D = hn::ScalableTag<uint64_t>;
using V = hn::Vec<D>;

HWY_INLINE V mixed(V x) {
  const D d;
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<30>(x)), hn::Set(d, kMultiplier1));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<27>(x)), hn::Set(d, kMultiplier2));
  return hn::Xor(x, hn::ShiftRight<31>(x));
}

template <typename T>
HWY_INLINE V load(const uint8_t* bytes) {
  const D d;
  // Not aligned: Highway's unaligned loads copy bytes.
  const auto elements = hn::LoadU(hn::Rebind<T, D>(), reinterpret_cast<const T*>(bytes));
  if constexpr (sizeof(T) == sizeof(uint64_t)) {
    return elements;
  } else if constexpr (sizeof(T) == sizeof(uint32_t)) {
    return hn::PromoteTo(d, elements);
  } else {
    return hn::PromoteTo(d, hn::PromoteTo(hn::Rebind<uint32_t, D>(), elements));
  }
}

uint64_t mixed_one(uint64_t x) {
  x = (x ^ x >> 30) * kMultiplier1;
  x = (x ^ x >> 27) * kMultiplier2;
  return x ^ x >> 31;
}

template <typename T>
uint64_t hash(const uint8_t* bytes, size_t count, uint64_t first_index) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  uint64_t place = (first_index + 1) * kStep;
  // Two sums, so that one vector's multiplications do not wait for another's.
  V places = hn::Add(hn::Set(d, place), hn::Mul(hn::Iota(d, 0), hn::Set(d, kStep)));
  const V vector_step = hn::Set(d, kStep * lanes);
  V sum0 = hn::Zero(d);
  V sum1 = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const V next = hn::Add(places, vector_step);
    sum0 = hn::Add(sum0, mixed(hn::Add(load<T>(bytes + i * sizeof(T)), places)));
    sum1 = hn::Add(sum1, mixed(hn::Add(load<T>(bytes + (i + lanes) * sizeof(T)), next)));
    places = hn::Add(next, vector_step);
  }
  // Lane by lane: the compiler's sum of all lanes is one of signed numbers, which must not overflow.
  HWY_ALIGN uint64_t sums[hn::MaxLanes(d)];
  hn::Store(hn::Add(sum0, sum1), d, sums);
  uint64_t sum = 0;
  for (size_t lane = 0; lane < lanes; ++lane) sum += sums[lane];
  place += i * kStep;
  for (; i < count; ++i, place += kStep) {
    T element;
    hwy::CopyBytes<sizeof(T)>(bytes + i * sizeof(T), &element);
    sum += mixed_one(uint64_t{element} + place);
  }
  return sum;
}

uint64_t hash8(const uint8_t* bytes, size_t count, uint64_t first_index) {
  return hash<uint8_t>(bytes, count, first_index);
}
uint64_t hash16(const uint8_t* bytes, size_t count, uint64_t first_index) {
  return hash<uint16_t>(bytes, count, first_index);
}
uint64_t hash32(const uint8_t* bytes, size_t count, uint64_t first_index) {
  return hash<uint32_t>(bytes, count, first_index);
}
uint64_t hash64(const uint8_t* bytes, size_t count, uint64_t first_index) {
  return hash<uint64_t>(bytes, count, first_index);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera::checkpoint
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <vector>

#include "tessera/base/error.h"

namespace tessera::checkpoint {
namespace {

HWY_EXPORT(hash8);
HWY_EXPORT(hash16);
HWY_EXPORT(hash32);
HWY_EXPORT(hash64);

}  // namespace

uint64_t hash_elements(std::span<const std::byte> bytes, int64_t element_bytes, uint64_t first_index) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  const size_t count = bytes.size() / static_cast<size_t>(element_bytes);
  switch (element_bytes) {
    case 1: return HWY_DYNAMIC_DISPATCH(hash8)(data, count, first_index);
    case 2: return HWY_DYNAMIC_DISPATCH(hash16)(data, count, first_index);
    case 4: return HWY_DYNAMIC_DISPATCH(hash32)(data, count, first_index);
    case 8: return HWY_DYNAMIC_DISPATCH(hash64)(data, count, first_index);
    default: break;
  }
  check(false, "elements have 1, 2, 4 or 8 bytes");
  return 0;
}

RegionHash::RegionHash(const Region& region, const Shape& global, int64_t element_bytes)
    : region_(region), strides_(dense_strides(global)), element_bytes_(element_bytes) {
  // The innermost dims that the region has whole, and the one outside them, are one run.
  outer_ndim_ = region.ndim();
  while (outer_ndim_ > 0) {
    --outer_ndim_;
    run_elements_ *= region.shape[outer_ndim_];
    if (region.shape[outer_ndim_] != global[outer_ndim_]) break;
  }
  left_in_run_ = run_elements_;
  at_ = Shape(std::vector<int64_t>(static_cast<size_t>(outer_ndim_), 0));
  for (int dim = 0; dim < region.ndim(); ++dim) index_ += region.offset[dim] * strides_[dim];
}

void RegionHash::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const int64_t elements = std::min(left_in_run_, std::ssize(bytes) / element_bytes_);
    check(elements > 0, "whole elements, and no more than the region has");
    const auto part = bytes.first(static_cast<size_t>(elements * element_bytes_));
    sum_ += hash_elements(part, element_bytes_, static_cast<uint64_t>(index_));
    bytes = bytes.subspan(part.size());
    index_ += elements;
    left_in_run_ -= elements;
    if (left_in_run_ == 0) next_run();
  }
}

void RegionHash::next_run() {
  index_ -= run_elements_;
  left_in_run_ = run_elements_;
  for (int dim = outer_ndim_ - 1; dim >= 0; --dim) {
    index_ += strides_[dim];
    if (++at_[dim] < region_.shape[dim]) return;
    index_ -= region_.shape[dim] * strides_[dim];
    at_[dim] = 0;
  }
  left_in_run_ = 0;  // that was the last one
}

}  // namespace tessera::checkpoint
#endif  // HWY_ONCE
