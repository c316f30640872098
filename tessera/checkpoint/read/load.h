// Reading a checkpoint back: the file, its manifest, and whether the one proves the other.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/format/ckpt_reader.h"
#include "tessera/checkpoint/format/encryption.h"
#include "tessera/checkpoint/manifest/manifest.h"

namespace tessera::checkpoint {

enum class Verified {
  kYes,         // every byte is as it was written
  kNoManifest,  // there is nothing to compare with; the file's structure is whole
  kNo,          // damaged, truncated, or of another checkpoint; `problem` says what
};

struct FileVerification {
  Verified state = Verified::kNo;
  std::string problem;        // "" unless kNo: names file, and the tensor where one can be named
  std::string manifest_file;  // the path of the manifest that was believed; "" without one
  std::optional<Manifest> manifest;
};

// Reads the whole checkpoint once, all its files, and compares sizes, checksums, names, dtypes and shapes with the
// manifest. Throws IoError only when the file cannot be read. Encrypted files need no key: their bytes are compared.
FileVerification verify(FileSystem& files, const std::string& path);

// The files of a checkpoint, in the order of the manifest; without one, `path` alone. Throws InvalidArgument when one
// is no whole checkpoint file, IoError when it cannot be read.
std::vector<CkptFile> open_files(FileSystem& files, const std::string& path, const std::optional<Manifest>& manifest);

struct DescribedEntry;

// A loaded checkpoint. Entries look into the mapped files; reading one copies it. Tensors that several files hold parts
// of are put together in memory. One file by itself is taken for all there is: where its manifest says that it is one
// rank's part of a checkpoint (GlobalCheckpoint reads those together), entries have the shapes of the parts.
class Checkpoint {
 public:
  // `files` as open_files() gives them.
  Checkpoint(std::vector<CkptFile> files, std::string path, std::optional<Manifest> manifest);

  const std::string& path() const { return path_; }
  // The file NAME.ckpt itself.
  const CkptFile& file() const { return files_[0]; }
  const std::optional<Manifest>& manifest() const { return manifest_; }
  bool is_verified() const { return manifest_.has_value(); }
  // The entries in the order of the file. With a manifest, tensors without elements are here too, though the file has
  // no place for them, and appended values are marked.
  const std::vector<StoredEntry>& entries() const { return entries_; }
  // nullptr when there is none of that name.
  const StoredEntry* find(std::string_view name) const;

 private:
  void join_files();
  StoredEntry join_slices(const ManifestTensor& tensor, const std::vector<DescribedEntry>& slices);

  std::vector<CkptFile> files_;
  std::string path_;
  std::optional<Manifest> manifest_;
  std::vector<Tensor> joined_;
  std::vector<StoredEntry> entries_;
  std::unordered_map<std::string, size_t> index_;
};

// Loads and verifies. Where there is no manifest it logs one warning that nothing was verified. Throws InvalidArgument
// naming file and tensor when the checkpoint is damaged, IoError when it cannot be read; the name must end in ".ckpt".
// An encrypted file needs its key and mode, and memory of its size; another key is an InvalidArgument that says so.
Checkpoint load(FileSystem& files, const std::string& path, const Encryption& decryption = {});

}  // namespace tessera::checkpoint
