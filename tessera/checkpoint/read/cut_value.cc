#include "tessera/checkpoint/read/cut_value.h"

#include "tessera/base/files/protobuf_wire.h"

namespace tessera::checkpoint {
namespace {

// The content of the record that begins where the cursor is. Throws InvalidArgument where it is not whole.
int64_t content_bytes(WireCursor& cursor) {
  cursor.key();
  WireCursor value = cursor.message("a value");
  int64_t bytes = 0;
  while (!value.done()) {
    const auto [field, wire_type] = value.key();
    if (field != 2) {
      value.skip(wire_type);
      continue;
    }
    WireCursor tensor = value.message("a tensor");
    while (!tensor.done()) {
      const auto [inner, inner_type] = tensor.key();
      if (inner == 3) {
        bytes += std::ssize(tensor.message("a content").rest());
      } else {
        tensor.skip(inner_type);
      }
    }
  }
  return bytes;
}

}  // namespace

std::string first_cut_value(std::span<const std::byte> bytes, const Manifest& manifest, int file) {
  const std::string path;  // what the cursor would name is caught here
  WireCursor cursor(path, bytes, 0);
  for (const auto& tensor : manifest.tensors) {
    for (const auto& slice : tensor.slices) {
      if (slice.file != file) continue;
      try {
        for (int64_t missing = slice.size_bytes; missing > 0;) missing -= content_bytes(cursor);
      } catch (const InvalidArgument&) {
        return tensor.name;
      }
    }
  }
  return "";
}

}  // namespace tessera::checkpoint
