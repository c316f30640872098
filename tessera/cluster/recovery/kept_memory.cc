#include "tessera/cluster/recovery/kept_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/limits.h"
#include "tessera/base/processes/memory_file.h"

namespace tessera::cluster {
namespace {

constexpr uint64_t kMagic = 0x3154504B53455441;
constexpr size_t kPage = 4096;

size_t in_pages(size_t size_bytes) { return (size_bytes + kPage - 1) / kPage * kPage; }

}  // namespace

// In the first page; the places of the two versions follow it.
struct KeptMemory::Head {
  struct Slot {
    std::atomic<uint64_t> number{0};  // of the version, from 1; 0: none is whole
    uint64_t size_bytes = 0;
  };
  uint64_t magic = 0;
  uint64_t capacity = 0;  // bytes of a place
  std::array<Slot, 2> slots;
};

KeptMemory::KeptMemory(const std::string& path) {
  static_assert(sizeof(Head) <= kPage && std::atomic<uint64_t>::is_always_lock_free);
  make_file_size_limit_an_error();
  file_.fd = path.empty() ? make_memory_file("tessera-kept") : open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file_.fd < 0) throw IoError("cannot open the memory that outlives a process: {}", std::strerror(errno));
  struct stat status {};
  fstat(file_.fd, &status);
  const auto size = static_cast<size_t>(status.st_size);
  if (size >= kPage) {
    map(size);
    // What another program has left is nothing of ours.
    if (head().magic == kMagic && head().capacity % kPage == 0 && head().capacity <= (size - kPage) / 2) return;
  }
  if (ftruncate(file_.fd, 0) != 0 || posix_fallocate(file_.fd, 0, static_cast<off_t>(kPage)) != 0) {
    throw IoError("cannot have memory that outlives this process: {}", limits_text());
  }
  map(kPage);
  head().magic = kMagic;
}

KeptMemory::Mapped::~Mapped() {
  if (memory != nullptr) munmap(memory, size_bytes);
  if (fd >= 0) close(fd);
}

void KeptMemory::map(size_t size_bytes) {
  void* const memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.fd, 0);
  if (memory == MAP_FAILED) throw IoError("cannot see the memory that outlives this process: {}", std::strerror(errno));
  if (file_.memory != nullptr) munmap(file_.memory, file_.size_bytes);
  file_.memory = memory;
  file_.size_bytes = size_bytes;
}

std::byte* KeptMemory::place(size_t slot) const {
  return static_cast<std::byte*>(file_.memory) + kPage + slot * head().capacity;
}

std::vector<std::span<const std::byte>> KeptMemory::versions() const {
  std::vector<size_t> whole;
  for (size_t slot = 0; slot < head().slots.size(); ++slot) {
    const auto& found = head().slots[slot];
    if (found.number.load(std::memory_order_acquire) != 0 && found.size_bytes <= head().capacity) whole.push_back(slot);
  }
  std::ranges::sort(whole, std::greater<>(), [&](size_t slot) { return head().slots[slot].number.load(); });
  std::vector<std::span<const std::byte>> found;
  for (const size_t slot : whole) found.emplace_back(place(slot), head().slots[slot].size_bytes);
  return found;
}

void KeptMemory::forget_newer(std::span<const std::byte> version) {
  auto& slots = head().slots;
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    auto& other = slots[1 - slot];
    if (version.data() == place(slot) && other.number.load() > slots[slot].number.load()) other.number.store(0);
  }
}

std::span<std::byte> KeptMemory::begin(size_t size_bytes) {
  if (size_bytes > head().capacity) {
    const size_t capacity = in_pages(size_bytes);
    const size_t whole = kPage + 2 * capacity;
    if (const int reason = posix_fallocate(file_.fd, 0, static_cast<off_t>(whole)); reason != 0) {
      throw IoError("cannot have {} bytes of memory that outlives this process: {}; {}", whole, std::strerror(reason),
                    limits_text());
    }
    map(whole);
    for (auto& slot : head().slots) slot.number.store(0);
    head().capacity = capacity;
  }
  auto& slots = head().slots;
  written_ = slots[0].number.load() <= slots[1].number.load() ? 0 : 1;
  slots[written_].number.store(0, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  slots[written_].size_bytes = size_bytes;
  return {place(written_), size_bytes};
}

void KeptMemory::commit() {
  auto& slots = head().slots;
  slots[written_].number.store(slots[1 - written_].number.load() + 1, std::memory_order_release);
}

}  // namespace tessera::cluster
