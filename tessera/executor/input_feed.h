// InputFeed: the way of a step's data inputs to a device while the step before is computed there. They are copied by a
// queue of their own into memory of their own, and from there, by the queue that computes, to where the step reads
// them: so what is recorded of a step keeps its addresses, and what the step before still reads is not written over.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tessera/tensor/device.h"

namespace tessera::executor {

class InputFeed {
 public:
  // Both outlive it; `computing` is a queue of the device.
  InputFeed(Device& device, Queue& computing);
  // Waits for the copies that are under way.
  ~InputFeed();
  InputFeed(const InputFeed&) = delete;
  InputFeed& operator=(const InputFeed&) = delete;

  struct Input {
    void* to = nullptr;          // of the device
    const void* from = nullptr;  // of the host, best of Device::allocate_on_host
    int64_t bytes = 0;
  };
  // Copies the inputs of a step. What the queue that computes is given later finds them; the host's memory must stay
  // as it is until the first of that is done. Takes more of the device's memory where no step has had so many bytes.
  void give(std::span<const Input> inputs);

 private:
  void make_room(int64_t bytes);
  void wait();

  Device& device_;
  Queue& computing_;
  std::unique_ptr<Memory> memory_;  // of the inputs of one step
  int64_t size_bytes_ = 0;
  std::unique_ptr<Event> are_here_;   // the inputs have come
  std::unique_ptr<Event> are_taken_;  // they are where the step reads them
  std::unique_ptr<Queue> queue_;
};

}  // namespace tessera::executor
