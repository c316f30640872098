#include "tessera/compiler/search/plan_record.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/json/bounded_json.h"
#include "tessera/base/random.h"
#include "tessera/mesh/rank_limits.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "tessera plan";
constexpr int kVersion = 1;
constexpr size_t kMaxAxes = 16;
constexpr JsonKind kPlanJson{.name = "plan"};

std::vector<std::string> names_of(const mesh::Mesh& mesh, const std::vector<int>& axes) {
  std::vector<std::string> names;
  names.reserve(axes.size());
  for (const int axis : axes) names.push_back(mesh.axis(axis).name);
  return names;
}

Json to_json(const mesh::Mesh& mesh, const OperatorName& name, const NodeChoice& choice) {
  Json json{{"operator", name.text}};
  if (name.is_gradient) json["gradient"] = true;
  for (const auto& [factor, axes] : choice.factors) json["split"][factor] = names_of(mesh, axes);
  for (const auto& [axis, operands] : choice.through) json["partial"][mesh.axis(axis).name] = operands;
  for (const auto& [factor, block] : choice.blocks) json["blocks"][factor] = block;
  return json;
}

// A value of the file, named in messages.
class Field {
 public:
  Field(const Json& json, std::string name) : json_(json), name_(std::move(name)) {}

  [[noreturn]] void fail(const std::string& expected) const {
    throw InvalidArgument("{} must be {}, got {}", name_, expected, json_.dump().substr(0, 80));
  }
  Field operator[](const std::string& member) const {
    if (!json_.is_object()) fail("an object");
    if (!json_.contains(member)) throw InvalidArgument("{}: \"{}\" is missing", name_, member);
    return {json_.at(member), name_ + "." + member};
  }
  bool has(const std::string& member) const { return json_.is_object() && json_.contains(member); }
  std::vector<Field> items() const {
    if (!json_.is_array()) fail("a list");
    std::vector<Field> fields;
    for (size_t i = 0; i < json_.size(); ++i) fields.push_back({json_[i], fmt::format("{}[{}]", name_, i)});
    return fields;
  }
  std::vector<std::pair<std::string, Field>> members() const {
    if (!json_.is_object()) fail("an object");
    std::vector<std::pair<std::string, Field>> fields;
    for (const auto& [key, value] : json_.items()) fields.emplace_back(key, Field{value, name_ + "." + key});
    return fields;
  }
  std::string text() const {
    if (!json_.is_string()) fail("a text");
    return json_.get<std::string>();
  }
  double number() const {
    if (!json_.is_number()) fail("a number");
    return json_.get<double>();
  }
  bool boolean() const {
    if (!json_.is_boolean()) fail("true or false");
    return json_.get<bool>();
  }
  int64_t integer(int64_t min, int64_t max) const {
    const int64_t value = json_.is_number_integer() ? json_.get<int64_t>() : min - 1;
    if (value < min || value > max) fail(fmt::format("a whole number of {} to {}", min, max));
    return value;
  }
  const std::string& name() const { return name_; }

 private:
  const Json& json_;
  std::string name_;
};

mesh::Mesh read_mesh(const Field& file) {
  std::vector<mesh::Axis> axes;
  int64_t size = 1;
  for (const Field& axis : file["mesh"].items()) {
    const auto pair = axis.items();
    if (pair.size() != 2 || axes.size() == kMaxAxes) axis.fail("[NAME, SIZE]");
    axes.push_back({pair[0].text(), static_cast<int>(pair[1].integer(1, mesh::kMaxRanks / size))});
    size *= axes.back().size;
  }
  std::vector<int> ranks;
  if (file.has("ranks")) {
    for (const Field& rank : file["ranks"].items()) ranks.push_back(static_cast<int>(rank.integer(0, mesh::kMaxRanks)));
  }
  return mesh::Mesh(axes, ranks);
}

std::vector<int> read_axes(const Field& list, const mesh::Mesh& mesh) {
  std::vector<int> axes;
  for (const Field& axis : list.items()) axes.push_back(mesh.axis_index(axis.text()));
  return axes;
}

NodeChoice read_choice(const Field& row, const mesh::Mesh& mesh) {
  NodeChoice choice;
  std::vector<int> used;
  if (row.has("split")) {
    for (const auto& [factor, list] : row["split"].members()) {
      auto& axes = choice.factors[factor] = read_axes(list, mesh);
      used.insert(used.end(), axes.begin(), axes.end());
    }
  }
  if (row.has("blocks")) {
    for (const auto& [factor, block] : row["blocks"].members()) {
      choice.blocks[factor] = block.integer(1, std::numeric_limits<int64_t>::max());
    }
  }
  if (row.has("partial")) {
    for (const auto& [axis, list] : row["partial"].members()) {
      auto& operands = choice.through[mesh.axis_index(axis)];
      used.push_back(mesh.axis_index(axis));
      for (const Field& operand : list.items()) operands.push_back(static_cast<int>(operand.integer(0, 1 << 16)));
    }
  }
  std::sort(used.begin(), used.end());
  if (std::adjacent_find(used.begin(), used.end()) != used.end()) row.fail("an operator that uses each axis once");
  return choice;
}

// Whether the dims of the factor can be dealt in this block: it must divide the first operand's that has the factor.
std::string fault_of_block(const ir::Graph& graph, ir::NodeId id, const ops::IndexRule& rule, const NodeChoice& choice,
                           const std::string& factor, int64_t block) {
  if (!choice.factors.contains(factor)) {
    return fmt::format("has blocks of the index \"{}\", which it does not split", factor);
  }
  for (size_t i = 0; i < rule.inputs.size(); ++i) {
    const auto dim = std::find(rule.inputs[i].begin(), rule.inputs[i].end(), factor) - rule.inputs[i].begin();
    if (dim == std::ssize(rule.inputs[i])) continue;
    const int64_t size = graph.type(graph.node(id).inputs[i]).shape[static_cast<int>(dim)];
    if (block <= size && size % block == 0) return "";
    return fmt::format("has blocks of {} of the index \"{}\", which do not divide its {} elements", block, factor,
                       size);
  }
  return "";
}

// Whether the operator can be split so.
std::string fault_of(const ir::Graph& graph, ir::NodeId id, const NodeChoice& choice) {
  const auto rule = ops::rule_of(graph, id);
  for (const auto& [factor, axes] : choice.factors) {
    const bool is_known = std::any_of(rule.inputs.begin(), rule.inputs.end(), [&](const auto& dims) {
      return std::find(dims.begin(), dims.end(), factor) != dims.end();
    });
    if (!is_known) return fmt::format("has no index \"{}\"; its rule is {}", factor, rule.to_string());
  }
  for (const auto& [factor, block] : choice.blocks) {
    if (auto fault = fault_of_block(graph, id, rule, choice, factor, block); !fault.empty()) return fault;
  }
  const auto& linear = ops::OpRegistry::instance().get(graph.node(id).op).linear_in;
  for (const auto& [axis, operands] : choice.through) {
    if (std::find(linear.begin(), linear.end(), operands) == linear.end()) {
      return fmt::format("is not linear in the operands {}", fmt::join(operands, " "));
    }
  }
  return "";
}

// By ValueId, as Graph::value_name says them.
std::vector<std::string> value_names(const ir::Graph& graph) {
  std::vector<std::string> names(static_cast<size_t>(graph.num_values()));
  for (const auto& input : graph.inputs()) names[static_cast<size_t>(input.value)] = input.name;
  int number = 0;
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    for (const ir::ValueId v : graph.node(n).outputs) names[static_cast<size_t>(v)] = fmt::format("%{}", ++number);
  }
  return names;
}

void take_copies(const ir::Graph& graph, const PlanRecord& record, PlanChoices& choices) {
  std::map<std::string, ir::ValueId> values;
  const auto all = value_names(graph);
  for (size_t v = 0; v < all.size(); ++v) values[all[v]] = static_cast<ir::ValueId>(v);
  for (const auto& [name, sharding] : record.copies) {
    const auto it = values.find(name);
    if (it == values.end() || graph.type(it->second).shape.ndim() != static_cast<int>(sharding.dims.size())) {
      throw InvalidArgument("the plan's copy of \"{}\" as {} is not of a value of {}", name,
                            sharding.to_string(record.mesh), graph.name());
    }
    mesh::validate(graph.type(it->second).shape, {record.mesh, sharding});
    choices.copies[it->second] = sharding;
  }
}

}  // namespace

std::vector<OperatorName> operator_names(const ir::Graph& graph) {
  std::vector<OperatorName> names;
  std::map<OperatorName, int> seen;
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    const ir::Node& node = graph.node(n);
    OperatorName name{node.source + ":" + node.op, node.forward != ir::kNone};
    const int number = ++seen[name];
    if (number > 1) name.text += fmt::format("#{}", number);
    names.push_back(std::move(name));
  }
  return names;
}

std::string hash_of(const ir::Graph& graph) { return fmt::format("{:016x}", hash_name(ir::print(graph))); }

PlanRecord record_plan(const ir::Graph& graph, const PlanChoices& choices, double seconds, double bound) {
  PlanRecord record{.graph_hash = hash_of(graph),
                    .mesh = choices.mesh,
                    .seconds = seconds,
                    .bound = bound,
                    .inputs = choices.inputs,
                    .copies = {},
                    .operators = {}};
  const auto values = value_names(graph);
  for (const auto& [value, sharding] : choices.copies) record.copies[values[static_cast<size_t>(value)]] = sharding;
  const auto names = operator_names(graph);
  for (const auto& [node, choice] : choices.nodes) record.operators[names[static_cast<size_t>(node)]] = choice;
  return record;
}

PlanChoices choices_for(const ir::Graph& graph, const PlanRecord& record) {
  const bool is_same = record.graph_hash == hash_of(graph);
  PlanChoices choices{.mesh = record.mesh};
  for (const auto& input : graph.inputs()) {
    choices.inputs[input.name] = mesh::Sharding::replicated(graph.type(input.value).shape.ndim());
  }
  for (const auto& [name, sharding] : record.inputs) {
    const ir::Input* input = graph.find_input(name);
    if (input != nullptr && graph.type(input->value).shape.ndim() == static_cast<int>(sharding.dims.size())) {
      choices.inputs[name] = sharding;
    } else if (is_same) {
      throw InvalidArgument("the plan's input \"{}\" {} is not one of {}", name, sharding.to_string(record.mesh),
                            graph.name());
    }
  }
  if (is_same) take_copies(graph, record, choices);
  const auto names = operator_names(graph);
  size_t found = 0;
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    const auto it = record.operators.find(names[static_cast<size_t>(n)]);
    if (it == record.operators.end()) continue;
    ++found;
    NodeChoice choice = it->second;
    if (!is_same) {
      choice.through.clear();
      // Rows of a sample that is shorter or longer there.
      const auto rule = ops::rule_of(graph, n);
      std::erase_if(choice.blocks, [&](const auto& entry) {
        return !fault_of_block(graph, n, rule, choice, entry.first, entry.second).empty();
      });
    }
    const auto fault = fault_of(graph, n, choice);
    if (fault.empty()) {
      choices.nodes[n] = std::move(choice);
    } else if (is_same) {
      throw InvalidArgument("the plan's operator \"{}\" {}", it->first.text, fault);
    }
  }
  if (is_same && found != record.operators.size()) {
    for (const auto& [name, choice] : record.operators) {
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      throw InvalidArgument("the plan's {}operator \"{}\" is not one of {}", name.is_gradient ? "gradient " : "",
                            name.text, graph.name());
    }
  }
  return choices;
}

std::string difference_text(const ir::Graph& graph, const PlanRecord& record) {
  if (record.graph_hash == hash_of(graph)) return "";
  const auto names = operator_names(graph);
  const auto num_named =
      std::count_if(names.begin(), names.end(), [&](const auto& name) { return record.operators.contains(name); });
  return fmt::format("is for another graph: {} of its {} operators are here, the others of this graph are not split",
                     num_named, record.operators.size());
}

std::string to_json(const PlanRecord& record) {
  Json mesh = Json::array();
  std::vector<int> usual;
  for (int axis = 0; axis < record.mesh.num_axes(); ++axis) {
    mesh.push_back({record.mesh.axis(axis).name, record.mesh.axis(axis).size});
  }
  for (int rank = 0; rank < record.mesh.size(); ++rank) usual.push_back(rank);
  std::string text = fmt::format("{{\n\"format\": \"{}\", \"version\": {}, \"graph\": {},\n\"mesh\": {},\n", kFormat,
                                 kVersion, Json(record.graph_hash).dump(), mesh.dump());
  if (record.mesh.ranks() != usual) text += fmt::format("\"ranks\": {},\n", Json(record.mesh.ranks()).dump());
  if (record.seconds > 0) {
    Json predicted{{"seconds", record.seconds}};
    if (record.added_seconds > 0) predicted["added_up"] = record.added_seconds;
    const bool is_counted = record.searched_seconds > 0 && std::isfinite(record.searched_seconds);
    if (is_counted) predicted["added_up_by_search"] = record.searched_seconds;
    if (std::isfinite(record.bound)) predicted["bound"] = record.bound;
    text += fmt::format("\"predicted\": {},\n", predicted.dump());
  }
  const auto lines = [&](const std::map<std::string, mesh::Sharding>& shardings) {
    std::vector<std::string> rows;
    for (const auto& [name, sharding] : shardings) {
      rows.push_back(Json(name).dump() + ": " + Json(sharding.to_string(record.mesh)).dump());
    }
    return fmt::format("{}", fmt::join(rows, ",\n"));
  };
  auto split = record.inputs;
  std::erase_if(split, [](const auto& entry) { return entry.second.is_replicated(); });
  std::vector<std::string> operators;
  for (const auto& [name, choice] : record.operators) operators.push_back(to_json(record.mesh, name, choice).dump());
  text += fmt::format("\"inputs\": {{\n{}\n}},\n\"copies\": {{\n{}\n}},\n\"operators\": [\n{}\n]\n}}\n", lines(split),
                      lines(record.copies), fmt::join(operators, ",\n"));
  return text;
}

PlanRecord parse_plan_record(std::string_view text, const std::string& file) {
  const Json json = parse_bounded_json<Json>(text, file, kPlanJson);
  const Field root(json, file);
  if (root["format"].text() != kFormat) root["format"].fail(fmt::format("\"{}\"", kFormat));
  root["version"].integer(kVersion, kVersion);
  PlanRecord record{
      .graph_hash = root["graph"].text(), .mesh = read_mesh(root), .inputs = {}, .copies = {}, .operators = {}};
  if (root.has("predicted")) {
    record.seconds = root["predicted"]["seconds"].number();
    if (root["predicted"].has("added_up")) record.added_seconds = root["predicted"]["added_up"].number();
    if (root["predicted"].has("added_up_by_search")) {
      record.searched_seconds = root["predicted"]["added_up_by_search"].number();
    }
    if (root["predicted"].has("bound")) record.bound = root["predicted"]["bound"].number();
  }
  for (const auto& [name, sharding] : root["inputs"].members()) {
    record.inputs[name] = mesh::parse_sharding(sharding.text(), record.mesh);
  }
  if (root.has("copies")) {
    for (const auto& [name, sharding] : root["copies"].members()) {
      record.copies[name] = mesh::parse_sharding(sharding.text(), record.mesh);
    }
  }
  for (const Field& row : root["operators"].items()) {
    const OperatorName name{row["operator"].text(), row.has("gradient") && row["gradient"].boolean()};
    if (!record.operators.emplace(name, read_choice(row, record.mesh)).second) {
      throw InvalidArgument("{}: operator \"{}\" is there twice", row.name(), name.text);
    }
  }
  return record;
}

}  // namespace tessera::compiler
