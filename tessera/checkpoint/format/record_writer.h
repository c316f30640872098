// RecordWriter: the contents of values as the records of a .ckpt file, one after the other. While a block is written
// another thread computes its checksum and its hash, so that these cost no time as long as there is a core for them.
// CkptWriter gives it names and types. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/base/function_ref.h"
#include "tessera/base/workers/worker.h"
#include "tessera/checkpoint/format/ckpt_writer.h"
#include "tessera/checkpoint/format/element_hash.h"

namespace tessera::checkpoint {

// Gives the elements of a view row-major, in pieces of at most about a MiB.
void stream_row_major(const TensorView& view, CkptWriter::Sink sink);

class RecordWriter {
 public:
  struct Options {
    bool trailer = false;  // append the reference's CRC-32 trailer
    int64_t max_record_bytes = kMaxRecordBytes;
    bool checksums = true;  // without, crc32c() and what add() returns mean nothing: to measure what they cost
  };
  // `file` must outlive the writer.
  RecordWriter(WritableFile& file, const Options& options);

  struct Value {
    std::string_view name;
    std::string_view type_name;  // as in the file
    std::span<const int64_t> dims;
    int64_t size_bytes = 0;  // without any, it has one record without content
  };
  // Writes the content that `produce` hands to what it is given, in pieces, and adds it to `hash` unless that is null.
  // Returns the content's CRC-32C.
  uint32_t add(const Value& value, RegionHash* hash, FunctionRef<void(CkptWriter::Sink)> produce);
  // The file is complete afterwards.
  void finish();

  // Size and checksum of the bytes so far; of the whole file after finish().
  int64_t size_bytes() const { return size_bytes_; }
  uint32_t crc32c() const { return crc32c_; }

 private:
  class Content;
  void add_to_sums(std::span<const std::byte> bytes);  // adds bytes that are no content
  void put(std::span<const std::byte> bytes);
  void flush();

  WritableFile& file_;
  const Options options_;
  // While both threads work, these are the one's, which writes, ...
  std::vector<std::byte> buffer_;
  int64_t size_bytes_ = 0;
  // ... and these the other's, which adds up.
  uint32_t crc32c_ = 0;
  uint32_t crc32_ = 0;
  Worker worker_;
};

}  // namespace tessera::checkpoint
