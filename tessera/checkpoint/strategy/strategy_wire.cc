#include <optional>

#include "tessera/checkpoint/strategy/strategy_forms.h"

namespace tessera::checkpoint {

NamedMessage read_named_message(WireCursor cursor, std::string_view what) {
  const size_t start = cursor.offset();
  std::optional<std::string> name;
  std::optional<WireCursor> content;
  while (!cursor.done()) {
    const size_t at = cursor.offset();
    const WireKey key = cursor.key();
    if (key.field == 1) {
      const auto text = as_text(read_message(cursor, key, fmt::format("the name of {}", what)).rest());
      if (!is_item_name(text)) cursor.fail(at, "the name of {} is empty, too long or not UTF-8", what);
      set_once(name, std::string(text), cursor, at, fmt::format("the name of {}", what));
    } else if (key.field == 2) {
      set_once(content, read_message(cursor, key, what), cursor, at, what);
    } else {
      cursor.skip(key.wire_type);
    }
  }
  if (!name) cursor.fail(start, "{} has no name", what);
  if (!content) cursor.fail(start, "{}, {}, has no content", what, quoted_name(*name));
  return {std::move(*name), *content};
}

int64_t read_number(WireCursor& cursor, WireKey key, std::string_view what, int64_t min, int64_t max) {
  const size_t at = cursor.offset();
  if (key.wire_type != kVarint) cursor.fail(at, "{} must be a number, it has wire type {}", what, key.wire_type);
  const auto value = static_cast<int64_t>(cursor.varint(what));
  if (value < min || value > max) cursor.fail(at, "{} is {}, it must be from {} to {}", what, value, min, max);
  return value;
}

std::vector<int64_t> read_numbers(WireCursor cursor, std::string_view what, int64_t min, int64_t max) {
  std::vector<int64_t> numbers;
  while (!cursor.done()) {
    const WireKey key = cursor.key();
    if (key.field != 1) {
      cursor.skip(key.wire_type);
    } else if (key.wire_type == kLengthDelimited) {  // packed: legal for a reader, written by nobody
      for (auto packed = cursor.message(what); !packed.done();) {
        numbers.push_back(read_number(packed, {1, kVarint}, what, min, max));
      }
    } else {
      numbers.push_back(read_number(cursor, key, what, min, max));
    }
  }
  return numbers;
}

WireCursor read_message(WireCursor& cursor, WireKey key, std::string_view what) {
  if (key.wire_type != kLengthDelimited) {
    cursor.fail(cursor.offset(), "{} has wire type {}, it must have {}", what, key.wire_type,
                static_cast<uint64_t>(kLengthDelimited));
  }
  return cursor.message(what);
}

void append_named_message(std::string& to, int field, std::string_view name, std::string_view content) {
  std::string message;
  append_bytes_field(message, 1, name);
  append_bytes_field(message, 2, content);
  append_bytes_field(to, field, message);
}

void append_numbers(std::string& to, int field, const std::vector<int64_t>& numbers) {
  std::string message;
  for (const int64_t number : numbers) append_number_field(message, 1, number);
  append_bytes_field(to, field, message);
}

}  // namespace tessera::checkpoint
