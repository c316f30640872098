// Candidates: the checkpoints that a path stands for, in the order in which a training that goes on tries them. In a
// directory the files that have a manifest come first, newest first, by epoch and step as numbers; then the files
// without one, which nothing can verify. Each is one file of its own where the path names it.
//     for (Candidates candidates(files, path);; candidates.pass_over(problem)) { ... }
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/read/choose.h"

namespace tessera::checkpoint {

class Candidates {
 public:
  // `path`: a checkpoint, or a directory with checkpoints, or with folders rank_N of them, of which the lowest
  // that holds any is looked into. Throws InvalidArgument when the directory has none.
  Candidates(FileSystem& files, const std::string& path);

  // The one to be tried.
  const std::string& path() const { return list_[present_].path; }
  // Whether there are others to go on to when it cannot be used.
  bool is_of_directory() const { return is_of_directory_; }
  bool has_next() const { return present_ + 1 < list_.size(); }
  // Goes on to the next, for this reason; gives up where there is none.
  void pass_over(const std::string& reason);
  // Throws InvalidArgument: of all reasons the first, which is the newest checkpoint's.
  [[noreturn]] void give_up(const std::string& reason) const;
  // Says which newer ones were passed over, and why, now that the present one is taken.
  void warn() const;

 private:
  std::vector<DirectoryEntry> list_;
  size_t present_ = 0;
  bool is_of_directory_ = false;
  std::vector<std::string> reasons_;
};

}  // namespace tessera::checkpoint
