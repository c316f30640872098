#include "tessera/session/values/sliced_read.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "tessera/base/logging.h"
#include "tessera/checkpoint/format/region_runs.h"

namespace tessera::session {
namespace {

// What is read along rather than begin another copy, which costs as much time as so many bytes.
constexpr int64_t kGapBytes = 64 << 10;
// What is handed over at once; as RecordWriter likes it.
constexpr int64_t kHandedBytes = 1 << 20;

// Reads runs of a value's bytes, in order, through slices.
class RunReader {
 public:
  RunReader(TransferSlices& slices, const SlicedRead& value, checkpoint::ElementStream::Sink sink)
      : slices_(slices), value_(value), sink_(sink) {}
  // What is read may go as soon as the reading has ended, also where that is by an error.
  ~RunReader() {
    for (const Load& load : under_way_) {
      try {
        load.slice->copied->synchronize();
      } catch (const std::exception& error) {
        log_error("copies from a device have failed: {}", error.what());
      }
    }
  }
  RunReader(const RunReader&) = delete;
  RunReader& operator=(const RunReader&) = delete;

  void add(ValueStretch run) {
    while (run.bytes > 0) {
      std::byte* const there = value_.address_of(run.first);
      const int64_t gap = next_.pieces.empty() ? 0 : there - (next_.pieces.back().there + next_.pieces.back().bytes);
      const bool joins = !next_.pieces.empty() && gap < kGapBytes && next_.bytes + gap < slices_.slice_bytes();
      const int64_t offset = next_.bytes + (joins ? gap : 0);
      const int64_t size = std::min(run.bytes, slices_.slice_bytes() - offset);
      if (joins) {
        next_.pieces.back().bytes += gap + size;
      } else {
        next_.pieces.push_back({there, offset, size});
      }
      if (!next_.runs.empty() && next_.runs.back().first + next_.runs.back().bytes == offset) {
        next_.runs.back().bytes += size;
      } else {
        next_.runs.push_back({offset, size});
      }
      next_.bytes = offset + size;
      run = {run.first + size, run.bytes - size};
      if (next_.bytes == slices_.slice_bytes()) begin_next();
    }
  }
  void finish() {
    if (!next_.pieces.empty()) begin_next();
    while (!under_way_.empty()) hand_over();
  }

 private:
  // What one slice takes.
  struct Load {
    TransferSlices::Held slice;
    std::vector<TransferSlices::Piece> pieces;
    std::vector<ValueStretch> runs;  // of the slice: what is wanted of it
    int64_t bytes = 0;
  };

  void begin_next() {
    while (next_.slice == nullptr) {
      next_.slice = under_way_.empty() ? slices_.take() : slices_.try_take();
      if (next_.slice == nullptr) hand_over();
    }
    under_way_.push_back(std::move(next_));
    next_ = Load();
    slices_.read(*under_way_.back().slice, under_way_.back().pieces);
    if (under_way_.size() > 1) hand_over();
  }

  void hand_over() {
    const Load load = std::move(under_way_.front());
    under_way_.pop_front();
    load.slice->copied->synchronize();
    if (load.runs.size() == 1)
      return give({load.slice->data + load.runs[0].first, static_cast<size_t>(load.runs[0].bytes)});
    packed_.clear();
    for (const ValueStretch& run : load.runs) {
      const std::byte* const begin = load.slice->data + run.first;
      packed_.insert(packed_.end(), begin, begin + run.bytes);
    }
    give(packed_);
  }

  void give(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const size_t size = std::min<size_t>(bytes.size(), kHandedBytes);
      sink_(bytes.first(size));
      bytes = bytes.subspan(size);
    }
  }

  TransferSlices& slices_;
  const SlicedRead& value_;
  checkpoint::ElementStream::Sink sink_;
  Load next_;
  std::deque<Load> under_way_;
  std::vector<std::byte> packed_;
};

}  // namespace

ValueStretch stretch_of_region(const Type& type, const checkpoint::Region& region) {
  const auto whole = checkpoint::Region::whole(type.shape);
  const auto element_bytes = static_cast<int64_t>(size_bytes(type.dtype));
  checkpoint::Region last = region;
  for (int dim = 0; dim < last.ndim(); ++dim) last.offset[dim] += last.shape[dim] - 1;
  const int64_t first = checkpoint::offset_in(whole, region);
  return {first * element_bytes, (checkpoint::offset_in(whole, last) + 1 - first) * element_bytes};
}

void SlicedRead::read(const checkpoint::Region& region, Sink sink) const {
  if (region.is_empty()) return;
  if (source_.after != nullptr) slices_.wait(*source_.after);
  const auto whole = checkpoint::Region::whole(type().shape);
  const auto element_bytes = static_cast<int64_t>(size_bytes(type().dtype));
  RunReader reader(slices_, *this, sink);
  checkpoint::for_each_run(region, whole, [&](const checkpoint::Region& run) {
    reader.add({checkpoint::offset_in(whole, run) * element_bytes, run.shape.num_elements() * element_bytes});
  });
  reader.finish();
}

}  // namespace tessera::session
