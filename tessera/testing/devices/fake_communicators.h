// FakeCommunicators: connects the fake devices of ranks that are threads of one process. Collectives are done in their
// queues, late as all work there, and give the bits of those in the host's memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tessera/tensor/device_communicator.h"

namespace tessera {

class FakeCommunicators final : public DeviceCommunicators {
 public:
  // Whether whoever asks is on a device of its own, or all are on one.
  enum class Places { kApart, kOne };
  explicit FakeCommunicators(Places places = Places::kApart) : places_(places) {}

  std::string name() override { return "fake"; }
  std::string place() override;
  std::string make_id() override;
  std::unique_ptr<DeviceCommunicator> join(const std::string& id, int rank, int size,
                                           std::function<void()> waiting) override;

  // Calls that were given so far, by all ranks; a replayed one counts once.
  int64_t num_calls() const { return *num_calls_; }
  // From now on the call with that number fails in the device, where it is given; -1: none does.
  void set_failing_call(int64_t number) { *failing_call_ = number; }

 private:
  Places places_;
  std::atomic<int> num_places_ = 0;
  std::shared_ptr<std::atomic<int64_t>> num_calls_ = std::make_shared<std::atomic<int64_t>>(0);
  std::shared_ptr<std::atomic<int64_t>> failing_call_ = std::make_shared<std::atomic<int64_t>>(-1);
};

}  // namespace tessera
