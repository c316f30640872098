#include "tessera/executor/input_feed.h"

#include <exception>

#include "tessera/base/logging.h"
#include "tessera/tensor/alignment.h"

namespace tessera::executor {

InputFeed::InputFeed(Device& device, Queue& computing)
    : device_(device),
      computing_(computing),
      are_here_(device.make_event()),
      are_taken_(device.make_event()),
      queue_(device.make_queue()) {}

// Each queue may hold work that waits for the other one.
InputFeed::~InputFeed() {
  try {
    wait();
  } catch (const std::exception& error) {
    log_error("a device has failed before its last inputs were there: {}", error.what());
  }
}

void InputFeed::wait() {
  computing_.synchronize();
  queue_->synchronize();
}

void InputFeed::make_room(int64_t bytes) {
  if (bytes <= size_bytes_) return;
  wait();
  memory_.reset();  // before the larger one is there
  size_bytes_ = 0;
  memory_ = device_.reserve(bytes);
  memory_->resize(bytes);
  size_bytes_ = bytes;
}

void InputFeed::give(std::span<const Input> inputs) {
  int64_t bytes = 0;
  for (const Input& input : inputs) bytes += aligned(input.bytes);
  if (bytes == 0) return;
  make_room(bytes);
  queue_->wait(*are_taken_);  // those of the step before
  std::byte* at = memory_->data();
  for (const Input& input : inputs) {
    queue_->copy(at, input.from, input.bytes, CopyWay::kToDevice);
    at += aligned(input.bytes);
  }
  queue_->record(*are_here_);
  computing_.wait(*are_here_);
  at = memory_->data();
  for (const Input& input : inputs) {
    computing_.copy(input.to, at, input.bytes, CopyWay::kWithin);
    at += aligned(input.bytes);
  }
  computing_.record(*are_taken_);
}

}  // namespace tessera::executor
