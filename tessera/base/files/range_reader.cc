#include "tessera/base/files/range_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/base/files/refused_call.h"

namespace tessera {
namespace {

constexpr int64_t kHugePage = 2 << 20;

class LocalRangeReader : public RangeReader {
 public:
  explicit LocalRangeReader(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {  // a pipe must not keep us waiting
    if (fd_ < 0) refused_call("open", path_);
  }
  ~LocalRangeReader() override {
    ::close(fd_);
    if (direct_fd_ >= 0) ::close(direct_fd_);
    if (!mapped_.empty()) ::munmap(mapped_.data(), mapped_.size());
  }
  LocalRangeReader(const LocalRangeReader&) = delete;
  LocalRangeReader& operator=(const LocalRangeReader&) = delete;

  void read(int64_t offset, std::span<std::byte> to) const override {
    while (!to.empty()) {
      const ssize_t count = ::pread(fd_, to.data(), to.size(), offset);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) refused_call("read", path_);
      if (count == 0) throw IoError("{}: ends at byte {}; it was longer when it was opened", path_, offset);
      offset += count;
      to = to.subspan(static_cast<size_t>(count));
    }
  }

  bool is_on_disk(int64_t offset, int64_t size) const override {
    if (size <= 0) return false;
    const std::array<int64_t, 3> samples = {offset, offset + size / 2, offset + size - 1};
    return std::any_of(samples.begin(), samples.end(), [&](int64_t at) { return !is_in_memory(at); });
  }

  std::span<const std::byte> read_block(int64_t offset, int64_t size, DiskBlock& block) const override {
    check(DiskBlock::fits(offset, size), "a block has room for what is read");
    constexpr int64_t kAlignment = DiskBlock::kAlignment;
    const int64_t begin = offset / kAlignment * kAlignment;
    const int64_t end = (offset + size + kAlignment - 1) / kAlignment * kAlignment;
    const std::span<std::byte> memory(block.data(), static_cast<size_t>(end - begin));
    int64_t at = begin;
    const int fd = direct_descriptor();
    while (fd >= 0 && at < offset + size && at % kAlignment == 0) {
      const ssize_t count = ::pread(fd, memory.data() + (at - begin), static_cast<size_t>(end - at), at);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      at += count;
    }
    const auto wanted = memory.subspan(static_cast<size_t>(offset - begin), static_cast<size_t>(size));
    // What the disk would not give this way it may give the usual way, or that says what is wrong.
    const int64_t have = std::clamp<int64_t>(at - offset, 0, size);
    if (have < size) read(offset + have, wanted.subspan(static_cast<size_t>(have)));
    return wanted;
  }

 private:
  // Maps the file, none of whose pages is ever looked at: the system tells of mapped pages where they are.
  void map() const {
    struct stat status {};
    if (::fstat(fd_, &status) != 0 || status.st_size == 0) return;
    const auto size = static_cast<size_t>(status.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd_, 0);
    if (data == MAP_FAILED) return;
    mapped_ = {static_cast<std::byte*>(data), size};
  }

  // True also where the system keeps that from us: files that are another user's.
  bool is_in_memory(int64_t offset) const {
    static const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
    std::call_once(is_mapped_, [&] { map(); });
    if (offset < 0 || offset >= std::ssize(mapped_)) return true;
    unsigned char state = 1;
    return ::mincore(mapped_.data() + offset / page_bytes * page_bytes, 1, &state) != 0 || (state & 1) != 0;
  }

  // The same file, whatever the path names by now; -1 where its file system reads by way of the cache only.
  int direct_descriptor() const {
    std::call_once(direct_opened_, [&] {
      direct_fd_ = ::open(fmt::format("/proc/self/fd/{}", fd_).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
    });
    return direct_fd_;
  }

  std::string path_;
  int fd_;
  mutable std::once_flag direct_opened_;
  mutable int direct_fd_ = -1;
  mutable std::once_flag is_mapped_;
  mutable std::span<std::byte> mapped_;
};

}  // namespace

std::byte* DiskBlock::data() {
  if (memory_ == nullptr) {
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(kHugePage, kBytes));
    if (memory == nullptr) throw NoRoom("no memory for a block that is read from the disk");
    memory_ = {memory, std::free};
    ::madvise(memory, kBytes, MADV_HUGEPAGE);  // where the system has them
  }
  return memory_.get();
}

std::span<const std::byte> RangeReader::read_block(int64_t offset, int64_t size, DiskBlock& block) const {
  check(DiskBlock::fits(offset, size), "a block has room for what is read");
  const std::span<std::byte> memory(block.data(), static_cast<size_t>(size));
  read(offset, memory);
  return memory;
}

std::unique_ptr<RangeReader> open_local_ranges(const std::string& path) {
  return std::make_unique<LocalRangeReader>(path);
}

}  // namespace tessera
