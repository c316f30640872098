#include "tessera/compiler/schedule/memory_plan.h"

#include <algorithm>

#include "tessera/tensor/alignment.h"

namespace tessera::compiler {

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
    Address& place = places_[static_cast<size_t>(value)];
    place = {to, place.at + at};
    target.values.push_back(value);
  }
  target.first = std::min(target.first, source.first);
  target.last = std::max(target.last, source.last);
  source.values.clear();
  source.bytes = 0;
  source.last = -1;
}

bool MemoryPlan::is_planned(const Buffer& buffer) { return !buffer.persistent && buffer.last >= 0 && buffer.bytes > 0; }

MemoryUse MemoryPlan::assign_offsets(int64_t base, int num_steps, bool share, int idle_steps) {
  std::vector<int> planned;
  std::vector<Lifetime> lifetimes;
  for (size_t b = 0; b < buffers_.size(); ++b) {
    Buffer& buffer = buffers_[b];
    if (!buffer.persistent) buffer.offset = base;  // stays so where nothing lives
    if (!is_planned(buffer)) continue;
    if (!share) {
      buffer.first = 0;
      buffer.last = num_steps;
    }
    planned.push_back(static_cast<int>(b));
    lifetimes.push_back({buffer.bytes, buffer.first, std::min(buffer.last + idle_steps, num_steps)});
  }
  const auto packing = pack(lifetimes);
  for (size_t i = 0; i < planned.size(); ++i) mutable_buffer(planned[i]).offset = base + packing.offsets[i];
  const auto peak = peak_of(lifetimes);
  return {.end = base + packing.bytes, .peak_bytes = peak.bytes, .peak_step = peak.step};
}

std::vector<ir::MemoryBlock> MemoryPlan::blocks() const {
  std::vector<ir::MemoryBlock> blocks;
  for (const Buffer& buffer : buffers_) {
    if (!is_planned(buffer)) continue;
    blocks.push_back({buffer.offset, buffer.bytes, buffer.first, buffer.last, buffer.values});
  }
  return blocks;
}

}  // namespace tessera::compiler
