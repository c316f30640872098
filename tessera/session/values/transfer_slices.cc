#include "tessera/session/values/transfer_slices.h"

#include "tessera/base/error.h"
#include "tessera/base/logging.h"

namespace tessera::session {

TransferSlices::TransferSlices(Device& device, const SliceSizes& sizes)
    : sizes_(sizes),
      memory_(device.allocate_on_host(sizes.count * sizes.bytes)),
      slices_(static_cast<size_t>(sizes.count)),
      queue_(device.make_queue()) {
  check(sizes.count > 0 && sizes.bytes > 0 && sizes.bytes % 8 == 0, "slices hold whole elements");
  for (size_t i = 0; i < slices_.size(); ++i) {
    slices_[i] = {memory_.get() + static_cast<int64_t>(i) * sizes.bytes, device.make_event()};
    free_.push_back(&slices_[i]);
  }
}

TransferSlices::~TransferSlices() {
  try {
    queue_->synchronize();
  } catch (const std::exception& error) {
    log_error("copies to or from a device have failed: {}", error.what());
  }
}

TransferSlices::Held TransferSlices::take() {
  std::unique_lock lock(free_mutex_);
  is_free_.wait(lock, [this] { return !free_.empty(); });
  Held held(free_.front(), {this});
  free_.pop_front();
  lock.unlock();
  held->copied->synchronize();
  return held;
}

TransferSlices::Held TransferSlices::try_take() {
  std::unique_lock lock(free_mutex_);
  if (free_.empty()) return {};
  Held held(free_.front(), {this});
  free_.pop_front();
  lock.unlock();
  held->copied->synchronize();
  return held;
}

// The one whose copies began last is taken last.
void TransferSlices::give_back(Slice* slice) {
  {
    const std::lock_guard lock(free_mutex_);
    free_.push_back(slice);
  }
  is_free_.notify_one();
}

void TransferSlices::read(Slice& slice, std::span<const Piece> pieces) {
  const std::lock_guard lock(queue_mutex_);
  for (const Piece& piece : pieces) {
    queue_->copy(slice.data + piece.offset, piece.there, piece.bytes, CopyWay::kToHost);
  }
  queue_->record(*slice.copied);
}

void TransferSlices::write(Slice& slice, std::span<const Piece> pieces) {
  const std::lock_guard lock(queue_mutex_);
  for (const Piece& piece : pieces) {
    queue_->copy(piece.there, slice.data + piece.offset, piece.bytes, CopyWay::kToDevice);
  }
  queue_->record(*slice.copied);
}

void TransferSlices::wait(Event& event) {
  const std::lock_guard lock(queue_mutex_);
  queue_->wait(event);
}

void TransferSlices::synchronize() {
  const std::lock_guard lock(queue_mutex_);
  queue_->synchronize();
}

}  // namespace tessera::session
