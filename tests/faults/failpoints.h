// FailpointFileSystem: the operating system's file system, in which one operation goes wrong. Every operation of a
// commit is a failpoint by itself, also one that is added later, and the code under test has no hooks in it.
//
// A failpoint is OPERATION:ACTION:NTH[:SUFFIX], for example "fsync:crash:2" or "write:ENOSPC:1:.manifest.new".
//   operation  create write fsync close rename remove mkdir fsync_directory, or any
//   action     crash (SIGKILL of the process), stop (SIGSTOP), half (writes half of the bytes, then ENOSPC),
//              EIO, ENOSPC, EROFS (the operation fails so, and has no effect), after (does it, then SIGKILL)
//   nth        counted from 1 among the operations that match
//   suffix     of the path
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/files/file_system.h"

namespace tessera::checkpoint::faults {

struct Failpoint {
  std::string operation;
  std::string action;
  int64_t nth = 1;
  std::string suffix;
};
// Throws InvalidArgument.
Failpoint parse_failpoint(std::string_view text);

class FailpointFileSystem : public FileSystem {
 public:
  explicit FailpointFileSystem(FileSystem& inner, std::optional<Failpoint> failpoint = std::nullopt)
      : inner_(inner), failpoint_(std::move(failpoint)) {}

  std::unique_ptr<WritableFile> create(const std::string& path, unsigned mode = 0644) override;
  std::unique_ptr<ReadableFile> open(const std::string& path) override { return inner_.open(path); }
  bool exists(const std::string& path) override { return inner_.exists(path); }
  bool is_directory(const std::string& path) override { return inner_.is_directory(path); }
  std::string real_path(const std::string& path) override { return inner_.real_path(path); }
  int64_t size_bytes(const std::string& path) override { return inner_.size_bytes(path); }
  std::vector<std::string> list(const std::string& directory) override { return inner_.list(directory); }
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& path) override;
  void create_directories(const std::string& path) override;
  void remove_directory_tree(const std::string& path) override { inner_.remove_directory_tree(path); }
  void sync_directory(const std::string& directory) override;
  std::unique_ptr<FileLock> try_lock(const std::string& path) override { return inner_.try_lock(path); }

  // Whether the failpoint was reached.
  bool has_fired() const { return matches_ >= (failpoint_ ? failpoint_->nth : INT64_MAX); }

 private:
  friend class FailpointFile;
  // Does `action` here, or what goes wrong instead. Half of what is written: `do_half`.
  template <typename Action, typename Half>
  void at(std::string_view operation, const std::string& path, Action&& action, Half&& do_half);
  template <typename Action>
  void at(std::string_view operation, const std::string& path, Action&& action) {
    at(operation, path, action, [] {});
  }
  bool fires(std::string_view operation, const std::string& path);

  FileSystem& inner_;
  std::optional<Failpoint> failpoint_;
  std::atomic<int64_t> matches_ = 0;
};

}  // namespace tessera::checkpoint::faults
