// The stages of a data set that only choose and order rows: shuffle, repeat, take, skip. Each is a function from a
// place in its output to a place in its input, so any row of any epoch can be asked for at any time, by any thread.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "tessera/base/function_ref.h"
#include "tessera/base/random.h"

namespace tessera::data {

// The size of a data set that repeats without end.
inline constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

struct EpochIndex {
  int64_t epoch = 0;
  int64_t index = 0;
};

class IndexStage {
 public:
  virtual ~IndexStage() = default;
  virtual int64_t size() const = 0;
  virtual EpochIndex input_place(EpochIndex output) const = 0;
};

// Remembers the orders of the few epochs that are in use at a time. Thread-safe.
class OrderCache {
 public:
  // Element `index` of the order of `epoch`; make(epoch, order) fills an order when it is not remembered.
  int64_t at(int64_t epoch, int64_t index, FunctionRef<void(int64_t, std::vector<int64_t>&)> make);

 private:
  struct Entry {
    int64_t epoch = -1;
    uint64_t last_used = 0;
    std::vector<int64_t> order;
  };
  std::mutex mutex_;
  uint64_t uses_ = 0;
  // Batches made ahead reach into the next epoch, rarely further; the memory of the oldest is used again.
  std::array<Entry, 3> entries_;
};

// The order in which a buffer of `buffer_size` rows hands out the rows 0 .. n-1 that pass through it: the buffer is
// filled, then again and again one of its rows, uniformly drawn, goes out and the next row comes in. Row i is never
// handed out before i - buffer_size + 1 others were. With buffer_size >= n every permutation is equally likely. This is
// the reference's shuffle(buffer_size).
void buffer_shuffle(const RandomStream& stream, int64_t n, int64_t buffer_size, std::vector<int64_t>& order);

std::shared_ptr<const IndexStage> shuffle_stage(int64_t input_size, int64_t buffer_size, uint64_t seed,
                                                uint64_t stream);
// count == kEndless repeats without end.
std::shared_ptr<const IndexStage> repeat_stage(int64_t input_size, int64_t count);
std::shared_ptr<const IndexStage> take_stage(int64_t input_size, int64_t count);
std::shared_ptr<const IndexStage> skip_stage(int64_t input_size, int64_t count);

}  // namespace tessera::data
