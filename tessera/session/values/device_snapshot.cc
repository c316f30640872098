#include "tessera/session/values/device_snapshot.h"

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/tensor/alignment.h"

namespace tessera::session {
namespace {

// What stays free for steps that are compiled later, and for what libraries take when a kernel is first launched.
constexpr int64_t kSpareBytes = int64_t{256} << 20;
constexpr int64_t kGranularity = int64_t{2} << 20;

const SlicedRead& value_of(const checkpoint::StreamedRegion& region) {
  return dynamic_cast<const SlicedRead&>(*region.stream);
}

// Its place in the snapshot: from the first to the last element, with what lies between.
ValueStretch stretch_of(const checkpoint::StreamedRegion& region) {
  return stretch_of_region(region.stream->type(), region.region);
}

}  // namespace

DeviceSnapshot::DeviceSnapshot(executor::Arena& arena, TransferSlices& slices)
    : arena_(arena),
      slices_(slices),
      queue_(arena.device()->make_queue()),
      updated_(arena.device()->make_event()),
      copied_(arena.device()->make_event()) {}

DeviceSnapshot::~DeviceSnapshot() {
  try {
    synchronize();
  } catch (const std::exception& error) {
    log_error("copies of values on a device have failed: {}", error.what());
  }
}

bool DeviceSnapshot::reserve(std::span<const checkpoint::StreamedRegion> regions) {
  int64_t bytes = 0;
  for (const auto& region : regions) bytes += aligned(stretch_of(region).bytes);
  if (bytes <= size_bytes_) return true;
  synchronize();
  memory_.reset();
  size_bytes_ = 0;
  bytes = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  Device& device = *arena_.device();
  if (const auto free = device.free_bytes(); free && *free < bytes + kSpareBytes) return false;
  try {
    auto memory = device.reserve(bytes);
    memory->resize(bytes);
    memory_ = std::move(memory);
    size_bytes_ = bytes;
  } catch (const IoError& error) {
    log_info("{}: {}", device.name(), error.what());
    return false;
  }
  return true;
}

std::vector<checkpoint::StreamedRegion> DeviceSnapshot::begin(std::span<const checkpoint::StreamedRegion> regions) {
  arena_.queue().record(*updated_);
  queue_->wait(*updated_);
  std::vector<checkpoint::StreamedRegion> copies;
  int64_t at = 0;
  for (const auto& region : regions) {
    const ValueStretch stretch = stretch_of(region);
    check(at + stretch.bytes <= size_bytes_, "a snapshot has memory for all its copies");
    std::byte* const to = memory_->data() + at;
    queue_->copy(to, value_of(region).address_of(stretch.first), stretch.bytes, CopyWay::kWithin);
    copies.push_back({std::make_shared<SlicedRead>(slices_, SlicedRead::Source{.there = to,
                                                                               .type = region.stream->type(),
                                                                               .first_byte = stretch.first,
                                                                               .after = copied_}),
                      region.region});
    at += aligned(stretch.bytes);
  }
  queue_->record(*copied_);
  may_be_copying_ = may_be_overtaken_ = true;
  return copies;
}

void DeviceSnapshot::hold_changes() {
  if (may_be_overtaken_.exchange(false)) arena_.queue().wait(*copied_);
}

void DeviceSnapshot::synchronize() {
  if (!may_be_copying_) return;
  copied_->synchronize();
  may_be_copying_ = may_be_overtaken_ = false;
}

}  // namespace tessera::session
