// UpdateGate: whether steps on a device may change values. It is a bool in the device's memory: a step whose loss is
// not finite closes it when its turn comes, and what changes values is left out from there on, in that step and in all
// that the device was given by then. So nothing waits for the host to look at a loss, which opens the gate again.
#pragma once

#include <cstddef>
#include <memory>

#include "tessera/tensor/device.h"

namespace tessera::executor {

class UpdateGate {
 public:
  // Makes an open one. The queue, in which all is done that looks at the gate, outlives every call; the device outlives
  // the gate.
  UpdateGate(Device& device, Queue& queue);

  // Where the bool lies, in the device's memory.
  std::byte* address() const { return memory_->data(); }
  // What the queue is given from here on finds it open.
  void open();
  // A run has failed, and nobody knows whether it has closed the gate.
  void doubt() { is_doubted_ = true; }
  void open_if_doubted() {
    if (is_doubted_) open();
  }

 private:
  Queue& queue_;
  std::unique_ptr<Memory> memory_;
  bool is_doubted_ = false;
};

}  // namespace tessera::executor
