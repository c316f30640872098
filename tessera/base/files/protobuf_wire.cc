#include "tessera/base/files/protobuf_wire.h"

#include <algorithm>
#include <bit>

namespace tessera {

uint64_t WireCursor::varint(std::string_view what) {
  const size_t start = offset();
  uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (done()) fail(start, "the file is truncated or damaged: {} ends after {} bytes", what, offset() - start);
    const auto byte = static_cast<uint64_t>(bytes_[at_++]);
    if (shift == 63 && byte > 1) break;  // more than 64 bits
    value |= (byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  fail(start, "{} is longer than 64 bits", what);
}

WireKey WireCursor::key() {
  const uint64_t key = varint("a field's key");
  return {key >> 3, key & 7};
}

WireCursor WireCursor::message(std::string_view what) {
  const size_t start = offset();
  const uint64_t length = varint(what);
  if (length > remaining()) {
    fail(start, "the file is truncated or damaged: {} of {} bytes, but {} are left", what, length, remaining());
  }
  const WireCursor inside(*path_, bytes_.subspan(at_, length), offset());
  at_ += length;
  return inside;
}

void WireCursor::skip(uint64_t wire_type) {
  const size_t start = offset();
  switch (wire_type) {
    case kVarint: varint("an unknown field"); return;
    case kLengthDelimited: message("an unknown field"); return;
    case kFixed64:
    case kFixed32: {
      const size_t size = wire_type == kFixed64 ? 8 : 4;
      if (remaining() < size) fail(start, "the file is truncated or damaged: an unknown field ends early");
      at_ += size;
      return;
    }
    default: fail(start, "wire type {} is not used by the format: not a file of this kind, or damaged", wire_type);
  }
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string quoted_name(std::string_view name) {
  constexpr size_t kShown = 200;
  std::string text = "\"";
  for (const char c : name.substr(0, kShown)) text += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  return text + (name.size() > kShown ? "...\"" : "\"");
}

void append_varint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

size_t varint_bytes(uint64_t value) { return static_cast<size_t>(std::max(1, (64 - std::countl_zero(value) + 6) / 7)); }

void append_number_field(std::string& to, int field, int64_t value) {
  append_varint(to, static_cast<uint64_t>(field) << 3 | kVarint);
  append_varint(to, static_cast<uint64_t>(value));
}

void append_bytes_field(std::string& to, int field, std::string_view content) {
  append_varint(to, static_cast<uint64_t>(field) << 3 | kLengthDelimited);
  append_varint(to, content.size());
  to += content;
}

void append_fixed64_field(std::string& to, int field, uint64_t value) {
  append_varint(to, static_cast<uint64_t>(field) << 3 | kFixed64);
  append_fixed(to, value);
}

void append_double_field(std::string& to, int field, double value) {
  append_fixed64_field(to, field, std::bit_cast<uint64_t>(value));
}

void append_float_field(std::string& to, int field, float value) {
  append_varint(to, static_cast<uint64_t>(field) << 3 | kFixed32);
  append_fixed(to, std::bit_cast<uint32_t>(value));
}

}  // namespace tessera
