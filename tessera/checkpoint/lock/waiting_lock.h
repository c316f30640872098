// WaitingLock: a lock that one process, or one thread of it, holds at a time; the others wait their turn. The lock is
// the system's, on a file, so it ends with its holder, also by kill -9: what the holder left is there then. Internal to
// checkpoint/.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/files/file_system.h"

namespace tessera::checkpoint {

class WaitingLock {
 public:
  // Waits until nobody holds the file at `path`, made where it and its directory are missing, and holds it. Warns
  // where that takes long. Throws IoError when the file cannot be made.
  WaitingLock(FileSystem& files, std::string path);
  // Removes the file.
  ~WaitingLock();
  WaitingLock(const WaitingLock&) = delete;
  WaitingLock& operator=(const WaitingLock&) = delete;

 private:
  FileSystem& files_;
  std::string path_;
  std::unique_ptr<FileLock> lock_;
};

}  // namespace tessera::checkpoint
