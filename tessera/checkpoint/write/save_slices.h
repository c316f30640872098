// Several ranks write one checkpoint together: each its slices into a file of its own, under one manifest, in one
// commit. Ranks that see one directory make one checkpoint of it; a rank that is alone in its directory writes
// NAME.ckpt, as the reference does.
//
//   NAME.ckpt             the slices of the first rank of the directory that has any, and the appended information
//   NAME.ckpt.rank_R      those of rank R; where NAME is overwritten, NAME.ckpt.rank_R.2 and so on: names not in use
//   NAME.ckpt.manifest    which file holds which slice
//
// The order of the commit, each step durable on all ranks before the next:
//   1. every rank's file, NAME.ckpt as NAME.ckpt.tmp        (write, fsync, fsync of the directory)
//   2. the manifest as NAME.ckpt.manifest.new               (write, fsync, fsync of the directory)
//   3. NAME.ckpt.tmp -> NAME.ckpt: the commit               (rename, fsync of the directory)
//   4. NAME.ckpt.manifest.new -> NAME.ckpt.manifest         (rename, fsync of the directory)
//   5. the files that a checkpoint of that name had before are removed
// So a crash at any instant leaves what was there before, or the new checkpoint. Who renames holds the lock of
// NAME.ckpt.saving from before 1 to the end: other saves of that name wait.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/format/ckpt_file.h"
#include "tessera/checkpoint/format/element_stream.h"
#include "tessera/checkpoint/format/encryption.h"
#include "tessera/checkpoint/format/region.h"
#include "tessera/checkpoint/lock/barrier.h"
#include "tessera/checkpoint/manifest/manifest.h"

namespace tessera::checkpoint {

// A value of the job and what the calling rank writes of it. Every rank lists all values, in the same order.
struct Slice {
  std::string name;
  Type type;                     // global
  std::optional<Region> region;  // nullopt: nothing
  TensorView value;              // the elements of the region, any strides; without memory where they are `streamed`
  // The region is one row, and the file holds it without its first dim, as one device's file would.
  bool without_first_dim = false;
  std::optional<StreamedRegion> streamed = std::nullopt;
};

struct SliceSaveOptions {
  std::string path;                     // ".ckpt" is appended where it is missing
  std::vector<Entry> append_info = {};  // written once per directory
  // The ranks that see the directory of `path`, ascending: ranks_of_directory().
  std::vector<int> together;
  int64_t max_record_bytes = kMaxRecordBytes;
  Encryption encryption = {};  // how all files are encrypted; see SaveOptions
};

// The ranks that see the same directory as the calling one, ascending. Every rank calls it.
std::vector<int> ranks_of_directory(FileSystem& files, Barrier& barrier, const std::string& directory);

// Every rank of the barrier calls it. Returns the path; the checkpoint survives a power failure then. Throws what
// `save` throws on the rank that it concerns, IoError naming that rank and the reason on all others; every directory
// then has what it had before, and this save's files are removed.
std::string save_slices(FileSystem& files, Barrier& barrier, const SliceSaveOptions& options,
                        std::span<const Slice> slices, const CheckpointInfo& info);

}  // namespace tessera::checkpoint
