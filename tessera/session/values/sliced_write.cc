#include "tessera/session/values/sliced_write.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/checkpoint/format/region_runs.h"
#include "tessera/session/values/sliced_read.h"

namespace tessera::session {
namespace {

// A region of more runs would cost more time for beginning copies than the copies themselves: a reader of checkpoints
// gives 256 KiB at most.
constexpr int64_t kMostRuns = 64;

// Fills slices with runs of a value's bytes and has them copied.
class RunWriter {
 public:
  explicit RunWriter(TransferSlices& slices) : slices_(slices) {}

  void add(std::byte* there, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      if (slice_ == nullptr) slice_ = slices_.take();
      const int64_t size = std::min(std::ssize(bytes), slices_.slice_bytes() - filled_);
      std::memcpy(slice_->data + filled_, bytes.data(), static_cast<size_t>(size));
      pieces_.push_back({there, filled_, size});
      filled_ += size;
      there += size;
      bytes = bytes.subspan(static_cast<size_t>(size));
      if (filled_ == slices_.slice_bytes()) flush();
    }
  }
  void flush() {
    if (slice_ == nullptr) return;
    slices_.write(*slice_, pieces_);
    slice_.reset();
    pieces_.clear();
    filled_ = 0;
  }

 private:
  TransferSlices& slices_;
  TransferSlices::Held slice_;
  std::vector<TransferSlices::Piece> pieces_;
  int64_t filled_ = 0;
};

}  // namespace

SlicedWrite::SlicedWrite(TransferSlices& slices, std::byte* there, const Type& type)
    : slices_(slices), there_(there), type_(type) {}

SlicedWrite::~SlicedWrite() {
  try {
    slices_.synchronize();
  } catch (const std::exception& error) {
    log_error("copies to a device have failed: {}", error.what());
  }
}

void SlicedWrite::write(const checkpoint::Region& region, std::span<const std::byte> elements) {
  if (region.is_empty()) return;
  const auto element_bytes = static_cast<int64_t>(size_bytes(type_.dtype));
  check_equal(std::ssize(elements), region.shape.num_elements() * element_bytes, "bytes of a region that is written");
  const auto whole = checkpoint::Region::whole(type_.shape);
  if (checkpoint::num_runs(region, whole) > kMostRuns) gather_on_host();
  const std::shared_lock lock(mutex_);
  if (on_host_) {
    const TensorView from(const_cast<std::byte*>(elements.data()), Type{type_.dtype, region.shape});
    return copy_elements(from, checkpoint::view_of(on_host_->view(), region));
  }
  RunWriter writer(slices_);
  checkpoint::for_each_run(region, whole, [&](const checkpoint::Region& run) {
    const auto size = static_cast<size_t>(run.shape.num_elements() * element_bytes);
    writer.add(there_ + checkpoint::offset_in(whole, run) * element_bytes, elements.first(size));
    elements = elements.subspan(size);
  });
  writer.flush();
}

// With what was written before.
void SlicedWrite::gather_on_host() {
  const std::unique_lock lock(mutex_);
  if (on_host_) return;
  const Tensor whole(type_);
  slices_.synchronize();
  checkpoint::read_to({std::make_shared<SlicedRead>(slices_, SlicedRead::Source{.there = there_, .type = type_}),
                       checkpoint::Region::whole(type_.shape)},
                      whole.view());
  on_host_ = whole;
}

void SlicedWrite::finish() {
  const std::unique_lock lock(mutex_);
  if (on_host_) {
    RunWriter writer(slices_);
    writer.add(there_, on_host_->bytes());
    writer.flush();
    on_host_.reset();
  }
  slices_.synchronize();
}

}  // namespace tessera::session
