// The wire form of Protocol Buffers (https://protobuf.dev/programming-guides/encoding/): keys, varints, fixed and
// length-delimited fields. Checkpoint, strategy and group files (docs/checkpoint_format.md gives every byte), event
// files and Perfetto's traces have it.
//
// Reading is bounded by the bytes given, whatever they claim, and every fault names the file and the byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tessera/base/error.h"

namespace tessera {

enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

struct WireKey {
  uint64_t field;
  uint64_t wire_type;
};

// The bytes of one message inside a file, and where they begin in it. `path` and the bytes must outlive the cursor.
class WireCursor {
 public:
  WireCursor(const std::string& path, std::span<const std::byte> bytes, size_t offset)
      : path_(&path), bytes_(bytes), base_(offset) {}

  bool done() const { return at_ == bytes_.size(); }
  size_t remaining() const { return bytes_.size() - at_; }
  // The next byte's place in the file.
  size_t offset() const { return base_ + at_; }
  std::span<const std::byte> rest() const { return bytes_.subspan(at_); }

  // Throws InvalidArgument "PATH: byte OFFSET: ...".
  template <typename... Args>
  [[noreturn]] void fail(size_t offset, fmt::format_string<Args...> format, Args&&... args) const {
    throw InvalidArgument("{}: byte {}: {}", *path_, offset, fmt::format(format, std::forward<Args>(args)...));
  }

  // Each of these reads the next thing, named `what` in messages, and throws InvalidArgument where there is none.
  uint64_t varint(std::string_view what);
  WireKey key();
  // The content of a length-delimited field whose key was read.
  WireCursor message(std::string_view what);
  // A field that the reader does not know, whose key was read.
  void skip(uint64_t wire_type);

 private:
  const std::string* path_;
  std::span<const std::byte> bytes_;
  size_t base_;
  size_t at_ = 0;
};

std::string_view as_text(std::span<const std::byte> bytes);

// A name that comes from a file, for messages: printable and short.
std::string quoted_name(std::string_view name);

void append_varint(std::string& to, uint64_t value);
size_t varint_bytes(uint64_t value);
// Appends key and value. Negative numbers take ten bytes, as the wire form wants it.
void append_number_field(std::string& to, int field, int64_t value);
// Appends key, length and content.
void append_bytes_field(std::string& to, int field, std::string_view content);
// Append key and value, the least byte first: eight bytes of value, and four of a float.
void append_fixed64_field(std::string& to, int field, uint64_t value);
void append_double_field(std::string& to, int field, double value);
void append_float_field(std::string& to, int field, float value);
// Appends the bytes of a number of `Number`'s size, the least first.
template <typename Number>
void append_fixed(std::string& to, Number value) {
  for (size_t i = 0; i < sizeof(Number); ++i) to += static_cast<char>(value >> (8 * i) & 0xff);
}

}  // namespace tessera
