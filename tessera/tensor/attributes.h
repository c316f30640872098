// Attributes: the compile-time settings of a node or kernel, by name, sorted. Values are data, never code. Text form:
// {axes=[0,1], keep_dims=true, mode="same"}; a name alone means true. Parses back; equal values print equally.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/tensor/type.h"

namespace tessera {

using Ints = std::vector<int64_t>;
using Doubles = std::vector<double>;
using AttributeValue = std::variant<bool, int64_t, double, std::string, DType, Ints, Doubles>;

class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string_view, AttributeValue>> values) {
    for (const auto& [name, value] : values) set(name, value);
  }

  bool has(std::string_view name) const { return find(name) != nullptr; }
  const AttributeValue* find(std::string_view name) const;
  void set(std::string_view name, AttributeValue value);
  void erase(std::string_view name);

  // The value of `name` as that type. Throws InvalidArgument naming it when absent or of another type; an int is
  // accepted where a double is asked for.
  bool get_bool(std::string_view name) const;
  int64_t get_int(std::string_view name) const;
  double get_double(std::string_view name) const;
  const std::string& get_string(std::string_view name) const;
  DType get_dtype(std::string_view name) const;
  const Ints& get_ints(std::string_view name) const;
  const Doubles& get_doubles(std::string_view name) const;
  Shape get_shape(std::string_view name) const { return Shape(get_ints(name)); }

  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  std::string to_string() const;  // "{...}", or "" when empty
  bool operator==(const Attributes&) const = default;

 private:
  std::vector<std::pair<std::string, AttributeValue>> entries_;
};

std::string to_string(const AttributeValue& value);
// Throws InvalidArgument naming the text that is not a value. Doubles print with '.', 'e', inf or nan, dtypes as
// words, strings in quotes with \" \\ \n escaped, [ ] as Ints and [.] as Doubles when empty.
AttributeValue parse_attribute_value(std::string_view text);
// Parses "{...}".
Attributes parse_attributes(std::string_view text);

}  // namespace tessera
