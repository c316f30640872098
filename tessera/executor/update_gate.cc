#include "tessera/executor/update_gate.h"

namespace tessera::executor {

UpdateGate::UpdateGate(Device& device, Queue& queue) : queue_(queue), memory_(device.reserve(sizeof(bool))) {
  memory_->resize(sizeof(bool));
  open();
}

void UpdateGate::open() {
  queue_.fill(memory_->data(), std::byte{1}, sizeof(bool));
  is_doubted_ = false;
}

}  // namespace tessera::executor
