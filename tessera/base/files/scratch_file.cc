#include "tessera/base/files/scratch_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "tessera/base/error.h"
#include "tessera/base/limits.h"
#include "tessera/base/strings.h"

namespace tessera {
namespace {

class OpenFile {
 public:
  explicit OpenFile(int fd) : fd_(fd) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Without a name from the beginning; where the file system cannot make such a file, its name goes at once.
int open_nameless(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
  std::string path = directory + "/tessera-spill-XXXXXX";
  const int named = ::mkostemp(path.data(), O_CLOEXEC);  // 0600
  if (named >= 0 && ::unlink(path.c_str()) != 0) {
    const int reason = errno;
    ::close(named);
    errno = reason;
    return -1;
  }
  return named;
}

int64_t free_bytes_of(const std::string& directory) {
  struct statvfs status {};
  if (::statvfs(directory.c_str(), &status) != 0) return 0;
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

[[noreturn]] void throw_no_room(const ScratchFile& file, const std::string& directory, int64_t size_bytes, int reason) {
  if (reason == EFBIG && file_size_limit() >= 0) {
    throw IoError(
        "{} need {} in a file in \"{}\", and a file of this process may have {} (ulimit -f): raise that limit",
        file.what, format_bytes(size_bytes), directory, format_bytes(file_size_limit()));
  }
  throw IoError("{} need {} in a file in \"{}\", whose disk has {} of room ({}): {}", file.what,
                format_bytes(size_bytes), directory, format_bytes(free_bytes_of(directory)), std::strerror(reason),
                file.remedy);
}

// A page that has no block on the disk would end the process by SIGBUS when the disk is full: all blocks are taken now.
void take_blocks(const ScratchFile& file, const std::string& directory, int fd, int64_t size_bytes) {
  make_file_size_limit_an_error();
  int reason = EINTR;
  while (reason == EINTR) reason = ::posix_fallocate(fd, 0, size_bytes);
  if (reason != 0) throw_no_room(file, directory, size_bytes, reason);
}

// `address`: null, or where it must lie.
void* map(const ScratchFile& file, void* address, int64_t size_bytes) {
  const std::string directory = directory_of(file);
  const OpenFile opened(open_nameless(directory));
  if (opened.get() < 0) {
    throw IoError("{} need a file in \"{}\", which cannot be made: {}; {}", file.what, directory, std::strerror(errno),
                  file.remedy);
  }
  take_blocks(file, directory, opened.get(), size_bytes);
  const int flags = MAP_SHARED | (address != nullptr ? MAP_FIXED : 0);
  void* memory = ::mmap(address, static_cast<size_t>(size_bytes), PROT_READ | PROT_WRITE, flags, opened.get(), 0);
  if (memory == MAP_FAILED) {
    throw IoError("{}: cannot map {} of a file: {}; {}", file.what, format_bytes(size_bytes), std::strerror(errno),
                  limits_text());
  }
  // Not into a core file, which would have them all.
  ::madvise(memory, static_cast<size_t>(size_bytes), MADV_DONTDUMP);
  return memory;
}

}  // namespace

std::string directory_of(const ScratchFile& file) {
  if (!file.directory.empty()) return file.directory;
  std::error_code error;
  const auto found = std::filesystem::temp_directory_path(error);
  if (error)
    throw IoError("{}: the system's directory for temporary files: {}; {}", file.what, error.message(), file.remedy);
  return found.string();
}

std::shared_ptr<void> allocate_in_file(const ScratchFile& file, int64_t size_bytes) {
  const int64_t bytes = std::max<int64_t>(size_bytes, 1);
  return {map(file, nullptr, bytes), [bytes](void* memory) { ::munmap(memory, static_cast<size_t>(bytes)); }};
}

void map_in_file(const ScratchFile& file, void* address, int64_t size_bytes) {
  check(address != nullptr && size_bytes > 0, "a file is mapped where there is address space");
  map(file, address, size_bytes);
}

bool is_in_memory(const std::string& directory) {
  struct statfs status {};
  if (::statfs(directory.c_str(), &status) != 0) return false;
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

}  // namespace tessera
