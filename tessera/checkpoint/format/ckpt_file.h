// The .ckpt file: named tensors in the reference's protobuf wire form, byte-compatible with its release 2.10. Every
// byte is described in docs/checkpoint_format.md.
//
// Reading maps the file and hands out views into it; nothing is copied before a tensor is asked for, and memory is
// bounded by the number of records whatever the file claims. Writing streams: no more than a chunk is held.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/base/files/mapped_guard.h"
#include "tessera/base/function_ref.h"
#include "tessera/checkpoint/format/box.h"
#include "tessera/tensor/tensor.h"

namespace tessera::checkpoint {

// Above this a tensor is cut into several records of equal name and dims.
inline constexpr int64_t kMaxRecordBytes = int64_t{512} << 20;

// The file's word for a dtype: "Float32", "BFloat16", "UInt8", "Bool".
const char* ckpt_type_name(DType dtype);

// One value to be saved: a tensor or a text.
struct Entry {
  std::string name;
  TensorView value;      // any strides; the file holds it row-major
  bool is_text = false;  // then `text` (UTF-8) is saved, and `value` means nothing
  std::string text;
  Tensor owner;  // what `value` looks at, where the entry owns it
  // Where the value lies in the global one, when it is only a part of that.
  std::optional<GlobalBox> part;

  Entry(std::string name, Tensor tensor) : name(std::move(name)), value(tensor.view()), owner(std::move(tensor)) {}
  // The memory must live until the entry was saved.
  Entry(std::string name, const TensorView& view) : name(std::move(name)), value(view) {}
  Entry(std::string name, std::string text) : name(std::move(name)), is_text(true), text(std::move(text)) {}
  // 0-d values, such as epoch_num and step_num: i64, f32, bool.
  static Entry number(std::string name, int64_t value) { return {std::move(name), Tensor::scalar(value)}; }
  static Entry number(std::string name, float value) { return {std::move(name), Tensor::scalar(value)}; }
  static Entry number(std::string name, bool value) { return {std::move(name), Tensor::scalar(value)}; }
};

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

class RecordWriter;

// What was written of one entry.
struct Written {
  int64_t size_bytes = 0;
  uint32_t crc32c = 0;
  std::optional<uint64_t> hash;  // layout-free, see element_hash.h; absent for texts
};

// Writes entries one after the other. The file is complete after finish(); the caller syncs, closes and renames it.
class CkptWriter {
 public:
  struct Options {
    bool trailer = false;  // append the reference's CRC-32 trailer
    int64_t max_record_bytes = kMaxRecordBytes;
  };
  // `file` must outlive the writer.
  explicit CkptWriter(WritableFile& file) : CkptWriter(file, Options{}) {}
  CkptWriter(WritableFile& file, const Options& options);
  ~CkptWriter();

  // Throws InvalidArgument for a name that is empty, not UTF-8 or was already written. A tensor without elements
  // leaves no record: the format has no place for it.
  Written add(const Entry& entry);
  // The same for a tensor that is nowhere in memory as a whole: `produce` is called once and hands its elements,
  // row-major and in pieces, to what it is given. They must be as many as the type has.
  using Sink = FunctionRef<void(std::span<const std::byte>)>;
  Written add(const std::string& name, const Type& type, FunctionRef<void(Sink)> produce) {
    return add(name, type, {Box::whole(type.shape), type.shape}, produce);
  }
  void finish();

  // Size and checksum of the bytes so far; of the whole file after finish().
  int64_t size_bytes() const;
  uint32_t crc32c() const;

 private:
  Written add(const std::string& name, const Type& type, const GlobalBox& part, FunctionRef<void(Sink)> produce);
  void take_name(const std::string& name);

  int64_t max_record_bytes_;
  std::unordered_set<std::string> names_;
  std::unique_ptr<RecordWriter> records_;
};

// "x" -> "x.ckpt"; a name that ends so stays.
std::string with_ckpt_suffix(const std::string& path);
// The same of a file to be written. Throws InvalidArgument where the path names a directory: whoever gives one expects
// the checkpoint in it, not beside it.
std::string ckpt_to_write(FileSystem& files, const std::string& path);

// Whether the text is well-formed UTF-8 (no surrogates, no overlong forms).
bool is_utf8(std::string_view text);

}  // namespace tessera::checkpoint
