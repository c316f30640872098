#include "tessera/tensor/attributes.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera {
namespace {

std::string quote(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string unquote(std::string_view text) {
  if (text.size() < 2 || text.back() != '"') throw InvalidArgument("attribute: unterminated string {}", text);
  std::string result;
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == '\\' && i + 2 < text.size()) {
      ++i;
      result += text[i] == 'n' ? '\n' : text[i];
    } else {
      result += text[i];
    }
  }
  return result;
}

bool looks_floating(std::string_view text) {
  return text.find_first_of(".e") != std::string_view::npos || text.ends_with("inf") || text == "nan";
}

template <typename T>
const T& get(const Attributes& attributes, std::string_view name, const char* kind) {
  const AttributeValue* value = attributes.find(name);
  if (value == nullptr) throw InvalidArgument("attribute \"{}\" is missing from {}", name, attributes.to_string());
  const T* typed = std::get_if<T>(value);
  if (typed == nullptr) throw InvalidArgument("attribute {}={} must be {}", name, to_string(*value), kind);
  return *typed;
}

// Position of the next `separator` outside strings and brackets, or npos.
size_t find_outside(std::string_view text, char separator) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == separator && depth == 0) {
      return i;
    }
  }
  return std::string_view::npos;
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

}  // namespace

const AttributeValue* Attributes::find(std::string_view name) const {
  for (const auto& [key, value] : entries_) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Attributes::set(std::string_view name, AttributeValue value) {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                                   [](const auto& entry, std::string_view key) { return entry.first < key; });
  if (at != entries_.end() && at->first == name) {
    at->second = std::move(value);
  } else {
    entries_.insert(at, {std::string(name), std::move(value)});
  }
}

void Attributes::erase(std::string_view name) {
  std::erase_if(entries_, [&](const auto& entry) { return entry.first == name; });
}

bool Attributes::get_bool(std::string_view name) const { return get<bool>(*this, name, "a bool"); }
int64_t Attributes::get_int(std::string_view name) const { return get<int64_t>(*this, name, "an integer"); }
double Attributes::get_double(std::string_view name) const {
  if (const auto* value = find(name); value != nullptr && std::holds_alternative<int64_t>(*value)) {
    return static_cast<double>(std::get<int64_t>(*value));
  }
  return get<double>(*this, name, "a number");
}
const std::string& Attributes::get_string(std::string_view name) const {
  return get<std::string>(*this, name, "a string");
}
DType Attributes::get_dtype(std::string_view name) const { return get<DType>(*this, name, "a dtype"); }
const Ints& Attributes::get_ints(std::string_view name) const { return get<Ints>(*this, name, "a list of integers"); }
const Doubles& Attributes::get_doubles(std::string_view name) const {
  return get<Doubles>(*this, name, "a list of numbers");
}

std::string to_string(const AttributeValue& value) {
  struct Printer {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return shortest(v); }
    std::string operator()(const std::string& v) const { return quote(v); }
    std::string operator()(DType v) const { return tessera::to_string(v); }
    std::string operator()(const Ints& v) const { return fmt::format("[{}]", fmt::join(v, ",")); }
    std::string operator()(const Doubles& v) const {
      if (v.empty()) return "[.]";
      std::string text = "[";
      for (const double x : v) text += (text.size() > 1 ? "," : "") + shortest(x);
      return text + "]";
    }
  };
  return std::visit(Printer{}, value);
}

std::string Attributes::to_string() const {
  if (entries_.empty()) return "";
  std::string text = "{";
  for (const auto& [name, value] : entries_) {
    if (text.size() > 1) text += ", ";
    text += name;
    const bool* flag = std::get_if<bool>(&value);
    if (flag == nullptr || !*flag) text += "=" + tessera::to_string(value);
  }
  return text + "}";
}

AttributeValue parse_attribute_value(std::string_view text) {
  text = trim(text);
  if (text.empty()) throw InvalidArgument("attribute: empty value");
  if (text == "true") return true;
  if (text == "false") return false;
  if (text.front() == '"') return unquote(text);
  if (text.front() == '[') {
    if (text.back() != ']') throw InvalidArgument("attribute: unterminated list {}", text);
    const auto inner = trim(text.substr(1, text.size() - 2));
    if (inner.empty()) return Ints{};
    if (inner == ".") return Doubles{};
    const auto parts = split(inner, ',');
    if (std::any_of(parts.begin(), parts.end(), [](auto part) { return looks_floating(trim(part)); })) {
      Doubles values;
      for (const auto part : parts) values.push_back(parse_double(trim(part), "attribute list element"));
      return values;
    }
    Ints values;
    for (const auto part : parts) values.push_back(parse_int(trim(part), "attribute list element"));
    return values;
  }
  if (looks_floating(text) && text.find_first_not_of("+-.0123456789einfa") == std::string_view::npos) {
    return parse_double(text, "attribute");
  }
  if ((text.front() >= '0' && text.front() <= '9') || text.front() == '-') return parse_int(text, "attribute");
  return parse_dtype(text);
}

Attributes parse_attributes(std::string_view text) {
  text = trim(text);
  if (text.size() < 2 || text.front() != '{' || text.back() != '}') {
    throw InvalidArgument("attributes must stand in {{}}, got \"{}\"", text);
  }
  text = text.substr(1, text.size() - 2);
  Attributes attributes;
  while (!trim(text).empty()) {
    const auto end = find_outside(text, ',');
    const auto entry = trim(text.substr(0, end));
    const auto equals = find_outside(entry, '=');
    const auto name = trim(entry.substr(0, equals));
    if (name.empty()) throw InvalidArgument("attribute without a name in \"{}\"", entry);
    if (!std::all_of(name.begin(), name.end(), is_name_character)) {
      throw InvalidArgument("attribute \"{}\": a name has letters, digits, _ and . only", name);
    }
    attributes.set(name, equals == std::string_view::npos ? AttributeValue(true)
                                                          : parse_attribute_value(entry.substr(equals + 1)));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return attributes;
}

}  // namespace tessera
