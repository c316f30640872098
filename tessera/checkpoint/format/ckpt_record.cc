#include "tessera/checkpoint/format/ckpt_record.h"

#include <cstddef>

#include "tessera/base/error.h"
#include "tessera/base/files/protobuf_wire.h"
#include "tessera/base/utf8.h"

namespace tessera::checkpoint {
namespace {

size_t field_bytes(uint64_t length) { return 1 + varint_bytes(length) + length; }

// Keys of the length-delimited fields 1 to 3 and of the varint field 1.
constexpr char kField1 = 0x0A;
constexpr char kField2 = 0x12;
constexpr char kField3 = 0x1A;
constexpr char kDim = 0x08;

}  // namespace

std::string record_header(std::string_view name, std::string_view type_name, std::span<const int64_t> dims,
                          uint64_t content_bytes) {
  uint64_t tensor_bytes = field_bytes(type_name.size()) + field_bytes(content_bytes);
  for (const int64_t dim : dims) tensor_bytes += 1 + varint_bytes(static_cast<uint64_t>(dim));
  const uint64_t value_bytes = field_bytes(name.size()) + field_bytes(tensor_bytes);
  std::string header;
  const auto field = [&](char key, uint64_t length) {
    header += key;
    append_varint(header, length);
  };
  field(kField1, value_bytes);
  field(kField1, name.size());
  header += name;
  field(kField2, tensor_bytes);
  for (const int64_t dim : dims) field(kDim, static_cast<uint64_t>(dim));
  field(kField2, type_name.size());
  header += type_name;
  field(kField3, content_bytes);
  return header;
}

void require_value_name(const std::string& name) {
  if (is_utf8(name)) return;
  throw InvalidArgument("checkpoint: the name of a value must be UTF-8, got {} bytes", name.size());
}

}  // namespace tessera::checkpoint
