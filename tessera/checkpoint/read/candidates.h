// Candidates: the checkpoints that a path stands for, in the one order in which they are tried by whoever wants the
// newest: first those that have a manifest, newest first, by epoch and step as numbers; then, where none of these can
// be used, those without one, which nothing can verify. At equal positions the higher successor is the newer one. A
// file of a directory that neither has a manifest nor names its step may be anything: it counts only where the path
// names it. A checkpoint whose NAME.ckpt is gone counts by its manifest: it cannot be used, and that is said.
//     Candidates candidates(files, path);
//     if (!candidates.choose([&](const DirectoryEntry& entry) { open(entry.path); })) candidates.give_up();
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"
#include "tessera/base/function_ref.h"
#include "tessera/checkpoint/read/choose.h"

namespace tessera::checkpoint {

class Candidates {
 public:
  // `path`: a checkpoint, or a directory with checkpoints, or with folders rank_N of them, of which the lowest
  // that holds any is looked into; of it only those of `prefix` and its successors, unless that is empty.
  Candidates(FileSystem& files, const std::string& path, const std::string& prefix = "");

  bool empty() const { return list_.empty(); }
  bool is_of_directory() const { return is_of_directory_; }

  // What follows when one cannot be used.
  struct Verdict {
    bool goes_on = false;     // to the next one
    bool is_of_disk = false;  // it could not be read, which says nothing of what it holds
  };
  // Where this process has no room to read one, none is taken in its place.
  static Verdict verdict_of(const Error& error, bool has_next);
  // Calls `use` with one after the other, until it throws neither InvalidArgument nor IoError. Returns whether one
  // could be used. Where the path names a single one, its error is thrown, and so is NoRoom. `judge` is called while
  // the error is handled; where ranks choose together, it is where they agree.
  bool choose(
      FunctionRef<void(const DirectoryEntry&)> use,
      FunctionRef<Verdict(const Error&, bool has_next)> judge = [](const Error& error, bool has_next) {
        return verdict_of(error, has_next);
      });
  // The one that could be used.
  const DirectoryEntry& chosen() const { return list_[present_].entry; }
  // The checkpoints that were passed over for the chosen one, newest first: they could not be used, or have no manifest
  // where the chosen one has one. Where none was chosen, all that were tried.
  std::vector<SkippedCheckpoint> skipped() const;
  // Logs which checkpoints were passed over, and why, now that the chosen one is taken.
  void warn() const;
  // Throws NoUsableCheckpoint with the reasons; IoError with them where the disk did not give one of them.
  [[noreturn]] void give_up() const;

 private:
  struct Candidate {
    DirectoryEntry entry;
    size_t place = 0;  // from the newest
    std::string problem = {};
    bool is_of_disk = false;
  };

  std::vector<Candidate> list_;
  size_t present_ = 0;
  bool is_of_directory_ = false;
};

// Throws as Candidates::give_up() does. There must be some.
[[noreturn]] void refuse_all(const std::vector<SkippedCheckpoint>& skipped);

}  // namespace tessera::checkpoint
