// CkptWriter: a .ckpt file that is written, one value after the other. It streams: no more than a chunk is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>

#include "tessera/base/files/file_system.h"
#include "tessera/base/function_ref.h"
#include "tessera/checkpoint/format/ckpt_file.h"
#include "tessera/checkpoint/format/region.h"
#include "tessera/tensor/tensor.h"

namespace tessera::checkpoint {

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
    return add(name, type, {Region::whole(type.shape), type.shape}, produce);
  }
  void finish();

  // Size and checksum of the bytes so far; of the whole file after finish().
  int64_t size_bytes() const;
  uint32_t crc32c() const;

 private:
  Written add(const std::string& name, const Type& type, const GlobalRegion& part, FunctionRef<void(Sink)> produce);
  void take_name(const std::string& name);

  int64_t max_record_bytes_;
  std::unordered_set<std::string> names_;
  std::unique_ptr<RecordWriter> records_;
};

}  // namespace tessera::checkpoint
