#include "tessera/train/saving/snapshot.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/files/stream_copy.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"
#include "tessera/base/workers/in_threads.h"
#include "tessera/base/workers/thread_cpu.h"
#include "tessera/session/values/device_snapshot.h"
#include "tessera/tensor/alignment.h"

namespace tessera::train {
namespace {

constexpr int64_t kHugePage = 2 << 20;
// A thread that waits for a slice in the hands of the background's, which gives way to others, waits for no more than
// this.
constexpr int64_t kSliceBytes = 1 << 20;

int64_t rounded_up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

// Memory whose pages are there.
std::shared_ptr<void> taken_memory(int64_t bytes) {
  void* data = std::aligned_alloc(kHugePage, static_cast<size_t>(bytes));
  if (data == nullptr) {
    throw InvalidArgument(
        "a checkpoint that is saved while training goes on needs memory for a copy of {}, which is not there; save "
        "without async_save",
        format_bytes(bytes));
  }
  std::shared_ptr<void> memory(data, std::free);
  ::madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // where the system has them
  for_each_in_threads(threads_for(bytes), static_cast<size_t>(bytes / kHugePage),
                      [&](size_t i) { std::memset(static_cast<std::byte*>(data) + i * kHugePage, 0, kHugePage); });
  return memory;
}

// From the first to behind the last element.
std::pair<const std::byte*, const std::byte*> addresses_of(const TensorView& view) {
  const auto* begin = static_cast<const std::byte*>(view.data);
  if (view.num_elements() == 0) return {begin, begin};
  int64_t last = 0;
  for (int d = 0; d < view.shape.ndim(); ++d) last += (view.shape[d] - 1) * view.strides[d];
  return {begin, begin + (last + 1) * static_cast<int64_t>(size_bytes(view.dtype))};
}

}  // namespace

bool Snapshot::reserve_on_device(std::span<const checkpoint::StreamedRegion> regions) {
  if (on_device_->reserve(regions)) return true;
  if (!no_room_said_) {
    int64_t bytes = 0;
    for (const auto& region : regions) bytes += region.type().size_bytes();
    const auto free = on_device_->device().free_bytes();
    log_warning(
        "{} has no room for the copy of {} that a checkpoint needs which is saved while training goes on{}: the values "
        "are read to the host's memory, and training waits for that",
        on_device_->device().name(), format_bytes(bytes), free ? ", " + format_bytes(*free) + " are free" : "");
  }
  no_room_said_ = true;
  return false;
}

std::vector<checkpoint::StreamedRegion> Snapshot::begin_on_device(std::span<const checkpoint::StreamedRegion> regions) {
  return on_device_->begin(regions);
}

int64_t Snapshot::device_bytes() const { return on_device_ == nullptr ? 0 : on_device_->size_bytes(); }

std::vector<Tensor> Snapshot::allocate(std::span<const Type> types) {
  check(num_left_ == 0, "a snapshot is under way");
  int64_t bytes = 0;
  for (const Type& type : types) bytes += aligned(type.size_bytes());
  if (bytes > size_bytes_) {
    memory_.reset();
    size_bytes_ = 0;
    const int64_t taken = rounded_up(bytes, kHugePage);
    memory_ = file_ ? allocate_in_file(*file_, taken) : taken_memory(taken);
    size_bytes_ = rounded_up(bytes, kHugePage);
  }
  std::vector<Tensor> tensors;
  int64_t at = 0;
  for (const Type& type : types) {
    tensors.push_back(Tensor::wrap(type, {memory_, static_cast<std::byte*>(memory_.get()) + at}));
    at += aligned(type.size_bytes());
  }
  return tensors;
}

void Snapshot::begin(std::span<const checkpoint::ViewCopy> copies) {
  check(num_left_ == 0, "a snapshot is under way");
  const auto cut = checkpoint::cut_copies(copies, kSliceBytes);
  slices_ = std::make_unique<Slice[]>(cut.size());
  num_slices_ = cut.size();
  places_.clear();
  for (size_t i = 0; i < cut.size(); ++i) {
    slices_[i].copy = cut[i];
    const auto [begin, end] = addresses_of(cut[i].from);
    places_.push_back({begin, end, &slices_[i]});
  }
  std::sort(places_.begin(), places_.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  process_ = ::getpid();
  num_left_ = cut.size();
}

// A child of fork() would wait for ever for a slice that a thread of its parent's has in its hands.
bool Snapshot::is_under_way() {
  if (num_left_ != 0 && process_ != ::getpid()) num_left_ = 0;
  return num_left_ != 0;
}

void Snapshot::finish(const TensorView& changed, const ParallelFor& threads) {
  if (beside_ != nullptr) beside_->finish(changed, threads);
  if (on_device_ != nullptr) on_device_->hold_changes();
  if (!is_under_way()) return;
  const auto [begin, end] = addresses_of(changed);
  const auto first = std::partition_point(places_.begin(), places_.end(),
                                          [begin = begin](const Extent& place) { return place.end <= begin; });
  const auto last =
      std::partition_point(first, places_.end(), [end = end](const Extent& place) { return place.begin < end; });
  // Those that nobody has begun first: meanwhile the others get done.
  threads(last - first, 1, [&](int64_t from, int64_t to) {
    for (auto place = first + from; place != first + to; ++place) copy(*place->slice);
  });
  for (auto place = first; place != last; ++place) place->slice->state.wait(kTaken);
}

void Snapshot::finish() {
  if (beside_ != nullptr) beside_->finish();
  if (on_device_ != nullptr) on_device_->synchronize();
  finish_slices();
}

void Snapshot::finish_slices() {
  if (!is_under_way()) return;
  for (size_t i = 0; i < num_slices_; ++i) copy(slices_[i]);
  for (size_t i = 0; i < num_slices_; ++i) slices_[i].state.wait(kTaken);
}

void Snapshot::finish_in_background() {
  if (copies_in_background_) return finish_slices();
  for (size_t i = 0; i < num_slices_; ++i) {
    slices_[i].state.wait(kWaiting);
    slices_[i].state.wait(kTaken);
  }
}

void Snapshot::forget() {
  if (beside_ != nullptr) beside_->forget();
  num_left_ = 0;
  if (on_device_ != nullptr) on_device_->forget();
}

// Unless another thread does.
void Snapshot::copy(Slice& slice) {
  State expected = kWaiting;
  if (!slice.state.compare_exchange_strong(expected, kTaken)) return;
  const int64_t begin = thread_cpu_ns();
  const auto& [from, to] = slice.copy;
  if (from.dtype == to.dtype && from.is_dense() && to.is_dense()) {
    const auto size = static_cast<size_t>(from.size_bytes());
    stream_copy({static_cast<const std::byte*>(from.data), size}, {static_cast<std::byte*>(to.data), size});
  } else {
    copy_elements(from, to);
  }
  cpu_ns_ += thread_cpu_ns() - begin;
  slice.state = kDone;
  slice.state.notify_all();
  --num_left_;
}

}  // namespace tessera::train
