// SpanBuffer: the spans of one lane of a rank, in memory that is taken once. Where it is full, the oldest spans make
// way and are counted. Thread-safe; adding allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tessera/timeline/span.h"

namespace tessera::timeline {

class SpanBuffer {
 public:
  // Takes and touches memory for `capacity` spans, at least 1.
  SpanBuffer(std::string title, size_t capacity);

  const std::string& title() const { return title_; }
  void add(const TimedSpan& added) { add_all({&added, 1}); }
  void add_all(std::span<const TimedSpan> added);

  struct Contents {
    std::vector<TimedSpan> spans;  // in the order in which they were added, which is that of their ends
    int64_t num_dropped = 0;
    int64_t whole_from_ns = 0;  // what begins then or later has all its spans; 0 where nothing was dropped
  };
  Contents contents() const;
  // Forgets all spans.
  void clear();

 private:
  std::string title_;
  mutable std::mutex mutex_;
  std::vector<TimedSpan> spans_;
  int64_t num_added_ = 0;
  int64_t dropped_until_ns_ = 0;
};

}  // namespace tessera::timeline
