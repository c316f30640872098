#include "tessera/train/saving/network_identity.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/base/strings.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::train {
namespace {

// Another number when the text below changes: hashes of different making are not compared.
constexpr int kMaking = 1;

// The nodes that a value is computed from.
std::set<ir::NodeId> ancestors_of(const ir::Graph& graph, ir::ValueId value) {
  std::set<ir::NodeId> found;
  std::vector<ir::NodeId> next = {graph.info(value).node};
  while (!next.empty()) {
    const auto node = next.back();
    next.pop_back();
    if (node == ir::kNone || !found.insert(node).second) continue;
    for (const auto input : graph.node(node).inputs) next.push_back(graph.info(input).node);
  }
  return found;
}

// What follows from the batch, the precision, the ranks and the seed is left out.
std::string settings_of(const ir::Node& node) {
  Attributes settings;
  for (const auto& attribute : ops::OpRegistry::instance().get(node.op).attributes) {
    const auto* value = node.attributes.find(attribute.name);
    if (attribute.is_of_network && value != nullptr) settings.set(attribute.name, *value);
  }
  return settings.to_string();
}

std::map<std::string, int64_t> parse_operators(const std::string& text) {
  std::map<std::string, int64_t> counts;
  for (const auto& item : split(text, ',')) {
    const auto words = split(trim(item), ' ');
    if (words.size() == 2) counts[std::string(words[0])] = parse_int(words[1], "number of operators");
  }
  return counts;
}

}  // namespace

NetworkIdentity identity_of(const ir::Graph& graph) {
  const auto* loss = graph.find_output("loss");
  if (loss == nullptr) return {};
  std::map<ir::ValueId, std::string> names;
  size_t num_inputs = 0;
  for (const auto& input : graph.inputs()) {
    const bool is_data = input.kind == ir::InputKind::kInput;
    names[input.value] = is_data ? fmt::format("input {}", num_inputs++) : input.name;
  }
  std::map<std::string, int64_t> counts;
  std::string text;
  size_t num_values = 0;
  for (const auto id : ancestors_of(graph, loss->value)) {
    const auto& node = graph.node(id);
    if (node.op == "cast") {  // precision
      names[node.outputs[0]] = names.at(node.inputs[0]);
      continue;
    }
    ++counts[node.op];
    text += node.op + settings_of(node);
    for (const auto input : node.inputs) text += " " + names.at(input);
    text += "\n";
    for (const auto output : node.outputs) names[output] = fmt::format("%{}", num_values++);
  }
  NetworkIdentity identity{.hash = fmt::format("{}-{:016x}", kMaking, hash_name(text))};
  for (const auto& [op, count] : counts) {
    identity.operators += fmt::format("{}{} {}", identity.operators.empty() ? "" : ", ", op, count);
  }
  return identity;
}

std::string difference_of(const NetworkIdentity& there, const NetworkIdentity& here) {
  auto counts_there = parse_operators(there.operators);
  auto counts_here = parse_operators(here.operators);
  std::set<std::string> ops;
  for (const auto& [op, count] : counts_there) ops.insert(op);
  for (const auto& [op, count] : counts_here) ops.insert(op);
  std::string text;
  for (const auto& op : ops) {
    if (counts_there[op] == counts_here[op]) continue;
    text += fmt::format("{}{}: {} there, {} here", text.empty() ? "" : "; ", op, counts_there[op], counts_here[op]);
  }
  return text.empty() ? "the same operators in another order, or with other settings" : text;
}

}  // namespace tessera::train
