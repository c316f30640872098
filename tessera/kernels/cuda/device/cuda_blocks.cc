#include "tessera/kernels/cuda/device/cuda_blocks.h"

#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/kernels/cuda/device/driver.h"

namespace tessera::cuda {
namespace {

CUdeviceptr number_of(const std::byte* address) { return reinterpret_cast<CUdeviceptr>(address); }

}  // namespace

// Not mapped in pieces, as the arena is: of such memory the driver gives no handles that are plain bytes.
std::shared_ptr<std::byte> CudaBlocks::take(int64_t bytes) {
  device_.use();
  CUdeviceptr address = 0;
  device_.require(driver().allocate(&address, static_cast<size_t>(bytes)),
                  fmt::format("taking {} of its memory that ranks share", format_bytes(bytes)));
  std::shared_ptr<std::byte> block(reinterpret_cast<std::byte*>(address), [this](std::byte* memory) {
    device_.try_use();
    driver().free(number_of(memory));
  });
  // Done by a stream that those of queues do not wait for.
  device_.require(driver().fill_now(address, 0, static_cast<size_t>(bytes)), "filling memory that ranks share");
  device_.require(driver().synchronize_stream(nullptr), "filling memory that ranks share");
  return block;
}

std::string CudaBlocks::handle_of(const std::byte* block) {
  device_.use();
  CUipcMemHandle handle{};
  device_.require(driver().memory_handle(&handle, number_of(block)), "showing its memory to other processes");
  return {reinterpret_cast<const char*>(&handle), sizeof(handle)};
}

std::shared_ptr<std::byte> CudaBlocks::open(const std::string& bytes) {
  device_.use();
  CUipcMemHandle handle{};
  if (bytes.size() != sizeof(handle)) {
    throw IoError("{}: another process shows its memory by {} bytes, not by {}", device_.name(), bytes.size(),
                  sizeof(handle));
  }
  std::memcpy(&handle, bytes.data(), sizeof(handle));
  CUdeviceptr address = 0;
  device_.require(driver().open_memory(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                  "opening the memory of another process");
  return {reinterpret_cast<std::byte*>(address), [this](std::byte* memory) {
            device_.try_use();
            driver().close_memory(number_of(memory));
          }};
}

}  // namespace tessera::cuda
