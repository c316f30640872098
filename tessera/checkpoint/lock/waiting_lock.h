// WaitingLock: a lock that one process, or one thread of it, holds at a time; the others wait their turn. The lock is
// the system's, on a file, so it ends with its holder, also by kill -9: what the holder left is there then. Internal to
// checkpoint/.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/files/file_system.h"

namespace tessera::checkpoint {

// The end of the name of a save's lock.
inline constexpr const char* kSavingSuffix = ".saving";

class WaitingLock {
 public:
  // Waits until nobody holds the file at `path`, made where it and its directory are missing, and holds it. Warns
  // where that takes long. Throws IoError when the file cannot be made.
  WaitingLock(FileSystem& files, std::string path);
  // Removes the file, unless it is another holder's.
  ~WaitingLock();
  WaitingLock(const WaitingLock&) = delete;
  WaitingLock& operator=(const WaitingLock&) = delete;

  // Whether the file at the path is the one that is held: it is not where a later generation of the job has taken its
  // place (DirectoryLock).
  bool is_held() const { return lock_->is_at(path_); }

 private:
  FileSystem& files_;
  std::string path_;
  std::unique_ptr<FileLock> lock_;
};

}  // namespace tessera::checkpoint
