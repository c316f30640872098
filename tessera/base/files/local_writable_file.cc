#include "tessera/base/files/local_writable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files/range_reader.h"
#include "tessera/base/files/refused_call.h"
#include "tessera/base/limits.h"

namespace tessera {
namespace {

// What a file has before it counts as large: most files never do, and are written as they come.
constexpr int64_t kLargeBytes = 2 * DiskBlock::kBytes;
// Without this the system collects gigabytes before it begins to write, and sync() waits for all of them.
constexpr int64_t kWriteBehindBytes = 8 << 20;

class LocalWritableFile : public WritableFile {
 public:
  LocalWritableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~LocalWritableFile() override {
    try {
      write_gathered();
    } catch (const IoError&) {  // close() would have said it
    }
    close_descriptors();
  }
  LocalWritableFile(const LocalWritableFile&) = delete;
  LocalWritableFile& operator=(const LocalWritableFile&) = delete;

  void append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto first = [&](int64_t most) { return bytes.first(std::min(bytes.size(), static_cast<size_t>(most))); };
      std::span<const std::byte> part;
      if (size_bytes_ < kLargeBytes) {
        part = first(kLargeBytes - size_bytes_);
        write_on(part);
      } else if (!goes_past_cache_) {
        part = bytes;
        write_range(size_bytes_, part);
      } else {
        part = first(DiskBlock::kBytes - gathered_bytes_);
        std::memcpy(block_.data() + gathered_bytes_, part.data(), part.size());
        gathered_bytes_ += std::ssize(part);
      }
      size_bytes_ += std::ssize(part);
      bytes = bytes.subspan(part.size());
      if (gathered_bytes_ == DiskBlock::kBytes) write_block();
    }
  }
  void write_at(int64_t offset, std::span<const std::byte> bytes) override { write_range(offset, bytes); }
  void sync() override {
    write_gathered();
    if (sync_descriptor(fd_) != 0) refused_call("fsync", path_);
  }
  void close() override {
    write_gathered();
    if (close_descriptors() != 0) refused_call("close", path_);
  }

 private:
  // At the descriptor's own place, which is the end as long as the file is not large.
  void write_on(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) refused_call("write", path_);
      write_behind(written);
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
  }
  void write_range(int64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) refused_call("write", path_);
      write_behind(written);
      offset += written;
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
  }

  // A whole block. What the disk does not take this way it may take the usual way, or that says what is wrong.
  void write_block() {
    const int64_t begin = size_bytes_ - gathered_bytes_;
    int64_t done = 0;
    const int fd = direct_descriptor();
    while (fd >= 0 && done < gathered_bytes_ && done % DiskBlock::kAlignment == 0) {
      const auto left = static_cast<size_t>(gathered_bytes_ - done);
      const ssize_t written = ::pwrite(fd, block_.data() + done, left, begin + done);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) break;
      done += written;
    }
    if (done < gathered_bytes_) {
      goes_past_cache_ = false;
      write_range(begin + done, gathered().subspan(static_cast<size_t>(done)));
    }
    gathered_bytes_ = 0;
  }
  // What there is of a block; when it is full it is written once more, as a whole.
  void write_gathered() {
    if (gathered_bytes_ > 0) write_range(size_bytes_ - gathered_bytes_, gathered());
  }
  std::span<const std::byte> gathered() { return {block_.data(), static_cast<size_t>(gathered_bytes_)}; }

  // The same file, whatever the path names by now; -1 where its file system writes by way of the cache only.
  int direct_descriptor() {
    if (direct_fd_ < 0) {
      direct_fd_ = ::open(fmt::format("/proc/self/fd/{}", fd_).c_str(), O_WRONLY | O_CLOEXEC | O_DIRECT);
    }
    return direct_fd_;
  }
  // 0, or -1 with errno.
  int close_descriptors() {
    gathered_bytes_ = 0;
    if (direct_fd_ >= 0) ::close(std::exchange(direct_fd_, -1));
    return fd_ >= 0 ? ::close(std::exchange(fd_, -1)) : 0;
  }

  // Lets the disk begin before sync() waits for it.
  void write_behind(int64_t written) {
    if (waiting_bytes_.fetch_add(written) + written < kWriteBehindBytes) return;
    waiting_bytes_ = 0;
#if defined(SYNC_FILE_RANGE_WRITE)
    ::sync_file_range(fd_, 0, 0, SYNC_FILE_RANGE_WRITE);  // a hint: what fails, sync() reports
#endif
  }

  std::string path_;
  int fd_;
  std::atomic<int64_t> waiting_bytes_ = 0;
  // Of what is appended:
  int64_t size_bytes_ = 0;
  DiskBlock block_;             // its last gathered_bytes_
  int64_t gathered_bytes_ = 0;  // none before it is large
  bool goes_past_cache_ = true;
  int direct_fd_ = -1;
};

}  // namespace

// Only an interruption may be tried again: after any other failure the system may have dropped the bytes, and a second
// fsync would say that all is well.
int sync_descriptor(int fd) {
  while (::fsync(fd) != 0) {
    if (errno != EINTR) return -1;
  }
  return 0;
}

std::unique_ptr<WritableFile> create_local_file(const std::string& path, unsigned mode) {
  make_file_size_limit_an_error();
  // Whoever may write into the directory could have laid a link there, to have a file of this user's overwritten, or a
  // pipe, to have him wait.
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
  if (fd < 0 && errno != ELOOP && errno != ENXIO) refused_call("create", path);
  struct stat status {};
  if (fd < 0 || ::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    if (fd >= 0) ::close(fd);
    throw IoError("{}: cannot create: a link, pipe or device of that name is there; remove it", path);
  }
  return std::make_unique<LocalWritableFile>(path, fd);
}

}  // namespace tessera
