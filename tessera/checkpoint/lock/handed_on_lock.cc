#include "tessera/checkpoint/lock/handed_on_lock.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cstdlib>

#include "tessera/base/files/local_file_lock.h"

namespace tessera::checkpoint {
namespace {

// The process's descriptor by which the file at `path` is locked; -1: there is none. What is to be handed on is not
// closed when a program begins, everything else of this process's is.
int find_lock(const std::string& path, bool is_handed_on) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return -1;
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  int found = -1;
  while (const dirent* entry = ::readdir(folder)) {
    char* end = nullptr;
    const auto fd = static_cast<int>(std::strtol(entry->d_name, &end, 10));
    struct stat open {};
    if (*end != '\0' || ::fstat(fd, &open) != 0 || !is_same_file(open, file)) continue;
    const bool outlives = (::fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0;
    // Of descriptors of one file one has the lock; the others, by which it is read, cannot have it, too.
    if (outlives != is_handed_on || ::flock(fd, LOCK_EX | LOCK_NB) != 0) continue;
    found = fd;
    break;
  }
  ::closedir(folder);
  return found;
}

}  // namespace

bool hand_on_lock(const std::string& path) {
  const int fd = find_lock(path, /*is_handed_on=*/false);
  return fd >= 0 && ::fcntl(fd, F_SETFD, 0) == 0;
}

bool is_lock_handed_on(const std::string& path) { return find_lock(path, /*is_handed_on=*/true) >= 0; }

std::unique_ptr<FileLock> take_handed_on_lock(const std::string& path) {
  const int fd = find_lock(path, /*is_handed_on=*/true);
  if (fd < 0) return nullptr;
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return std::make_unique<LocalFileLock>(fd);
}

}  // namespace tessera::checkpoint
