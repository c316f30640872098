#include <optional>
#include <utility>

#include "tests/fuzz/mutators.h"

namespace tessera::fuzz {
namespace {

constexpr int kMaxDepth = 6;

struct Field {
  uint64_t number = 1;
  uint64_t wire_type = 0;
  uint64_t varint = 0;         // of wire type 0
  std::string bytes;           // of wire types 1, 2 and 5
  std::vector<Field> message;  // of wire type 2, where the bytes are fields themselves
  bool is_message = false;
  uint64_t length_lie = 0;  // added to the length
};
using Fields = std::vector<Field>;

std::optional<uint64_t> read_varint(const std::string& bytes, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && at < bytes.size(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes[at++]);
    value |= uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<Fields> parse(const std::string& bytes, int depth) {
  Fields fields;
  for (size_t at = 0; at < bytes.size();) {
    const auto key = read_varint(bytes, at);
    if (!key || *key >> 3 == 0 || *key >> 3 > 100) return std::nullopt;
    Field field{.number = *key >> 3, .wire_type = *key & 7};
    if (field.wire_type == 0) {
      const auto value = read_varint(bytes, at);
      if (!value) return std::nullopt;
      field.varint = *value;
    } else if (field.wire_type == 2) {
      const auto length = read_varint(bytes, at);
      if (!length || *length > bytes.size() - at) return std::nullopt;
      field.bytes = bytes.substr(at, *length);
      at += *length;
      if (depth > 0 && !field.bytes.empty()) {
        if (auto inner = parse(field.bytes, depth - 1)) {
          field.message = std::move(*inner);
          field.is_message = true;
        }
      }
    } else {
      return std::nullopt;
    }
    fields.push_back(std::move(field));
  }
  return fields;
}

void write_varint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

std::string write(const Fields& fields) {
  std::string bytes;
  for (const auto& field : fields) {
    write_varint(bytes, field.number << 3 | field.wire_type);
    if (field.wire_type == 0) {
      write_varint(bytes, field.varint);
      continue;
    }
    const auto content = field.is_message ? write(field.message) : field.bytes;
    if (field.wire_type == 2) write_varint(bytes, content.size() + field.length_lie);
    bytes += content;
  }
  return bytes;
}

// Where each field is, nested ones too.
void collect(Fields& fields, std::vector<std::pair<Fields*, size_t>>& places) {
  for (size_t i = 0; i < fields.size(); ++i) {
    places.emplace_back(&fields, i);
    if (fields[i].is_message) collect(fields[i].message, places);
  }
}

void change_content(Field& field, Draws& draws) {
  if (field.wire_type == 0) {
    field.varint = draws.one_in(4) ? field.varint + draws.below(3) - 1 : draws.pick(telling_numbers());
    return;
  }
  if (field.is_message) {
    field.bytes = write(field.message);
    field.is_message = false;
  }
  field.bytes = draws.one_in(3) ? draws.pick(telling_texts()) : mutate_bytes(field.bytes, draws);
}

void edit(Fields& root, Draws& draws) {
  std::vector<std::pair<Fields*, size_t>> places;
  collect(root, places);
  if (places.empty()) {
    root.push_back({.number = 1 + draws.below(4), .varint = draws.pick(telling_numbers())});
    return;
  }
  const auto [owner, index] = draws.pick(places);
  Field& field = (*owner)[index];
  const auto at = owner->begin() + static_cast<std::ptrdiff_t>(index);
  switch (draws.below(10)) {
    case 0: owner->erase(at); break;
    case 1: {
      Field copy = field;
      owner->insert(owner->begin() + static_cast<std::ptrdiff_t>(draws.below(owner->size() + 1)), std::move(copy));
      break;
    }
    case 2: std::swap(field, (*owner)[draws.below(owner->size())]); break;
    case 3: field.number = 1 + draws.below(8); break;
    case 4: field.wire_type = draws.below(8); break;
    case 5: {
      const auto [other, place] = draws.pick(places);
      Field copy = (*other)[place];  // before it is overwritten: one may lie inside the other
      field = std::move(copy);
      break;
    }
    case 6: field.length_lie = draws.one_in(2) ? draws.pick(telling_numbers()) : draws.below(9) - 4; break;
    default: change_content(field, draws); break;
  }
}

}  // namespace

std::string mutate_wire(const std::string& bytes, Draws& draws) {
  auto fields = parse(bytes, kMaxDepth);
  if (!fields || draws.one_in(8)) return mutate_bytes(bytes, draws);
  for (size_t edits = 1 + draws.below(4); edits > 0; --edits) edit(*fields, draws);
  auto result = write(*fields);
  return draws.one_in(8) ? mutate_bytes(std::move(result), draws) : result;
}

}  // namespace tessera::fuzz
