// A file system for tests that remembers what was durable. It records every operation; crash_state() gives the files as
// they may be found when power was lost after the first k of them. Thread-safe while it records.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"

namespace tessera::checkpoint {

// What a disk may do with operations that were not synced when the power went.
enum class Unsynced {
  kKept,         // all of them reached the disk: also what a killed process leaves
  kLost,         // none did
  kContentLost,  // names did, contents did not: the classic empty file after a rename without fsync
  kRandom,       // each name change by itself, and of each file's content any prefix or any blocks, the others zero
};

class CrashFileSystem : public MemoryFileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path, unsigned mode = 0644) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& path) override;
  void remove_directory_tree(const std::string& path) override;
  void create_directories(const std::string& path) override;
  void sync_directory(const std::string& directory) override;

  size_t num_operations() const { return operations_.size(); }
  // The files after the first `count` operations and a crash. `seed` is for kRandom.
  std::unique_ptr<MemoryFileSystem> crash_state(size_t count, Unsynced unsynced, uint64_t seed = 0) const;
  // "rename d/x.ckpt.tmp", for messages.
  std::string describe(size_t operation) const;

  // From now on the operation of this number and all later ones throw IoError: a full or dead disk.
  void fail_from(size_t operation) { fail_from_ = operation; }

 private:
  friend class CrashWritableFile;
  class Disk;
  enum class Kind {
    kCreate,
    kAppend,
    kWriteAt,
    kSync,
    kRename,
    kRemove,
    kRemoveTree,
    kCreateDirectories,
    kSyncDirectory
  };
  struct Operation {
    Kind kind;
    std::string path;
    std::string to;       // the new name of a rename
    std::string content;  // what is appended, or written at an offset
    int file = -1;        // which created file: create, append, write, sync
    size_t offset = 0;    // where a write begins
  };
  void record(Operation operation);

  std::mutex record_mutex_;
  std::vector<Operation> operations_;
  std::atomic<int> num_files_ = 0;
  size_t fail_from_ = SIZE_MAX;
};

}  // namespace tessera::checkpoint
