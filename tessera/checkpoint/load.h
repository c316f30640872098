// Reading a checkpoint back: the file, its manifest, and whether the one proves the other.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/base/file_system.h"
#include "tessera/checkpoint/ckpt_file.h"
#include "tessera/checkpoint/manifest.h"

namespace tessera::checkpoint {

enum class Verified {
  kYes,         // every byte is as it was written
  kNoManifest,  // there is nothing to compare with; the file's structure is whole
  kNo,          // damaged, truncated, or of another checkpoint; `problem` says what
};

struct Verification {
  Verified state = Verified::kNo;
  std::string problem;        // "" unless kNo: names file, and the tensor where one can be named
  std::string manifest_file;  // the path of the manifest that was believed; "" without one
  std::optional<Manifest> manifest;
};

// Reads the whole file once and compares sizes, checksums, names, dtypes and shapes with the manifest. Throws IoError
// only when the file cannot be read.
Verification verify(FileSystem& files, const std::string& path);

// A loaded checkpoint. Entries look into the mapped file; reading one copies it.
class Checkpoint {
 public:
  Checkpoint(CkptFile file, std::optional<Manifest> manifest);

  const std::string& path() const { return file_.path(); }
  const CkptFile& file() const { return file_; }
  const std::optional<Manifest>& manifest() const { return manifest_; }
  bool is_verified() const { return manifest_.has_value(); }
  // In order of the file. With a manifest, tensors without elements are here too, though the file has no place for
  // them, and appended values are marked.
  const std::vector<StoredEntry>& entries() const { return entries_; }
  // nullptr when there is none of that name.
  const StoredEntry* find(std::string_view name) const;

 private:
  CkptFile file_;
  std::optional<Manifest> manifest_;
  std::vector<StoredEntry> entries_;
  std::unordered_map<std::string, size_t> index_;
};

// Loads and verifies. Where there is no manifest it logs one warning that nothing was verified. Throws InvalidArgument
// naming file and tensor when the checkpoint is damaged, IoError when it cannot be read; the name must end in ".ckpt".
Checkpoint load(FileSystem& files, const std::string& path);

}  // namespace tessera::checkpoint
