#include "tessera/executor/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "tessera/base/error.h"
#include "tessera/base/limits.h"
#include "tessera/base/strings.h"

namespace tessera::executor {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kSmallestPage = 4096;
constexpr int kAdviseCollapse = 25;  // MADV_COLLAPSE of Linux 6.1, which Debian 12's headers do not name

int64_t rounded_up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

// "Rss:                 128 kB" -> 131072, where the line is that of `name`; else 0.
int64_t bytes_of_line(const std::string& line, const char* name) {
  if (!line.starts_with(name)) return 0;
  return std::strtoll(line.c_str() + std::strlen(name), nullptr, 10) * 1024;
}

std::byte* first_huge_page(void* reserved) {
  const auto begin = reinterpret_cast<uintptr_t>(reserved);
  return static_cast<std::byte*>(reserved) + (kHugePage - begin % kHugePage) % kHugePage;
}

// Address space for so many bytes from a huge page's boundary on. NORESERVE: a reservation costs nothing until it is
// touched, so that offsets can stay while schedules are added.
void* reserve(int64_t capacity_bytes, int protection) {
  void* const reserved = ::mmap(nullptr, static_cast<size_t>(capacity_bytes + kHugePage), protection,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    throw IoError("arena: cannot reserve {}: {}; {}", format_bytes(capacity_bytes), std::strerror(errno),
                  limits_text());
  }
  // First-touch faults of 4 KiB pages cost a large step a third of its time.
  ::madvise(first_huge_page(reserved), static_cast<size_t>(capacity_bytes), MADV_HUGEPAGE);
  return reserved;
}

void require_memory_of_machine(int64_t size_bytes) {
  if (can_machine_hold(size_bytes)) return;
  const int64_t swap = swap_space_of_machine();
  throw InvalidArgument(
      "arena: a rank's step needs {}, this machine or control group has {} of memory{}: use more ranks on other hosts, "
      "a smaller batch, or memory_limit for a plan that needs less",
      format_bytes(size_bytes), format_bytes(memory_of_machine()),
      swap > 0 ? " and " + format_bytes(swap) + " of swap space" : "");
}

}  // namespace

Arena::Arena(int64_t capacity_bytes, std::shared_ptr<void> shared)
    : shared_(std::move(shared)), capacity_bytes_(std::max<int64_t>(capacity_bytes, 1)) {
  if (shared_ != nullptr) {
    data_ = static_cast<std::byte*>(shared_.get());
    return;
  }
  reserved_ = reserve(capacity_bytes_, PROT_READ | PROT_WRITE);
  data_ = first_huge_page(reserved_);
}

Arena::Arena(int64_t capacity_bytes, MaySpill)
    : may_spill_(true), capacity_bytes_(std::max<int64_t>(capacity_bytes, 1)) {
  reserved_ = reserve(capacity_bytes_, PROT_NONE);
  data_ = first_huge_page(reserved_);
}

Arena::Arena(int64_t capacity_bytes, Device& device)
    : device_(&device),
      device_memory_(device.reserve(std::max<int64_t>(capacity_bytes, 1))),
      own_queue_(device.make_queue()),
      data_(device_memory_->data()),
      capacity_bytes_(device_memory_->capacity_bytes()) {
  gate_ = std::make_unique<UpdateGate>(device, *own_queue_);
}

Arena::~Arena() {
  if (device_ == nullptr && shared_ == nullptr) ::munmap(reserved_, static_cast<size_t>(capacity_bytes_ + kHugePage));
}

void Arena::grow_to(int64_t size_bytes) {
  if (device_ == nullptr && size_bytes > size_bytes_) require_memory_of_machine(size_bytes - spilled_bytes_);
  if (size_bytes > capacity_bytes_) {
    const AddressSpace space = address_space();
    throw InvalidArgument("arena: {} are needed, {} are reserved{}", format_bytes(size_bytes),
                          format_bytes(capacity_bytes_),
                          device_ == nullptr && space.is_limited()
                              ? fmt::format(" of the {} of address space that this process may have (ulimit -v): raise "
                                            "that limit, start fewer ranks on this host or make the batch smaller",
                                            format_bytes(space.limit))
                              : std::string());
  }
  if (may_spill_) open_up_to(size_bytes);
  // A device may have less: then the arena is as large as it was, and a smaller step fits.
  if (device_ != nullptr) device_memory_->resize(std::max(size_bytes_, size_bytes));
  size_bytes_ = std::max(size_bytes_, size_bytes);
  if (device_ != nullptr) return;
  if (shared_ != nullptr) back_shared(size_bytes_);
}

void Arena::back_shared(int64_t size_bytes) {
  const int64_t end = std::min((size_bytes + kHugePage - 1) / kHugePage * kHugePage, capacity_bytes_);
  if (end <= backed_bytes_) return;
  // Systems that give shared memory no huge pages by themselves still make one of a page that is there, on demand.
  const int64_t begin = backed_bytes_ / kHugePage * kHugePage;
  for (int64_t at = begin; at < end; at += kHugePage) {
    volatile std::byte& first = data_[at];
    first = first;
  }
  [[maybe_unused]] const int result = ::madvise(data_ + begin, static_cast<size_t>(end - begin), kAdviseCollapse);
  backed_bytes_ = end;
}

void Arena::open_up_to(int64_t size_bytes) {
  const int64_t end = std::min(rounded_up(size_bytes, kHugePage), rounded_up(capacity_bytes_, ::sysconf(_SC_PAGESIZE)));
  if (end <= open_bytes_) return;
  if (::mprotect(data_ + open_bytes_, static_cast<size_t>(end - open_bytes_), PROT_READ | PROT_WRITE) != 0) {
    throw IoError("arena: cannot take {} of memory beside the {} that lie in a file: {}; {}",
                  format_bytes(end - spilled_bytes_), format_bytes(spilled_bytes_), std::strerror(errno),
                  limits_text());
  }
  open_bytes_ = end;
}

void Arena::spill(const ScratchFile& file, int64_t bytes) {
  check(may_spill_ && size_bytes_ == 0, "what spills is in front, and nothing was there before");
  check(bytes % ::sysconf(_SC_PAGESIZE) == 0, "whole pages spill");
  if (bytes > capacity_bytes_) {
    throw InvalidArgument("arena: {} are needed, {} are reserved", format_bytes(bytes), format_bytes(capacity_bytes_));
  }
  map_in_file(file, data_, bytes);
  // What steps look up lies anywhere: the pages beside a row would be read for nothing.
  ::madvise(data_, static_cast<size_t>(bytes), MADV_RANDOM);
  spilled_bytes_ = open_bytes_ = size_bytes_ = bytes;
}

void Arena::shrink_to(int64_t size_bytes) {
  check(size_bytes >= spilled_bytes_, "what is spilled stays");
  if (size_bytes >= size_bytes_) return;
  if (device_ != nullptr) {
    own_queue_->synchronize();
    device_memory_->resize(size_bytes);
    size_bytes_ = size_bytes;
    return;
  }
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  const int64_t first = (size_bytes + page - 1) / page * page;
  if (shared_ != nullptr && first < backed_bytes_) {
    ::madvise(data_ + first, static_cast<size_t>(backed_bytes_ - first), MADV_REMOVE);
    backed_bytes_ = first;
  } else if (first < size_bytes_) {
    ::madvise(data_ + first, static_cast<size_t>(size_bytes_ - first), MADV_DONTNEED);
  }
  size_bytes_ = size_bytes;
}

void Arena::touch(int64_t offset, int64_t bytes, const ParallelFor& parallel_for) {
  check(offset >= 0 && offset + bytes <= size_bytes_, "memory beyond the arena is touched");
  if (device_ != nullptr) return;
  parallel_for(bytes, kHugePage, [&](int64_t begin, int64_t end) {
    const auto touch_at = [&](int64_t at) {
      volatile std::byte* byte = data_ + at;
      *byte = *byte;
    };
    for (int64_t at = offset + begin; at < offset + end; at += kSmallestPage) touch_at(at);
    touch_at(offset + end - 1);
  });
}

ArenaMemory Arena::memory() const {
  if (device_ != nullptr) return {.resident_bytes = size_bytes_, .free_bytes = device_->free_bytes()};
  ArenaMemory memory;
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  const auto begin = reinterpret_cast<uintptr_t>(data_);
  const auto end = begin + static_cast<uintptr_t>(capacity_bytes_);
  for (std::string line; std::getline(maps, line);) {
    // A mapping begins with its addresses: "7f1200000000-7f2200000000 rw-p ...".
    char* rest = nullptr;
    const auto first = std::strtoull(line.c_str(), &rest, 16);
    if (rest != line.c_str() && *rest == '-') inside = first >= begin && first < end;
    if (!inside) continue;
    memory.resident_bytes += bytes_of_line(line, "Rss:");
    memory.huge_page_bytes += bytes_of_line(line, "AnonHugePages:") + bytes_of_line(line, "ShmemPmdMapped:");
  }
  return memory;
}

}  // namespace tessera::executor
