#include "tessera/executor/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::executor {

Arena::Arena(int64_t capacity_bytes) : capacity_bytes_(std::max<int64_t>(capacity_bytes, 1)) {
  // NORESERVE: a reservation costs nothing until it is touched, so that offsets can stay while schedules are added.
  void* memory = ::mmap(nullptr, static_cast<size_t>(capacity_bytes_), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw IoError("arena: cannot reserve {}: {}", format_bytes(capacity_bytes_), std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(memory);
  // First-touch faults of 4 KiB pages cost a large step a third of its time.
  ::madvise(memory, static_cast<size_t>(capacity_bytes_), MADV_HUGEPAGE);
}

Arena::~Arena() { ::munmap(data_, static_cast<size_t>(capacity_bytes_)); }

void Arena::grow_to(int64_t size_bytes) {
  if (size_bytes > capacity_bytes_) {
    throw InvalidArgument("arena: {} are needed, {} are reserved", format_bytes(size_bytes),
                          format_bytes(capacity_bytes_));
  }
  size_bytes_ = std::max(size_bytes_, size_bytes);
}

void Arena::shrink_to(int64_t size_bytes) {
  if (size_bytes >= size_bytes_) return;
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  const int64_t first = (size_bytes + page - 1) / page * page;
  if (first < size_bytes_) {
    ::madvise(data_ + first, static_cast<size_t>(size_bytes_ - first), MADV_DONTNEED);
  }
  size_bytes_ = size_bytes;
}

}  // namespace tessera::executor
