// The directory in which a benchmark of checkpoints writes its files, on the disk that it measures.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"

namespace tessera::benchmarks {

// Exists, under a name that nobody else has, as long as the object does: an error leaves no gigabytes behind.
class MeasuredDirectory {
 public:
  explicit MeasuredDirectory(const std::string& prefix)
      : path_(fmt::format("{}.{}", prefix, Clock::system().monotonic_ns())) {
    FileSystem::local().create_directories(path_);
  }
  ~MeasuredDirectory() {
    try {
      FileSystem::local().remove_directory_tree(path_);
    } catch (const std::exception& error) {
      fmt::print(stderr, "{} was not removed: {}\n", path_, error.what());
    }
  }
  MeasuredDirectory(const MeasuredDirectory&) = delete;
  MeasuredDirectory& operator=(const MeasuredDirectory&) = delete;

  const std::string& path() const { return path_; }
  void clear() const {
    FileSystem::local().remove_directory_tree(path_);
    FileSystem::local().create_directories(path_);
  }
  // Takes its files into the page cache: large ones are written past it.
  void fetch() const {
    std::vector<std::byte> piece(1 << 20);
    for (const auto& name : FileSystem::local().list(path_)) {
      const int fd = ::open(join_path(path_, name).c_str(), O_RDONLY | O_CLOEXEC);
      check(fd >= 0, "the file can be opened");
      while (::read(fd, piece.data(), piece.size()) > 0) continue;
      ::close(fd);
    }
  }
  // Takes its files, which are synced, out of the page cache.
  void forget() const {
    for (const auto& name : FileSystem::local().list(path_)) {
      const int fd = ::open(join_path(path_, name).c_str(), O_RDONLY | O_CLOEXEC);
      check(fd >= 0 && ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "the page cache can be emptied");
      ::close(fd);
    }
  }

 private:
  std::string path_;
};

}  // namespace tessera::benchmarks
