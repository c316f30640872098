#include "tessera/compiler/schedule/pack.h"

#include <algorithm>
#include <numeric>

#include "tessera/compiler/schedule/occupied.h"

namespace tessera::compiler {
namespace {

// Orders that are tried before giving up: each takes a millisecond for a thousand buffers, and where the first ones
// miss the bound, the buffers that were in the way come into place within a few.
constexpr int kMaxAttempts = 24;
// A packing this close to the bound is good enough: bound * (1 + 1/kTolerance).
constexpr int64_t kTolerance = 500;

// One buffer after the other, each at the lowest place that is free while it lives.
Packing place_in_order(std::span<const Lifetime> buffers, std::span<const int> order, int num_steps) {
  Packing packing{.offsets = std::vector<int64_t>(buffers.size())};
  Occupied occupied(num_steps);
  for (const int b : order) {
    const Lifetime& own = buffers[static_cast<size_t>(b)];
    const int64_t at = occupied.lowest_place(own.bytes, own.first, own.last);
    occupied.take(at, own.bytes, own.first, own.last);
    packing.offsets[static_cast<size_t>(b)] = at;
    packing.bytes = std::max(packing.bytes, at + own.bytes);
  }
  return packing;
}

// The buffers that `key` is greatest for come first.
template <typename Key>
std::vector<int> order_by(std::span<const Lifetime> buffers, Key&& key) {
  std::vector<int> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return key(buffers[static_cast<size_t>(a)]) > key(buffers[static_cast<size_t>(b)]);
  });
  return order;
}

int num_steps_of(std::span<const Lifetime> buffers) {
  int last = -1;
  for (const Lifetime& b : buffers) last = std::max(last, b.last);
  return last + 1;
}

// Those that end above the bound found no room among the others: they are placed before them the next time.
void promote(std::vector<int>& order, std::span<const Lifetime> buffers, const Packing& packing, int64_t bound) {
  std::stable_partition(order.begin(), order.end(), [&](int b) {
    return packing.offsets[static_cast<size_t>(b)] + buffers[static_cast<size_t>(b)].bytes > bound;
  });
}

}  // namespace

Packing pack(std::span<const Lifetime> buffers) {
  const int64_t bound = peak_of(buffers).bytes;
  const int num_steps = num_steps_of(buffers);
  // Large ones first; large and long-lived ones first; those that stay longest first.
  std::vector<std::vector<int>> orders;
  orders.push_back(order_by(buffers, [](const Lifetime& b) { return b.bytes; }));
  orders.push_back(order_by(buffers, [](const Lifetime& b) {
    return static_cast<double>(b.bytes) * static_cast<double>(b.last - b.first + 1);
  }));
  orders.push_back(order_by(buffers, [](const Lifetime& b) { return b.last - b.first; }));
  Packing best;
  const auto is_good = [&] { return best.bytes <= bound + bound / kTolerance; };
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    auto& order = orders[static_cast<size_t>(attempt) % orders.size()];
    auto packing = place_in_order(buffers, order, num_steps);
    promote(order, buffers, packing, bound);
    if (attempt == 0 || packing.bytes < best.bytes) best = std::move(packing);
    if (is_good()) break;
  }
  return best;
}

Peak peak_of(std::span<const Lifetime> buffers) {
  std::vector<int64_t> change(static_cast<size_t>(num_steps_of(buffers)) + 1);
  for (const Lifetime& b : buffers) {
    change[static_cast<size_t>(b.first)] += b.bytes;
    change[static_cast<size_t>(b.last) + 1] -= b.bytes;
  }
  Peak peak;
  int64_t alive = 0;
  for (size_t s = 0; s < change.size(); ++s) {
    alive += change[s];
    if (alive > peak.bytes) peak = {alive, static_cast<int>(s)};
  }
  return peak;
}

}  // namespace tessera::compiler
