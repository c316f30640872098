#include "tessera/compiler/passes/memory_plan.h"

#include <algorithm>

namespace tessera::compiler {

int64_t aligned(int64_t bytes) { return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment; }

int MemoryPlan::add_buffer(int64_t bytes) {
  buffers_.push_back({.bytes = aligned(bytes)});
  return static_cast<int>(buffers_.size()) - 1;
}

int MemoryPlan::add_value(int buffer, int64_t at) {
  const auto value = static_cast<int>(places_.size());
  places_.push_back({buffer, at});
  mutable_buffer(buffer).values.push_back(value);
  return value;
}

void MemoryPlan::touch(int value, int step) {
  Buffer& buffer = mutable_buffer(place(value).buffer);
  buffer.first = std::min(buffer.first, step);
  buffer.last = std::max(buffer.last, step);
}

void MemoryPlan::move_buffer(int from, int to, int64_t at) {
  Buffer& source = mutable_buffer(from);
  Buffer& target = mutable_buffer(to);
  for (const int value : source.values) {
    Place& place = places_[static_cast<size_t>(value)];
    place = {to, place.at + at};
    target.values.push_back(value);
  }
  target.first = std::min(target.first, source.first);
  target.last = std::max(target.last, source.last);
  source.values.clear();
  source.bytes = 0;
  source.last = -1;
}

int64_t MemoryPlan::assign_offsets(int64_t base, int num_steps, bool share) {
  std::vector<int> order;
  for (size_t b = 0; b < buffers_.size(); ++b) {
    Buffer& buffer = buffers_[b];
    if (buffer.persistent) continue;
    if (buffer.last < 0 || buffer.bytes == 0) {
      buffer.offset = base;  // nothing lives there
      continue;
    }
    if (!share) {
      buffer.first = 0;
      buffer.last = num_steps;
    }
    order.push_back(static_cast<int>(b));
  }
  // Largest first, each at the lowest place that is free while it lives: the usual greedy for offline allocation.
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return buffer(a).bytes > buffer(b).bytes; });
  std::vector<int> placed;  // by offset
  int64_t end = base;
  for (const int b : order) {
    Buffer& own = mutable_buffer(b);
    int64_t at = base;
    for (const int p : placed) {
      const Buffer& other = buffer(p);
      if (other.last < own.first || other.first > own.last) continue;
      if (at + own.bytes <= other.offset) break;
      at = std::max(at, other.offset + other.bytes);
    }
    own.offset = at;
    end = std::max(end, at + own.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), b,
                                   [&](int x, int y) { return buffer(x).offset < buffer(y).offset; }),
                  b);
  }
  return end;
}

int MemoryPlan::peak_step(int num_steps) const {
  std::vector<int64_t> change(static_cast<size_t>(num_steps) + 2);
  for (const Buffer& buffer : buffers_) {
    if (buffer.persistent || buffer.last < 0 || buffer.bytes == 0) continue;
    change[static_cast<size_t>(std::max(buffer.first, 0))] += buffer.bytes;
    change[static_cast<size_t>(buffer.last) + 1] -= buffer.bytes;
  }
  int64_t alive = 0;
  int64_t most = -1;
  int peak = 0;
  for (size_t s = 0; s + 1 < change.size(); ++s) {
    alive += change[s];
    if (alive > most) {
      most = alive;
      peak = static_cast<int>(s);
    }
  }
  return peak;
}

}  // namespace tessera::compiler
