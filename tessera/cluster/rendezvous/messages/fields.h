// The fields of a body, read and written by one list: a struct's visit_fields(fields, message) names them in order, and
// FieldWriter and FieldReader are what it may be given. A reader never throws: where a field cannot be, has_failed() is
// true and all later fields stay as they are.
//   numbers: little-endian, as wide as their type; bool: one byte, 0 or 1; text: u32 bytes and the bytes; list: u32 and
//   the elements.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tessera/cluster/rendezvous/messages/frame.h"

namespace tessera::cluster::rendezvous {

class FieldWriter {
 public:
  template <std::integral Number>
  void number(const Number& value) {
    const auto bits = static_cast<std::make_unsigned_t<Number>>(value);
    for (size_t i = 0; i < sizeof(Number); ++i) bytes_.push_back(static_cast<char>(bits >> (8 * i) & 0xFFU));
  }
  void flag(bool value) { bytes_.push_back(value ? '\1' : '\0'); }
  template <typename Enum>
  void choice(const Enum& value, Enum /*last*/) {
    bytes_.push_back(static_cast<char>(value));
  }
  // A text that is longer is cut: what limits texts of ours is the reader at the other end.
  void text(const std::string& value, size_t max_bytes) {
    const std::string_view cut = std::string_view(value).substr(0, max_bytes);
    number(static_cast<uint32_t>(cut.size()));
    bytes_ += cut;
  }
  void node_id(const std::string& value, size_t max_bytes) { text(value, max_bytes); }
  template <typename Element, typename Visit>
  void list(std::vector<Element>& elements, size_t /*max_count*/, Visit&& visit) {
    number(static_cast<uint32_t>(elements.size()));
    for (Element& element : elements) visit(*this, element);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : rest_(bytes) {}

  template <std::integral Number>
  void number(Number& value) {
    if (!has(sizeof(Number))) return;
    std::make_unsigned_t<Number> bits = 0;
    for (size_t i = 0; i < sizeof(Number); ++i) {
      bits = static_cast<std::make_unsigned_t<Number>>(
          bits | static_cast<std::make_unsigned_t<Number>>(
                     static_cast<std::make_unsigned_t<Number>>(static_cast<unsigned char>(rest_[i])) << (8 * i)));
    }
    rest_.remove_prefix(sizeof(Number));
    value = static_cast<Number>(bits);
  }
  void flag(bool& value) {
    uint8_t byte = 0;
    number(byte);
    if (byte > 1) return fail("a field that is neither true nor false");
    value = byte == 1;
  }
  template <typename Enum>
  void choice(Enum& value, Enum last) {
    uint8_t byte = 0;
    number(byte);
    if (byte > static_cast<uint8_t>(last)) return fail("a field that is none of its choices");
    value = static_cast<Enum>(byte);
  }
  void text(std::string& value, size_t max_bytes) {
    uint32_t length = 0;
    number(length);
    if (has_failed()) return;
    if (length > max_bytes) return fail("a text that is too long");
    if (!has(length)) return;
    value.assign(rest_.substr(0, length));
    rest_.remove_prefix(length);
  }
  // From 1 to `max_bytes` characters of ASCII that can be seen.
  void node_id(std::string& value, size_t max_bytes) {
    text(value, max_bytes);
    if (has_failed()) return;
    if (!is_visible(value)) fail("a node id that is empty or has other characters than visible ASCII");
  }
  template <typename Element, typename Visit>
  void list(std::vector<Element>& elements, size_t max_count, Visit&& visit) {
    uint32_t count = 0;
    number(count);
    // Each element has a byte at least, so what is reserved has arrived.
    if (has_failed() || count > max_count || count > rest_.size()) return fail("a list that is too long");
    elements.resize(count);
    for (Element& element : elements) {
      if (has_failed()) return;
      visit(*this, element);
    }
  }

  // To be called behind the last field.
  void end() {
    if (!rest_.empty()) fail("bytes behind its last field");
  }
  bool has_failed() const { return !why_.empty(); }
  // What is wrong; empty when nothing is.
  const std::string& why() const { return why_; }

 private:
  bool has(size_t count) {
    if (!has_failed() && rest_.size() < count) fail("it ends within a field");
    return !has_failed();
  }
  void fail(std::string_view why) {
    if (why_.empty()) why_ = why;
    rest_ = {};
  }

  std::string_view rest_;
  std::string why_;
};

}  // namespace tessera::cluster::rendezvous
