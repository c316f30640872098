// CkptFile: a .ckpt file that is read. It maps the file and hands out views into it; nothing is copied before a tensor
// is asked for, and memory is bounded by the number of records whatever the file claims.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/base/files/mapped_guard.h"
#include "tessera/tensor/tensor.h"

namespace tessera::checkpoint {

// A StoredEntry is one value of a file. It looks into the file's bytes.
struct StoredEntry {
  std::string name;
  bool is_text = false;
  DType dtype = DType::kF32;  // of a text: meaningless
  Shape shape;                // of a text: meaningless
  int64_t size_bytes = 0;     // the size of the content
  int64_t offset = 0;         // where the first record begins in the file
  // The content, little-endian, row-major, in one piece per record. The pieces are not aligned.
  std::vector<std::span<const std::byte>> pieces;
  bool appended = false;  // no parameter, but information that the writer appended; known from the manifest only
  // The guard of the mapped file that the pieces are in. Whoever reads an entry by the functions below learns of a file
  // that was cut short meanwhile: they throw IoError.
  std::shared_ptr<const MappedGuard> guard = {};

  Type type() const { return {dtype, shape}; }
  // "f32[2,3]", or "str".
  std::string type_text() const { return is_text ? "str" : type().to_string(); }
  // A copy. Throws InvalidArgument for a text.
  Tensor read() const;
  // Copies into `to`: equal shape, any strides; another dtype is converted. Throws InvalidArgument when the shapes
  // differ.
  void read_into(const TensorView& to) const;
  // Returns the text as UTF-8. Throws InvalidArgument for a tensor.
  std::string read_text() const;
  uint32_t crc32c() const;
};

// A parsed file. Immutable; movable; entries look into it.
class CkptFile {
 public:
  // Throws IoError when the file cannot be read; InvalidArgument naming file, byte offset and tensor for what is not a
  // whole checkpoint: truncated, malformed, of unknown dtype, content that does not fit its dims, a name twice, a
  // checksum trailer that does not match, an encrypted file.
  static CkptFile open(FileSystem& files, const std::string& path);
  // The same on bytes in memory; `path` is for messages.
  CkptFile(std::unique_ptr<ReadableFile> file, std::string path);

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return file_->bytes(); }
  // See ReadableFile.
  void release_pages() const { file_->release_pages(); }
  // The entries in the order of the file.
  const std::vector<StoredEntry>& entries() const { return entries_; }
  // True when the file ended with the reference's checksum trailer, which then was right.
  bool has_trailer() const { return has_trailer_; }

 private:
  void parse();

  std::unique_ptr<ReadableFile> file_;
  std::string path_;
  std::shared_ptr<const MappedGuard> guard_;
  std::vector<StoredEntry> entries_;
  bool has_trailer_ = false;
};

}  // namespace tessera::checkpoint
