#include "tessera/timeline/span_buffer.h"

#include <algorithm>
#include <utility>

namespace tessera::timeline {

SpanBuffer::SpanBuffer(std::string title, size_t capacity)
    : title_(std::move(title)), spans_(std::max<size_t>(capacity, 1)) {}

void SpanBuffer::add_all(std::span<const TimedSpan> added) {
  const std::lock_guard lock(mutex_);
  for (const TimedSpan& span : added) {
    TimedSpan& place = spans_[static_cast<size_t>(num_added_) % spans_.size()];
    if (num_added_ >= std::ssize(spans_)) dropped_until_ns_ = std::max(dropped_until_ns_, place.end_ns);
    place = span;
    ++num_added_;
  }
}

SpanBuffer::Contents SpanBuffer::contents() const {
  const std::lock_guard lock(mutex_);
  Contents found;
  const int64_t size = std::ssize(spans_);
  found.num_dropped = std::max<int64_t>(0, num_added_ - size);
  found.whole_from_ns = dropped_until_ns_;
  found.spans.reserve(static_cast<size_t>(num_added_ - found.num_dropped));
  for (int64_t i = found.num_dropped; i < num_added_; ++i) found.spans.push_back(spans_[static_cast<size_t>(i % size)]);
  return found;
}

void SpanBuffer::clear() {
  const std::lock_guard lock(mutex_);
  num_added_ = 0;
  dropped_until_ns_ = 0;
}

}  // namespace tessera::timeline
