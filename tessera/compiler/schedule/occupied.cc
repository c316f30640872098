#include "tessera/compiler/schedule/occupied.h"

#include <algorithm>

namespace tessera::compiler {

Occupied::Occupied(int num_steps) {
  while (num_leaves_ < num_steps) num_leaves_ *= 2;
  spans_.resize(2 * static_cast<size_t>(num_leaves_));
}

template <typename Visit>
void Occupied::collect(size_t index, Steps own, Steps steps, const Visit& visit) const {
  if (steps.last < own.first || own.last < steps.first) return;
  const Span& span = spans_[index];
  if (span.sometime.empty()) return;
  if (steps.first <= own.first && own.last <= steps.last) {
    visit(span.sometime);
    return;
  }
  if (!span.throughout.empty()) visit(span.throughout);
  const int middle = own.first + (own.last - own.first) / 2;
  collect(2 * index, {own.first, middle}, steps, visit);
  collect(2 * index + 1, {middle + 1, own.last}, steps, visit);
}

int64_t Occupied::lowest_place(int64_t bytes, int first, int last) const {
  struct Rest {
    const Range* next = nullptr;
    const Range* end = nullptr;
  };
  std::vector<Rest> taken;
  collect(1, {0, num_leaves_ - 1}, {first, last}, [&](const Ranges& ranges) {
    taken.push_back({ranges.data(), ranges.data() + ranges.size()});
  });
  int64_t at = 0;
  // Each list moves the place behind what it has there, until none does.
  for (size_t unmoved = 0, i = 0; unmoved < taken.size(); i = i + 1 < taken.size() ? i + 1 : 0) {
    auto& [next, end] = taken[i];
    while (next != end && next->end <= at) ++next;
    ++unmoved;
    for (; next != end && next->begin < at + bytes; ++next) {
      at = next->end;
      unmoved = 1;
    }
  }
  return at;
}

void Occupied::take(int64_t at, int64_t bytes, int first, int last) {
  take(1, {0, num_leaves_ - 1}, {at, at + bytes}, {first, last});
}

void Occupied::add(Ranges& ranges, Range range) {
  const auto first = std::lower_bound(ranges.begin(), ranges.end(), range.begin,
                                      [](const Range& r, int64_t begin) { return r.end < begin; });
  auto last = first;
  for (; last != ranges.end() && last->begin <= range.end; ++last) {
    range = {std::min(range.begin, last->begin), std::max(range.end, last->end)};
  }
  if (first == last) {
    ranges.insert(first, range);
  } else {
    *first = range;
    ranges.erase(first + 1, last);
  }
}

void Occupied::take(size_t index, Steps own, Range range, Steps steps) {
  if (steps.last < own.first || own.last < steps.first) return;
  Span& span = spans_[index];
  add(span.sometime, range);
  if (steps.first <= own.first && own.last <= steps.last) {
    add(span.throughout, range);
    return;
  }
  const int middle = own.first + (own.last - own.first) / 2;
  take(2 * index, {own.first, middle}, range, steps);
  take(2 * index + 1, {middle + 1, own.last}, range, steps);
}

}  // namespace tessera::compiler
