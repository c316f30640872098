#include "tessera/data/index_stages.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tessera::data {
namespace {

class Shuffle : public IndexStage {
 public:
  Shuffle(int64_t size, int64_t buffer_size, uint64_t seed, uint64_t stream)
      : size_(size), buffer_size_(buffer_size), seed_(seed), stream_(stream) {}
  int64_t size() const override { return size_; }
  EpochIndex input_place(EpochIndex output) const override {
    const auto make = [this](int64_t epoch, std::vector<int64_t>& order) {
      buffer_shuffle({seed_, stream_, static_cast<uint64_t>(epoch)}, size_, buffer_size_, order);
    };
    return {output.epoch, cache_.at(output.epoch, output.index, make)};
  }

 private:
  int64_t size_, buffer_size_;
  uint64_t seed_, stream_;
  mutable OrderCache cache_;
};

class Repeat : public IndexStage {
 public:
  Repeat(int64_t input_size, int64_t count) : input_size_(input_size), count_(count) {}
  int64_t size() const override { return count_ == kEndless ? kEndless : input_size_ * count_; }
  EpochIndex input_place(EpochIndex output) const override {
    // Each repetition is an epoch of the input. An endless repeat that something later cuts off has epochs of its own;
    // 2^32 repetitions are kept for each.
    const int64_t first = count_ == kEndless ? output.epoch << 32 : output.epoch * count_;
    return {first + output.index / input_size_, output.index % input_size_};
  }

 private:
  int64_t input_size_, count_;
};

class Range : public IndexStage {
 public:
  Range(int64_t begin, int64_t size) : begin_(begin), size_(size) {}
  int64_t size() const override { return size_; }
  EpochIndex input_place(EpochIndex output) const override { return {output.epoch, output.index + begin_}; }

 private:
  int64_t begin_, size_;
};

}  // namespace

int64_t OrderCache::at(int64_t epoch, int64_t index, FunctionRef<void(int64_t, std::vector<int64_t>&)> make) {
  const std::lock_guard lock(mutex_);
  Entry* entry = &entries_[0];
  for (Entry& candidate : entries_) {
    if (candidate.epoch == epoch) {
      entry = &candidate;
      break;
    }
    if (candidate.last_used < entry->last_used) entry = &candidate;
  }
  if (entry->epoch != epoch) {
    entry->epoch = -1;  // stays so if make throws
    make(epoch, entry->order);
    entry->epoch = epoch;
  }
  entry->last_used = ++uses_;
  return entry->order[static_cast<size_t>(index)];
}

void buffer_shuffle(const RandomStream& stream, int64_t n, int64_t buffer_size, std::vector<int64_t>& order) {
  order.resize(static_cast<size_t>(n));
  // The buffer occupies order[i .. i + live) when row i is handed out: the handed-out row moves to its front, the row
  // that was there takes the drawn place, and the next input row already stands behind. So no buffer is needed.
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t live = std::min(buffer_size, n - i);
    const int64_t drawn = i + random_below(stream, static_cast<uint64_t>(i), live);
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(drawn)]);
  }
}

std::shared_ptr<const IndexStage> shuffle_stage(int64_t input_size, int64_t buffer_size, uint64_t seed,
                                                uint64_t stream) {
  return std::make_shared<Shuffle>(input_size, buffer_size, seed, stream);
}

std::shared_ptr<const IndexStage> repeat_stage(int64_t input_size, int64_t count) {
  return std::make_shared<Repeat>(input_size, count);
}

std::shared_ptr<const IndexStage> take_stage(int64_t input_size, int64_t count) {
  return std::make_shared<Range>(0, std::min(input_size, count));
}

std::shared_ptr<const IndexStage> skip_stage(int64_t input_size, int64_t count) {
  const int64_t skipped = std::min(input_size, count);
  return std::make_shared<Range>(skipped, input_size == kEndless ? kEndless : input_size - skipped);
}

}  // namespace tessera::data
