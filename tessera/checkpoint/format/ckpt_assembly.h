// CkptAssembly: a .ckpt file whose values are written at the same time, in any order among them. The place of each is
// known beforehand, and the file's checksum is put together from theirs, so that no byte is looked at twice. The bytes
// are those of CkptWriter. Internal to checkpoint/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/format/ckpt_writer.h"

namespace tessera::checkpoint {

class CkptAssembly {
 public:
  struct Value {
    std::string name;
    std::string type_name;  // as in the file: "Float32", "str"
    Shape dims;
    int64_t size_bytes = 0;
    bool has_record = true;  // a tensor without elements has none, an empty text has
  };
  // `file` must outlive it. Throws InvalidArgument for a name that is not UTF-8 or there twice.
  CkptAssembly(WritableFile& file, std::vector<Value> values, int64_t max_record_bytes = kMaxRecordBytes);

  // The next bytes of a value's content; none for a value that has no record, or is complete. Values may be written by
  // different threads at the same time.
  void write(size_t value, std::span<const std::byte> bytes);
  // Size and checksum of a value that was written.
  Written written(size_t value) const { return {places_[value].size_bytes, places_[value].crc32c}; }
  // The size and checksum of the whole file. The checksum is there when all values were written.
  int64_t size_bytes() const { return size_bytes_; }
  uint32_t crc32c() const;

 private:
  struct OpenValue {
    Value value;
    int64_t offset = 0;  // where the next byte will be written
    int64_t size_bytes = 0;
    int64_t left = 0;
    int64_t left_in_record = 0;
    int64_t record_bytes = 0;
    uint32_t record_crc = 0;  // the checksum of the record's content so far
    uint32_t crc32c = 0;      // the checksum of the complete records' contents
    uint32_t file_crc = 0;    // the checksum of the complete records with their headers
    int64_t file_bytes = 0;
  };
  std::string header_of(const Value& value, int64_t record_bytes) const;
  std::string next_header(OpenValue& place) const;

  WritableFile& file_;
  const int64_t max_record_bytes_;
  std::vector<OpenValue> places_;
  int64_t size_bytes_ = 0;
};

}  // namespace tessera::checkpoint
