// Queues and events that a CUDA device makes. Internal to this folder.
#pragma once

#include <cuda.h>

#include "tessera/kernels/cuda/device/cuda_device.h"

namespace tessera::cuda {

class CudaEvent final : public Event {
 public:
  CudaEvent(const CudaDevice& device, bool is_timed);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  void synchronize() override;
  bool has_come() override;
  int64_t nanoseconds_since(const Event& earlier) const override;
  CUevent event() const { return event_; }
  bool is_timed() const { return is_timed_; }

 private:
  const CudaDevice& device_;
  bool is_timed_;
  CUevent event_ = nullptr;
};

// A graph of the driver's, ready to be launched.
class CudaRecording final : public Recording {
 public:
  CudaRecording(const CudaDevice& device, CUgraph graph);
  ~CudaRecording() override;
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;
  CUgraphExec executable() const { return executable_; }

 private:
  const CudaDevice& device_;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

class CudaQueue final : public Queue {
 public:
  explicit CudaQueue(const CudaDevice& device);
  ~CudaQueue() override;
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  void launch(const PreparedKernel& kernel, const KernelArgs& args, const bool* guard) override;
  void copy(void* to, const void* from, int64_t bytes, CopyWay way) override;
  void fill(void* to, std::byte value, int64_t bytes) override;
  void record(Event& event) override;
  void wait(Event& event) override;
  void synchronize() override;
  std::unique_ptr<Recording> record(std::span<const RecordedWork> work) override;
  void replay(const Recording& recording) override;

  // Where work goes now: the queue's own stream, or a branch of what is being recorded.
  CUstream stream() const { return branch_ != nullptr ? branch_ : stream_; }
  // Of the kernel that is being launched.
  const bool* guard() const { return guard_; }

 private:
  const CudaDevice& device_;
  CUstream stream_ = nullptr;
  std::vector<CUstream> branches_;  // beside it, for recordings
  CUstream branch_ = nullptr;
  const bool* guard_ = nullptr;
};

}  // namespace tessera::cuda
