#include "tessera/kernels/sharing/device_blocks.h"

#include "tessera/base/error.h"

namespace tessera::kernels {

std::shared_ptr<std::byte> BlocksOfProcess::take(int64_t bytes) {
  const std::shared_ptr<Memory> memory = device_.reserve(bytes);
  memory->resize(bytes);
  return {memory, memory->data()};
}

std::string BlocksOfProcess::handle_of(const std::byte*) {
  throw IoError("{}: its memory is of one process", device_.name());
}

std::shared_ptr<std::byte> BlocksOfProcess::open(const std::string&) {
  throw IoError("{}: its memory is of one process", device_.name());
}

}  // namespace tessera::kernels
