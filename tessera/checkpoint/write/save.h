// Writing a checkpoint so that it is either whole or absent.
//
// The order of a commit, each step durable before the next:
//   1. the data as NAME.ckpt.tmp                            (write, fsync)
//   2. its manifest as NAME.ckpt.manifest.new               (write, fsync, fsync of the directory)
//   3. NAME.ckpt.tmp -> NAME.ckpt: the commit               (rename, fsync of the directory)
//   4. NAME.ckpt.manifest.new -> NAME.ckpt.manifest         (rename, fsync of the directory)
// All of them under the lock of NAME.ckpt.saving: of several that save under one name each has its turn, the last wins.
// A reader believes whichever of the two manifests describes the bytes of NAME.ckpt. So a crash at any instant leaves
// what was there before, or the new checkpoint with its manifest, also where NAME.ckpt is overwritten. What steps 1 and
// 2 leave behind is ignored by readers and overwritten by the next save of that name.
#pragma once

#include <span>
#include <string>

#include "tessera/base/files/file_system.h"
#include "tessera/base/function_ref.h"
#include "tessera/checkpoint/format/ckpt_file.h"
#include "tessera/checkpoint/format/encryption.h"
#include "tessera/checkpoint/lock/barrier.h"
#include "tessera/checkpoint/manifest/manifest.h"

namespace tessera::checkpoint {

struct SaveOptions {
  std::string path;  // ".ckpt" is appended where it is missing; the directory is made
  // Information after the parameters, such as epoch_num and step_num; no parameters for a reader.
  std::vector<Entry> append_info = {};
  bool read_only = false;  // mode 0400, as the reference does; else as the umask has it
  bool trailer = false;    // the reference's CRC-32 trailer
  // Where several ranks save together, all call save; the one that is `writer` writes (see find_writer), the others
  // wait and fail if it fails. Entries of the others are not looked at.
  Barrier* barrier = nullptr;
  int writer = 0;
  int64_t max_record_bytes = kMaxRecordBytes;
  // How the .ckpt file is encrypted; the manifest is readable without its key: names, types and shapes, no values. Both
  // are for their owner only.
  Encryption encryption = {};
};

// Writes `entries`, in their order, and the manifest. Returns the file's path. When it returns, the checkpoint survives
// a power failure. Throws InvalidArgument for names that are not UTF-8 or occur twice and for an encryption that
// is only read, IoError when the disk fails or is full; then NAME.ckpt is what it was before, and the temporary files
// are removed.
std::string save(FileSystem& files, const SaveOptions& options, std::span<const Entry> entries,
                 const CheckpointInfo& info);

// The same where not all values are in memory at once: on the rank that writes, `entry` is called with 0, 1, ... and
// its result is written before the next call.
std::string save(FileSystem& files, const SaveOptions& options, size_t num_entries, FunctionRef<Entry(size_t)> entry,
                 const CheckpointInfo& info);

}  // namespace tessera::checkpoint
