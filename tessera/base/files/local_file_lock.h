// A lock of a file of this system, which a descriptor has (flock(2)). Internal to base/ and checkpoint/.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "tessera/base/files/file_system.h"
#include "tessera/base/files/refused_call.h"

namespace tessera {

inline bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Ends with its descriptor, which it owns.
class LocalFileLock final : public FileLock {
 public:
  explicit LocalFileLock(int fd) : fd_(fd) {}
  ~LocalFileLock() override { ::close(fd_); }
  LocalFileLock(const LocalFileLock&) = delete;
  LocalFileLock& operator=(const LocalFileLock&) = delete;

  bool is_at(const std::string& path) const override {
    struct stat locked {};
    struct stat named {};
    if (::fstat(fd_, &locked) != 0) refused_call("look at the lock", path);
    return ::stat(path.c_str(), &named) == 0 && is_same_file(locked, named);
  }

 private:
  int fd_;
};

}  // namespace tessera
