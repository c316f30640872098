#include "tessera/executor/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::executor {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int kAdviseCollapse = 25;  // MADV_COLLAPSE of Linux 6.1, which Debian 12's headers do not name

}  // namespace

Arena::Arena(int64_t capacity_bytes, std::shared_ptr<void> shared)
    : shared_(std::move(shared)), capacity_bytes_(std::max<int64_t>(capacity_bytes, 1)) {
  if (shared_ != nullptr) {
    data_ = static_cast<std::byte*>(shared_.get());
    return;
  }
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

Arena::~Arena() {
  if (shared_ == nullptr) ::munmap(data_, static_cast<size_t>(capacity_bytes_));
}

void Arena::grow_to(int64_t size_bytes) {
  if (size_bytes > capacity_bytes_) {
    throw InvalidArgument("arena: {} are needed, {} are reserved", format_bytes(size_bytes),
                          format_bytes(capacity_bytes_));
  }
  size_bytes_ = std::max(size_bytes_, size_bytes);
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

void Arena::shrink_to(int64_t size_bytes) {
  if (size_bytes >= size_bytes_) return;
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

}  // namespace tessera::executor
