#include "tessera/checkpoint/manifest/json_field.h"

#include "tessera/base/error.h"
#include "tessera/base/files/protobuf_wire.h"
#include "tessera/base/json/bounded_json.h"

namespace tessera::checkpoint {

using SortedJson = nlohmann::json;

SortedJson parse_json(std::string_view text, const std::string& path) {
  constexpr JsonKind kind{.name = "file of a checkpoint", .max_levels = kMaxJsonDepth, .refuses_repeated = true};
  return parse_bounded_json<SortedJson>(text, path, kind);
}

void JsonField::fail(const std::string& expected) const {
  std::string found = json_->dump(-1, ' ', false, SortedJson::error_handler_t::replace);
  if (found.size() > 60) found = found.substr(0, 60) + "...";
  throw InvalidArgument("{}: {} {}, got {}", *path_, name_.empty() ? root_ : name_, expected, found);
}

JsonField JsonField::operator[](const char* member) const {
  if (!json_->is_object()) fail("must be an object");
  const auto it = json_->find(member);
  if (it == json_->end()) {
    throw InvalidArgument("{}: {}{}{} is missing", *path_, name_, name_.empty() ? "" : ".", member);
  }
  return {*this, name_.empty() ? member : name_ + "." + member, *it};
}

std::vector<JsonField> JsonField::items(size_t limit) const {
  if (!json_->is_array()) fail("must be an array");
  if (json_->size() > limit) {
    throw InvalidArgument("{}: {} has {} elements, at most {} are accepted", *path_, name_.empty() ? root_ : name_,
                          json_->size(), limit);
  }
  std::vector<JsonField> fields;
  fields.reserve(json_->size());
  for (size_t i = 0; i < json_->size(); ++i) {
    fields.push_back(JsonField(*this, fmt::format("{}[{}]", name_, i), (*json_)[i]));
  }
  return fields;
}

std::vector<std::pair<std::string, JsonField>> JsonField::members(size_t limit) const {
  if (!json_->is_object()) fail("must be an object");
  if (json_->size() > limit) {
    throw InvalidArgument("{}: {} has {} members, at most {} are accepted", *path_, name_.empty() ? root_ : name_,
                          json_->size(), limit);
  }
  std::vector<std::pair<std::string, JsonField>> fields;
  fields.reserve(json_->size());
  for (const auto& [name, value] : json_->items()) {
    const auto place = name_.empty() ? quoted_name(name) : name_ + "." + quoted_name(name);
    fields.emplace_back(name, JsonField(*this, place, value));
  }
  return fields;
}

std::string JsonField::text() const {
  if (!json_->is_string()) fail("must be a string");
  return json_->get<std::string>();
}

bool JsonField::boolean() const {
  if (!json_->is_boolean()) fail("must be true or false");
  return json_->get<bool>();
}

uint64_t JsonField::unsigned_integer() const {
  if (!json_->is_number_unsigned()) fail("must be an integer that is not negative");
  return json_->get<uint64_t>();
}

int64_t JsonField::integer(int64_t min, int64_t max) const {
  const bool fits = json_->is_number_unsigned()
                        ? max >= 0 && json_->get<uint64_t>() <= static_cast<uint64_t>(max) &&
                              (min < 0 || json_->get<uint64_t>() >= static_cast<uint64_t>(min))
                        : json_->is_number_integer() && json_->get<int64_t>() >= min && json_->get<int64_t>() <= max;
  if (!fits) fail(fmt::format("must be an integer from {} to {}", min, max));
  return json_->get<int64_t>();
}

}  // namespace tessera::checkpoint
