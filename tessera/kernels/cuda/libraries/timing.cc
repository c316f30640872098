#include "tessera/kernels/cuda/libraries/timing.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"
#include "tessera/kernels/cuda/device/cuda_queue.h"
#include "tessera/kernels/cuda/device/driver.h"

namespace tessera::cuda {
namespace {

// Milliseconds between two events around a few runs.
class Stopwatch {
 public:
  explicit Stopwatch(CudaDevice& device) : device_(device), queue_(device.make_queue()) {
    for (auto& event : events_) device_.require(driver().create_event(&event, CU_EVENT_DEFAULT), "making an event");
  }
  ~Stopwatch() {
    for (const auto event : events_) driver().destroy_event(event);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  float time(const std::function<void(Queue&)>& run, int repetitions) {
    const CUstream stream = stream_of(*queue_);
    device_.require(driver().record_event(events_[0], stream), "measuring");
    for (int i = 0; i < repetitions; ++i) run(*queue_);
    device_.require(driver().record_event(events_[1], stream), "measuring");
    device_.require(driver().synchronize_event(events_[1]), "measuring");
    float milliseconds = 0;
    device_.require(driver().event_time(&milliseconds, events_[0], events_[1]), "measuring");
    return milliseconds / static_cast<float>(repetitions);
  }

 private:
  const CudaDevice& device_;
  const std::unique_ptr<Queue> queue_;
  std::array<CUevent, 2> events_{};
};

}  // namespace

DeviceBuffer::DeviceBuffer(const CudaDevice& device, int64_t bytes) : device_(device) {
  device.use();
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 64));
  device_.require(driver().allocate(&address_, size),
                  fmt::format("taking {} to measure kernels with", format_bytes(bytes)));
  device_.require(driver().fill_now(address_, 0x3C, size), "filling memory");
}
DeviceBuffer::~DeviceBuffer() {
  device_.try_use();
  driver().free(address_);
}

std::optional<size_t> fastest(CudaDevice& device, size_t count, const std::function<void(size_t, Queue&)>& run) {
  device.use();
  Stopwatch watch(device);
  size_t best = count;
  float best_time = std::numeric_limits<float>::infinity();
  for (size_t way = 0; way < count; ++way) {
    try {
      const auto once = [&](Queue& queue) { run(way, queue); };
      const float first = watch.time(once, 1);
      if (first > 20 * best_time) continue;
      const int repetitions = std::clamp(static_cast<int>(2.0F / std::max(first, 1e-3F)), 2, 20);
      std::array<float, 3> times{};
      for (float& time : times) time = watch.time(once, repetitions);
      std::sort(times.begin(), times.end());
      if (times[1] < best_time) {
        best_time = times[1];
        best = way;
      }
    } catch (const Error& error) {
      log_info("a way of a library is passed over: {}", error.what());
    }
  }
  if (best == count) return std::nullopt;
  return best;
}

}  // namespace tessera::cuda
