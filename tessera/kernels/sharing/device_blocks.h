// DeviceBlocks: pieces of a device's memory that several ranks reach, threads of one process or processes of one host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tessera/tensor/device.h"

namespace tessera::kernels {

// Any thread may use them.
class DeviceBlocks {
 public:
  virtual ~DeviceBlocks() = default;
  // So many bytes of the device, aligned to 256, until the last owner is gone. All threads of this process reach them.
  // Throws IoError where the device has no more.
  virtual std::shared_ptr<std::byte> take(int64_t bytes) = 0;
  // By which another process opens a block that was taken here. Throws IoError where none can.
  virtual std::string handle_of(const std::byte* block) = 0;
  // The block of another process, until the last owner is gone. Throws IoError where this process does not reach it.
  virtual std::shared_ptr<std::byte> open(const std::string& handle) = 0;
};

// They are of any device, for ranks that are threads of one process. The device outlives the blocks.
class BlocksOfProcess final : public DeviceBlocks {
 public:
  explicit BlocksOfProcess(Device& device) : device_(device) {}
  std::shared_ptr<std::byte> take(int64_t bytes) override;
  std::string handle_of(const std::byte* block) override;
  std::shared_ptr<std::byte> open(const std::string& handle) override;

 private:
  Device& device_;
};

}  // namespace tessera::kernels
