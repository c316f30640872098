// DirectoryLock: one job at a time writes checkpoints into a directory, or whatever else it is locked for. Two would
// take each other's files for their own when they name, resume and remove them.
//
// The lock is the system's (flock) on the file .tessera-lock, so it ends with its holder, also by kill -9 or a power
// failure: a lock without a holder cannot be left behind. All processes of a kernel see it, in whatever container, and
// only those that may write into the directory can open it. The file says who holds it: names of hosts and numbers of
// processes are for messages, for two containers may have the same; what tells processes apart is a random id of each.
// A holder that ends in good order removes the file; one that is found unlocked was left by a dead one, and its
// generation is counted up.
//
// A job that goes on when it has lost a process has generations of its own. A process of an earlier one may be stopped
// and hold the lock: the later one takes its place, and the older process, once it wakes, finds its lock gone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tessera/base/files/file_system.h"

namespace tessera::checkpoint {

struct LockHolder {
  std::string job_id;
  std::string host;
  int64_t pid = 0;
  int64_t generation = 0;
  std::string process_id;  // random; "" in files of earlier versions
  int64_t job_generation = 0;
};

// What a directory is locked for: locks for different uses have files of different names, and do not meet.
struct DirectoryUse {
  std::string file_name = ".tessera-lock";
  std::string does = "writes checkpoints";  // what its holder does there, for messages
  // Whether several locks of one job in one process share the directory; else the second one is refused.
  bool is_shared = true;
};

class DirectoryLock {
 public:
  // Makes the directory. Throws InvalidArgument naming the job, process and host that hold it; IoError when the file
  // cannot be written. Several locks of one job in one process share the directory, where their use allows it.
  // `job_generation` is that of a job that goes on when it loses a process, and has one `job_id` in all of them.
  DirectoryLock(FileSystem& files, const std::string& directory, const std::string& job_id, int64_t job_generation = 0,
                DirectoryUse use = {});
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  // Takes the lock again where somebody has removed its file, or the whole directory. Throws InvalidArgument naming the
  // other job, process and host where one has come in since, or a later generation of this job.
  void keep();

  // 1, and one more than the dead holder's where it was taken over.
  int64_t generation() const { return self_.generation; }
  // The holder that it was taken over from: a dead one, or one of an earlier generation of this job.
  const std::optional<LockHolder>& taken_over_from() const { return taken_over_from_; }

 private:
  FileSystem& files_;
  std::string directory_;
  DirectoryUse use_;
  std::string path_;
  LockHolder self_;
  std::unique_ptr<FileLock> lock_;  // null: another lock of this job and process holds it
  std::optional<LockHolder> taken_over_from_;
};

// "d" -> "d/.tessera-lock".
std::string directory_lock_path(const std::string& directory);

}  // namespace tessera::checkpoint
