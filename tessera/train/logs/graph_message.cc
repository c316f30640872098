// The GraphDef of a network, of the messages that event_message.h declares.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/files/protobuf_wire.h"
#include "tessera/ir/graph.h"
#include "tessera/train/logs/event_message.h"

namespace tessera::train {
namespace {

// TensorFlow's version of the format, which the readers of today all know.
constexpr int64_t kProducer = 22;
// More of them say nothing on the page, and a constant may have millions.
constexpr size_t kMaxListed = 64;

int64_t dtype_number(DType dtype) {
  switch (dtype) {
    case DType::kF32: return 1;
    case DType::kF64: return 2;
    case DType::kI32: return 3;
    case DType::kU8: return 4;
    case DType::kI16: return 5;
    case DType::kI8: return 6;
    case DType::kI64: return 9;
    case DType::kBool: return 10;
    case DType::kBF16: return 14;
    case DType::kU16: return 17;
    case DType::kF16: return 19;
    case DType::kU32: return 22;
    case DType::kU64: return 23;
  }
  check(false, "a dtype without a number");
  return 0;
}

std::string shape_message(const Shape& shape) {
  std::string message;
  for (const int64_t size : shape) {
    std::string dim;
    append_number_field(dim, 1, size);
    append_bytes_field(message, 2, dim);
  }
  return message;
}

std::string number_list(const Ints& values) {
  std::string numbers;
  for (const int64_t value : values) append_varint(numbers, static_cast<uint64_t>(value));
  std::string list;
  append_bytes_field(list, 3, numbers);
  return list;
}

std::string float_list(const Doubles& values) {
  std::string numbers;
  for (const double value : values) append_fixed(numbers, std::bit_cast<uint32_t>(static_cast<float>(value)));
  std::string list;
  append_bytes_field(list, 4, numbers);
  return list;
}

void append_attribute_message(std::string& node, std::string_view name, std::string_view message) {
  std::string entry;
  append_bytes_field(entry, 1, name);
  append_bytes_field(entry, 2, message);
  append_bytes_field(node, 5, entry);
}

void append_attribute(std::string& node, std::string_view name, const AttributeValue& value) {
  std::string message;
  if (const auto* truth = std::get_if<bool>(&value)) append_number_field(message, 5, *truth ? 1 : 0);
  if (const auto* number = std::get_if<int64_t>(&value)) append_number_field(message, 3, *number);
  if (const auto* number = std::get_if<double>(&value)) append_float_field(message, 4, static_cast<float>(*number));
  if (const auto* text = std::get_if<std::string>(&value)) append_bytes_field(message, 2, *text);
  if (const auto* dtype = std::get_if<DType>(&value)) append_number_field(message, 6, dtype_number(*dtype));
  if (const auto* numbers = std::get_if<Ints>(&value)) {
    if (numbers->size() > kMaxListed) return;
    append_bytes_field(message, 1, number_list(*numbers));
  }
  if (const auto* numbers = std::get_if<Doubles>(&value)) {
    if (numbers->size() > kMaxListed) return;
    append_bytes_field(message, 1, float_list(*numbers));
  }
  append_attribute_message(node, name, message);
}

// What a name has of this character: ':' and '^', for one, say something else to who reads it.
char plain(char c) {
  const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  return is_plain ? c : '_';
}

// A cell's path, whose parts have '.' between them, as a scope.
std::string scope_of(std::string_view path) {
  std::string scope;
  for (const char c : path) {
    if (c != '.') {
      scope += plain(c);
    } else if (!scope.empty() && scope.back() != '/') {
      scope += '/';
    }
  }
  if (scope.ends_with('/')) scope.pop_back();
  return scope;
}

// What is taken of a graph, and what its values are called.
class NamedGraph {
 public:
  explicit NamedGraph(const ir::Graph& graph)
      : graph_(graph),
        is_needed_(static_cast<size_t>(graph.num_values())),
        names_(static_cast<size_t>(graph.num_values())) {
    find_needed();
  }

  std::string message() {
    std::string bytes;
    for (const ir::Input& input : graph_.inputs()) {
      if (is_needed(input.value)) append_bytes_field(bytes, 1, input_message(input));
    }
    for (ir::NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (is_any_needed(graph_.node(n))) append_bytes_field(bytes, 1, node_message(graph_.node(n)));
    }
    std::string versions;
    append_number_field(versions, 1, kProducer);
    append_bytes_field(bytes, 4, versions);
    return bytes;
  }

 private:
  bool is_needed(ir::ValueId value) const { return is_needed_[static_cast<size_t>(value)]; }

  bool is_any_needed(const ir::Node& node) const {
    return std::ranges::any_of(node.outputs, [&](ir::ValueId output) { return is_needed(output); });
  }

  void find_needed() {
    const ir::Output* loss = graph_.find_output("loss");
    for (const ir::Output& output : graph_.outputs()) {
      if (loss == nullptr || output.name == "loss") is_needed_[static_cast<size_t>(output.value)] = true;
    }
    for (ir::NodeId n = graph_.num_nodes() - 1; n >= 0; --n) {
      if (!is_any_needed(graph_.node(n))) continue;
      for (const ir::ValueId input : graph_.node(n).inputs) is_needed_[static_cast<size_t>(input)] = true;
    }
  }

  std::string unused_name(const std::string& wanted) {
    std::string name = wanted;
    for (int& number = numbers_[wanted]; !taken_.insert(name).second;) name = fmt::format("{}_{}", wanted, ++number);
    return name;
  }

  void append_types(std::string& bytes, const std::vector<ir::ValueId>& values) const {
    std::string shapes;
    for (const ir::ValueId value : values) append_bytes_field(shapes, 7, shape_message(graph_.type(value).shape));
    std::string list;
    append_bytes_field(list, 1, shapes);
    append_attribute_message(bytes, "_output_shapes", list);
    if (!values.empty()) append_attribute(bytes, "T", AttributeValue(graph_.type(values.front()).dtype));
  }

  std::string input_message(const ir::Input& input) {
    const std::string name = unused_name(scope_of(input.name));
    names_[static_cast<size_t>(input.value)] = name;
    std::string bytes;
    append_bytes_field(bytes, 1, name);
    append_bytes_field(bytes, 2, ir::to_string(input.kind));
    append_types(bytes, {input.value});
    return bytes;
  }

  std::string node_message(const ir::Node& node) {
    const std::string scope = scope_of(node.source);
    std::string op = node.op;
    std::ranges::transform(op, op.begin(), plain);
    const std::string name = unused_name(scope.empty() ? op : fmt::format("{}/{}", scope, op));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      names_[static_cast<size_t>(node.outputs[i])] = i == 0 ? name : fmt::format("{}:{}", name, i);
    }
    std::string bytes;
    append_bytes_field(bytes, 1, name);
    append_bytes_field(bytes, 2, node.op);
    for (const ir::ValueId input : node.inputs) append_bytes_field(bytes, 3, names_[static_cast<size_t>(input)]);
    for (const auto& [attribute, value] : node.attributes) append_attribute(bytes, attribute, value);
    append_types(bytes, node.outputs);
    if (!node.line.empty()) append_attribute(bytes, "line", AttributeValue(node.line));
    if (node.stage != ir::kNone) append_attribute(bytes, "stage", AttributeValue(int64_t{node.stage}));
    return bytes;
  }

  const ir::Graph& graph_;
  std::vector<bool> is_needed_;  // by value
  std::vector<std::string> names_;
  std::set<std::string> taken_;
  std::map<std::string, int> numbers_;  // the latest one of each name
};

}  // namespace

std::string graph_message(const ir::Graph& graph) { return NamedGraph(graph).message(); }

}  // namespace tessera::train
