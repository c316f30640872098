#include "tessera/kernels/cuda/device/cuda_memory.h"

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/kernels/cuda/device/driver.h"

namespace tessera::cuda {

CudaMemory::CudaMemory(const CudaDevice& device, int index, int64_t capacity_bytes)
    : device_(device), capacity_bytes_(capacity_bytes) {
  kind_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  kind_.location.id = index;
  size_t granularity = 0;
  device_.require(driver().allocation_granularity(&granularity, &kind_, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                  "looking at its memory");
  granularity_ = static_cast<int64_t>(granularity);
  const int64_t reserved = (capacity_bytes + granularity_ - 1) / granularity_ * granularity_;
  device_.require(driver().reserve_address(&address_, static_cast<size_t>(reserved), 0, 0, 0),
                  fmt::format("reserving addresses for {}", format_bytes(capacity_bytes)));
  capacity_bytes_ = reserved;
}

CudaMemory::~CudaMemory() {
  device_.try_use();
  while (!pieces_.empty()) release_last();
  driver().free_address(address_, static_cast<size_t>(capacity_bytes_));
}

void CudaMemory::release_last() {
  const Piece piece = pieces_.back();
  pieces_.pop_back();
  driver().unmap_memory(address_ + static_cast<CUdeviceptr>(piece.offset), static_cast<size_t>(piece.bytes));
  driver().release_memory(piece.handle);
  mapped_bytes_ -= piece.bytes;
}

void CudaMemory::throw_no_memory(int64_t size_bytes) const {
  const int64_t total = device_.info().memory_bytes;
  const int64_t free = device_.free_bytes().value_or(0);
  // What libraries and the driver have for themselves is no more than that.
  const bool others_have_much = total - free - mapped_bytes_ > total / 8;
  throw NoRoom(
      "{}: out of memory: the arena needs {}, of which it has {}, and of the {} of {} are {} free{}: a smaller batch, "
      "recompute (memory_limit) or more ranks that share the values take less",
      device_.name(), format_bytes(size_bytes), format_bytes(mapped_bytes_), format_bytes(total), device_.info().name,
      format_bytes(free), others_have_much ? "; `nvidia-smi` shows which processes have the rest" : "");
}

void CudaMemory::resize(int64_t size_bytes) {
  device_.use();
  if (size_bytes > capacity_bytes_) {
    throw InvalidArgument("{}: {} are wanted of {}", device_.name(), format_bytes(size_bytes),
                          format_bytes(capacity_bytes_));
  }
  while (!pieces_.empty() && pieces_.back().offset >= size_bytes) release_last();
  if (size_bytes <= mapped_bytes_) return;
  Piece piece{mapped_bytes_, (size_bytes - mapped_bytes_ + granularity_ - 1) / granularity_ * granularity_, 0};
  const CUresult created = driver().create_memory(&piece.handle, static_cast<size_t>(piece.bytes), &kind_, 0);
  if (created == CUDA_ERROR_OUT_OF_MEMORY) throw_no_memory(size_bytes);
  device_.require(created, fmt::format("taking {} for the arena", format_bytes(piece.bytes)));
  const CUdeviceptr at = address_ + static_cast<CUdeviceptr>(piece.offset);
  if (const CUresult result = driver().map_memory(at, static_cast<size_t>(piece.bytes), 0, piece.handle, 0);
      result != CUDA_SUCCESS) {
    driver().release_memory(piece.handle);
    device_.require(result, "mapping memory");
  }
  pieces_.push_back(piece);
  mapped_bytes_ += piece.bytes;
  CUmemAccessDesc access{};
  access.location = kind_.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  device_.require(driver().set_access(at, static_cast<size_t>(piece.bytes), &access, 1), "opening memory to it");
}

}  // namespace tessera::cuda
