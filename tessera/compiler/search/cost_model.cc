#include "tessera/compiler/search/cost_model.h"

#include <algorithm>

#include "tessera/compiler/cost/collective_time.h"
#include "tessera/compiler/cost/operator_time.h"
#include "tessera/compiler/plan/node_planner.h"
#include "tessera/compiler/search/choices.h"
#include "tessera/compiler/search/prices.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

// Where random numbers come from makes no difference here.
constexpr const char* kOnlyNames[] = {"stream", "seed"};

std::string signature_of(const ir::Graph& graph, const ir::Node& node) {
  std::string text = node.op;
  for (const auto& [name, value] : node.attributes) {
    if (std::find(std::begin(kOnlyNames), std::end(kOnlyNames), name) != std::end(kOnlyNames)) continue;
    text += "," + name + "=" + to_string(value);
  }
  for (const auto v : node.inputs) text += " " + graph.type(v).to_string();
  text += " ->";
  for (const auto v : node.outputs) text += " " + graph.type(v).to_string();
  if (!node.strategy.empty()) text += mesh::to_string(node.strategy) + mesh::to_string(node.grid);
  return text;
}

std::string key_of(const mesh::Sharding& sharding) {
  std::string key;
  for (const auto& axes : sharding.dims) {
    for (const int axis : axes) key += static_cast<char>('a' + axis);
    key += ',';
  }
  for (const int64_t block : sharding.blocks) key += std::to_string(block) + ',';
  for (const auto& partial : sharding.partial) {
    key += static_cast<char>('a' + partial.axis);
    key += static_cast<char>('0' + static_cast<int>(partial.reduction));
  }
  return key;
}

}  // namespace

CostModel::CostModel(const mesh::Mesh& mesh, const MachineProfile& profile, const PartitionOptions& options)
    : mesh_(mesh), profile_(profile), options_(options) {}

ShardingTable& CostModel::shardings_of(const Type& type) {
  auto& table = tables_[type.to_string()];
  if (!table) table = std::make_unique<ShardingTable>(ShardingTable{.type = type});
  return *table;
}

int CostModel::number_of(ShardingTable& table, const mesh::Sharding& sharding) const {
  const auto [it, is_new] = table.numbers.try_emplace(key_of(sharding), static_cast<int>(table.shardings.size()));
  if (is_new) {
    table.shardings.push_back(sharding);
    table.bytes.push_back(largest_part(table.type, mesh_, sharding).size_bytes());
  }
  return it->second;
}

double CostModel::way_seconds(ShardingTable& table, int from, int to) const {
  if (from == to) return 0;
  const auto [it, is_new] = table.ways.try_emplace(int64_t{from} << 32 | to, 0.0);
  if (!is_new) return it->second;
  const auto layout = [&](int number) { return mesh::Layout{mesh_, table.shardings[static_cast<size_t>(number)]}; };
  it->second = price_of_way(table.type, layout(from), layout(to), profile_, options_.redistribution).seconds;
  return it->second;
}

const NodeOptions& CostModel::options_of(const ir::Graph& graph, ir::NodeId node) {
  auto& options = nodes_[signature_of(graph, graph.node(node))];
  if (!options) options = std::make_unique<NodeOptions>(make_options(graph, node));
  return *options;
}

NodeOptions CostModel::make_options(const ir::Graph& graph, ir::NodeId id) {
  const ir::Node& node = graph.node(id);
  const auto rule = ops::rule_of(graph, id);
  NodeOptions options{.choices = possible_choices(graph, id, mesh_)};
  options.operands.resize(node.inputs.size());
  options.results.resize(node.outputs.size());
  for (const NodeChoice& choice : options.choices) {
    auto operands = operand_shardings(rule, choice.factors);
    auto results = result_shardings(rule, choice.factors);
    add_blocks(graph, id, mesh_, choice.factors, choice.blocks, operands, results);
    add_partial_sums(choice.through, operands, results);
    for (size_t i = 0; i < operands.size(); ++i) {
      options.operands[i].push_back(number_of(shardings_of(graph.type(node.inputs[i])), operands[i]));
    }
    int64_t bytes = 0;
    for (size_t o = 0; o < results.size(); ++o) {
      auto& table = shardings_of(graph.type(node.outputs[o]));
      options.results[o].push_back(number_of(table, results[o]));
      bytes += table.bytes[static_cast<size_t>(options.results[o].back())];
    }
    options.result_bytes.push_back(bytes);
    options.compute_seconds.push_back(compute_seconds(graph, id, options, options.result_bytes.size() - 1));
    options.communication_seconds.push_back(communication_seconds(graph, id, choice));
  }
  return options;
}

double CostModel::compute_seconds(const ir::Graph& graph, ir::NodeId id, const NodeOptions& options, size_t choice) {
  const ir::Node& node = graph.node(id);
  const auto local = [&](ir::ValueId v, const std::vector<int>& numbers) {
    const auto& table = shardings_of(graph.type(v));
    return largest_part(table.type, mesh_, table.shardings[static_cast<size_t>(numbers[choice])]);
  };
  std::vector<Type> inputs;
  std::vector<Type> outputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(local(node.inputs[i], options.operands[i]));
  for (size_t o = 0; o < node.outputs.size(); ++o) outputs.push_back(local(node.outputs[o], options.results[o]));
  return operator_seconds(node.op, node.attributes, inputs, outputs, profile_);
}

double CostModel::communication_seconds(const ir::Graph& graph, ir::NodeId id, const NodeChoice& choice) const {
  const auto& def = ops::OpRegistry::instance().get(graph.node(id).op);
  if (!def.localize || choice.factors.empty()) return 0;
  double seconds = 0;
  for (const auto& collective : work_of_choice(graph, id, mesh_, choice, options_).collectives) {
    const GroupMembers group(collective.ranks, mesh_.ranks()[0], profile_);
    seconds += group.seconds_of(group.from_all(collective.received_bytes, collective.rounds));
  }
  return seconds;
}

}  // namespace tessera::compiler
