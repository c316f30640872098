// Which checkpoint to resume from: the newest that is verified to be whole, by epoch and step as numbers, never by the
// order of names or times; one without a manifest only where none is verified. Nothing is ever deleted here.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/read/load.h"

namespace tessera::checkpoint {

// Where a checkpoint stands in the order: its manifest's epoch and step_in_epoch, or its name's without a manifest.
struct CheckpointPosition {
  int64_t epoch = 0;
  int64_t step_in_epoch = 0;
  friend bool operator<(const CheckpointPosition& a, const CheckpointPosition& b) {
    return std::pair(a.epoch, a.step_in_epoch) < std::pair(b.epoch, b.step_in_epoch);
  }
};

// The position of NAME.ckpt at `path`. Whether the manifest is right is found out when the checkpoint's turn comes.
CheckpointPosition position_of(FileSystem& files, const std::string& path);

// A DirectoryEntry is a checkpoint of a directory.
struct DirectoryEntry {
  std::string path;
  CheckpointPosition position = {};
  bool has_manifest = false;  // right or wrong
  bool names_step = false;    // its file does
};

// The checkpoints NAME.ckpt of a directory, newest first: by position; at equal ones by prefix, of which PREFIX_N is a
// successor by its number, then by name. Only those of `prefix` and its successors, unless it is empty. Those of which
// that file is missing count: whoever opens one is told so.
std::vector<DirectoryEntry> checkpoints_newest_first(FileSystem& files, const std::string& directory,
                                                     const std::string& prefix = "");

// Why a checkpoint without a manifest is passed over for an older one that is verified, and what to do where it is
// wanted.
std::string without_manifest(const std::string& path);

// NoUsableCheckpoint says that there are checkpoints, but none can be used: each is damaged, of another training, or
// does not fit. It is not thrown where there is no checkpoint at all.
class NoUsableCheckpoint : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

struct SkippedCheckpoint {
  std::string path;
  std::string reason;
  bool is_of_disk = false;  // it could not be read: a restart may help
};

struct Choice {
  std::string path;  // "" when no checkpoint can be used
  CheckpointPosition position;
  Verified state = Verified::kNo;          // kYes, or kNoManifest
  std::vector<SkippedCheckpoint> skipped;  // newer ones that failed their check or have no manifest, newest first

  bool found() const { return !path.empty(); }
  // One line for each skipped one, and what was chosen; for logs and errors.
  std::string describe() const;
  // Throws as Candidates::give_up() when there are checkpoints, but none can be used: training must not silently start
  // again from nothing.
  void require_usable() const;
};

// The newest usable checkpoint in `directory` of `prefix` and its successors (CKP, CKP_1, ...); of any prefix when it
// is empty: the one that a training would go on from, as Candidates orders them, found by reading each that is tried as
// a whole. A missing directory has none. Where there are folders rank_N, it is the checkpoint that they hold together,
// named by the lowest rank's file.
Choice find_newest(FileSystem& files, const std::string& directory, const std::string& prefix);

}  // namespace tessera::checkpoint
