#include "tessera/compiler/search/search_problem.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/compiler/search/layer_pattern.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::NodeId;
using ir::ValueId;
using mesh::Sharding;

// All ways of a persistent value to lie: each axis splits one dim, or none.
std::vector<Sharding> placements(const Shape& shape, const mesh::Mesh& mesh) {
  std::vector<Sharding> found{Sharding::replicated(shape.ndim())};
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    const size_t so_far = found.size();
    for (size_t i = 0; i < so_far; ++i) {
      for (int dim = 0; dim < shape.ndim(); ++dim) {
        Sharding next = found[i];
        next.dims[static_cast<size_t>(dim)].push_back(axis);
        int64_t parts = 1;
        for (const int a : next.dims[static_cast<size_t>(dim)]) parts *= mesh.axis(a).size;
        if (parts <= shape[dim]) found.push_back(std::move(next));
      }
    }
  }
  return found;
}

bool is_update(const ir::Node& node) { return ops::OpRegistry::instance().get(node.op).update; }

}  // namespace

SearchProblem::SearchProblem(const ir::Graph& graph, CostModel& costs, const SearchProblemOptions& options)
    : graph_(graph), costs_(costs), options_given_(options) {
  problem_.name = graph.name();
  if (options.memory_limit_bytes > 0) problem_.usage_limit = options.memory_limit_bytes;
  readers_.resize(static_cast<size_t>(graph.num_values()));
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const auto& inputs = graph.node(n).inputs;
    for (size_t i = 0; i < inputs.size(); ++i) readers_[static_cast<size_t>(inputs[i])].push_back({n, i});
  }
  find_returns();
  find_updates();
  add_inputs();
  add_operators();
  add_values();
}

// An input that is returned as it is stays where it lies.
void SearchProblem::find_returns() {
  returns_.resize(static_cast<size_t>(graph_.num_values()));
  for (const auto& output : graph_.outputs()) {
    const ir::Input* replaced = graph_.find_input(output.name);
    if (replaced != nullptr && replaced->value == output.value) continue;
    auto& returns = returns_[static_cast<size_t>(output.value)];
    if (std::find(returns.begin(), returns.end(), replaced) == returns.end()) returns.push_back(replaced);
  }
}

bool SearchProblem::is_result(ValueId v) const {
  const auto& returns = returns_[static_cast<size_t>(v)];
  return std::find(returns.begin(), returns.end(), nullptr) != returns.end();
}

bool SearchProblem::is_only_returned(ValueId v) const {
  const auto at = static_cast<size_t>(v);
  return readers_[at].empty() && returns_[at].size() == 1;
}

SearchProblem::Reading SearchProblem::reading_of(ValueId v) const {
  if (!is_read(v)) return {};
  const auto& readers = readers_[static_cast<size_t>(v)];
  const int64_t behind_last = graph_.num_nodes();
  return {.begin = readers.empty() ? behind_last : readers.front().node,
          .end = 1 + (is_result(v) ? behind_last : readers.back().node)};
}

// Updates, and what only prepares their operands element by element: collectives before them travel beside backward.
void SearchProblem::find_updates() {
  std::vector<bool> is_new_value(static_cast<size_t>(graph_.num_values()));
  for (const auto& output : graph_.outputs()) {
    if (graph_.find_input(output.name) != nullptr) is_new_value[static_cast<size_t>(output.value)] = true;
  }
  for_update_.resize(static_cast<size_t>(graph_.num_nodes()));
  for (NodeId n = graph_.num_nodes() - 1; n >= 0; --n) {
    const auto& def = ops::OpRegistry::instance().get(graph_.node(n).op);
    bool is_wanted = false;
    bool only_updates = def.elementwise;
    for (const ValueId v : graph_.node(n).outputs) {
      is_wanted = is_wanted || is_new_value[static_cast<size_t>(v)];
      for (const Reader& reader : readers_[static_cast<size_t>(v)]) {
        is_wanted = true;
        only_updates = only_updates && for_update_[static_cast<size_t>(reader.node)];
      }
    }
    for_update_[static_cast<size_t>(n)] = def.update || (is_wanted && only_updates);
  }
}

void SearchProblem::add_inputs() {
  for (const auto& input : graph_.inputs()) {
    auto& table = costs_.shardings_of(graph_.type(input.value));
    const auto hint = options_given_.hints.find(input.name);
    auto& numbers = inputs_.emplace_back();
    if (hint != options_given_.hints.end()) {
      check(hint->second.mesh == costs_.mesh(), "a search's hints are on its mesh");
      numbers.push_back(costs_.number_of(table, hint->second.sharding));
    } else {
      for (const auto& sharding : placements(table.type.shape, costs_.mesh())) {
        numbers.push_back(costs_.number_of(table, sharding));
      }
    }
    solver::ProblemNode node{.begin = 0, .end = graph_.num_nodes() + 1, .name = input.name};
    for (const int number : numbers) {
      node.costs.push_back(0);
      node.usages.push_back(table.bytes[static_cast<size_t>(number)]);
    }
    problem_.nodes.push_back(std::move(node));
  }
  first_operator_ = static_cast<int>(problem_.nodes.size());
}

void SearchProblem::add_operators() {
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    options_given_.stop.throw_if_stopped();
    const ir::Node& operation = graph_.node(n);
    const NodeOptions& options = *options_.emplace_back(&costs_.options_of(graph_, n));
    // From its first reader on it lives as what the readers take.
    int64_t end = n + 1;
    for (const ValueId v : operation.outputs) end = std::max(end, reading_of(v).begin);
    solver::ProblemNode node{.begin = n, .end = end, .name = graph_.node_name(n)};
    for (size_t choice = 0; choice < options.choices.size(); ++choice) {
      node.costs.push_back(options.compute_seconds[choice] + own_price() * options.communication_seconds[choice]);
      // New values of parameters and states take the place of the old ones.
      node.usages.push_back(is_update(operation) ? 0 : options.result_bytes[choice]);
    }
    fix(node, n);
    forbid(node, n);
    problem_.nodes.push_back(std::move(node));
  }
}

// Forbids all choices but the given one.
void SearchProblem::fix(solver::ProblemNode& node, NodeId n) const {
  const auto given = options_given_.fixed.find(n);
  if (given == options_given_.fixed.end()) return;
  const auto& choices = options_of(n).choices;
  if (std::find(choices.begin(), choices.end(), given->second) == choices.end()) {
    throw InvalidArgument("{} cannot be split as is asked for", graph_.node_name(n));
  }
  for (size_t choice = 0; choice < choices.size(); ++choice) {
    if (!(choices[choice] == given->second)) node.costs[choice] = solver::kForbidden;
  }
}

// What the options rule out; unless that is everything.
void SearchProblem::forbid(solver::ProblemNode& node, NodeId n) const {
  const ir::Node& operation = graph_.node(n);
  if (!operation.strategy.empty() || options_given_.fixed.contains(n)) return;
  const auto& choices = options_of(n).choices;
  const auto forbid_unless = [&](const auto& is_allowed) {
    std::vector<bool> allowed(choices.size());
    for (size_t choice = 0; choice < choices.size(); ++choice) allowed[choice] = is_allowed(choice);
    if (std::find(allowed.begin(), allowed.end(), true) == allowed.end()) return;
    for (size_t choice = 0; choice < choices.size(); ++choice) {
      if (!allowed[choice]) node.costs[choice] = solver::kForbidden;
    }
  };
  const auto num_split_axes = [&](size_t choice) {
    size_t used = 0;
    for (const auto& [factor, axes] : choices[choice].factors) used += axes.size();
    return static_cast<int>(used);
  };
  bool can_use_all = false;  // by splitting it; sums that pass through an operator split nothing of it
  for (size_t choice = 0; choice < choices.size(); ++choice) {
    can_use_all = can_use_all || num_split_axes(choice) == costs_.mesh().num_axes();
  }
  if (options_given_.use_all_ranks && can_use_all && operation.forward == ir::kNone) {
    forbid_unless([&](size_t choice) {
      const auto used = num_split_axes(choice) + static_cast<int>(choices[choice].through.size());
      return used == costs_.mesh().num_axes();
    });
  }
  if (options_given_.slice_align_size > 1) {
    forbid_unless([&](size_t choice) { return is_aligned(n, choice); });
  }
}

bool SearchProblem::is_aligned(NodeId n, size_t choice) const {
  const ir::Node& operation = graph_.node(n);
  if (!ops::OpRegistry::instance().get(operation.op).is_matrix_product()) return true;
  for (size_t i = 0; i < operation.inputs.size(); ++i) {
    const auto& table = costs_.shardings_of(graph_.type(operation.inputs[i]));
    const auto& sharding = table.shardings[static_cast<size_t>(options_of(n).operands[i][choice])];
    for (int dim = 0; dim < table.type.shape.ndim(); ++dim) {
      int64_t parts = 1;
      for (const int axis : sharding.dims[static_cast<size_t>(dim)]) parts *= costs_.mesh().axis(axis).size;
      if (parts > 1 && table.type.shape[dim] % (parts * options_given_.slice_align_size) != 0) return false;
    }
  }
  return true;
}

SearchProblem::Source SearchProblem::source_of(ValueId v) const {
  const auto& info = graph_.info(v);
  const auto index = static_cast<size_t>(info.index);
  if (info.node == ir::kNone) return {node_of_input(index), &inputs_[index]};
  return {node_of(info.node), &options_of(info.node).results[index]};
}

void SearchProblem::add_values() {
  for (ValueId v = 0; v < graph_.num_values(); ++v) {
    const auto& readers = readers_[static_cast<size_t>(v)];
    const auto& returns = returns_[static_cast<size_t>(v)];
    if (readers.empty() && returns.empty()) continue;
    options_given_.stop.throw_if_stopped();
    Source source = source_of(v);
    const bool is_counted = options_given_.memory_limit_bytes > 0 && is_read(v);
    if (readers.size() + returns.size() > 1 || is_counted) source = add_copy(v, source);
    for (const Reader& reader : readers) {
      add_way(v, source, node_of(reader.node), options_of(reader.node).operands[reader.operand],
              price_for(reader.node));
    }
    for (const ir::Input* replaced : returns) add_return(v, source, replaced);
  }
}

SearchProblem::Source SearchProblem::add_copy(ValueId v, const Source& from) {
  const auto& readers = readers_[static_cast<size_t>(v)];
  auto& table = costs_.shardings_of(graph_.type(v));
  std::vector<int> shardings;
  if (!is_only_returned(v)) shardings = *from.shardings;
  for (const Reader& reader : readers) {
    const auto& wanted = options_of(reader.node).operands[reader.operand];
    shardings.insert(shardings.end(), wanted.begin(), wanted.end());
  }
  if (is_result(v)) {
    for (const int made : *from.shardings) shardings.push_back(returned_sharding(table, made));
  }
  std::sort(shardings.begin(), shardings.end());
  shardings.erase(std::unique(shardings.begin(), shardings.end()), shardings.end());
  Copy& copy = *copies_.emplace_back(
      std::make_unique<Copy>(Copy{v, static_cast<int>(problem_.nodes.size()), std::move(shardings), {}}));
  const Reading reading = reading_of(v);
  solver::ProblemNode node{.begin = reading.begin, .end = reading.end};
  double price = 0;
  for (const Reader& reader : readers) price = std::max(price, price_for(reader.node));
  if (!returns_[static_cast<size_t>(v)].empty()) price = std::max(price, options_given_.prices.gradient);
  // A persistent value is there all the time: its readers take more memory only where they take something else.
  if (graph_.info(v).node == ir::kNone && options_given_.memory_limit_bytes > 0) {
    add_made_of(from, copy, node, price);
    return {copy.node, &copy.shardings};
  }
  for (const int number : copy.shardings) {
    node.costs.push_back(0);
    node.usages.push_back(table.bytes[static_cast<size_t>(number)]);
  }
  problem_.nodes.push_back(std::move(node));
  add_way(v, from, copy.node, copy.shardings, price);
  return {copy.node, &copy.shardings};
}

// The choices become pairs: what the value lies as, and what it is taken as.
void SearchProblem::add_made_of(const Source& from, Copy& copy, solver::ProblemNode& node, double price) {
  auto& table = costs_.shardings_of(graph_.type(copy.value));
  std::vector<int> taken;
  for (const int had : *from.shardings) {
    for (const int wanted : copy.shardings) {
      const double seconds = price * costs_.way_seconds(table, had, wanted);
      if (seconds == solver::kForbidden) continue;
      copy.made_of.push_back(had);
      taken.push_back(wanted);
      node.costs.push_back(seconds);
      node.usages.push_back(had == wanted ? 0 : table.bytes[static_cast<size_t>(wanted)]);
    }
  }
  copy.shardings = std::move(taken);
  std::vector<double> costs;
  for (const int had : *from.shardings) {
    for (const int made_of : copy.made_of) costs.push_back(had == made_of ? 0 : solver::kForbidden);
  }
  problem_.nodes.push_back(std::move(node));
  problem_.edges.push_back({from.node, copy.node, std::move(costs)});
}

void SearchProblem::add_way(ValueId v, const Source& from, int to_node, const std::vector<int>& to, double price) {
  auto& table = costs_.shardings_of(graph_.type(v));
  // Layers that are alike have ways that are alike.
  auto [known, is_new] = ways_.try_emplace({&table, *from.shardings, to, price});
  if (is_new) {
    std::vector<double> costs;
    costs.reserve(from.shardings->size() * to.size());
    for (const int had : *from.shardings) {
      for (const int wanted : to) costs.push_back(price * costs_.way_seconds(table, had, wanted));
    }
    known->second = std::move(costs);
  }
  problem_.edges.push_back({from.node, to_node, known->second});
}

// The way of a value from where its readers take it to where it is returned.
void SearchProblem::add_return(ValueId v, const Source& from, const ir::Input* replaced) {
  const double price = options_given_.prices.gradient;
  if (replaced != nullptr) {
    const auto at = static_cast<size_t>(graph_.info(replaced->value).index);
    add_way(v, from, node_of_input(at), inputs_[at], price);
    return;
  }
  // How a result is returned follows from how it is made.
  const Source made = source_of(v);
  auto& table = costs_.shardings_of(graph_.type(v));
  if (from.node == made.node) {
    auto& costs = problem_.nodes[static_cast<size_t>(made.node)].costs;
    for (size_t choice = 0; choice < costs.size(); ++choice) {
      const int had = (*made.shardings)[choice];
      costs[choice] += price * costs_.way_seconds(table, had, returned_sharding(table, had));
    }
    return;
  }
  std::vector<double> costs;
  costs.reserve(made.shardings->size() * from.shardings->size());
  for (const int had : *made.shardings) {
    const int wanted = returned_sharding(table, had);
    for (const int taken : *from.shardings) {
      const bool is_detour = is_only_returned(v) && taken != wanted;
      costs.push_back(is_detour ? solver::kForbidden : price * costs_.way_seconds(table, taken, wanted));
    }
  }
  problem_.edges.push_back({made.node, from.node, std::move(costs)});
}

int SearchProblem::returned_sharding(ShardingTable& table, int made) const {
  Sharding wanted = table.shardings[static_cast<size_t>(made)];
  wanted.partial.clear();
  if (options_given_.whole_results) wanted = Sharding::replicated(static_cast<int>(wanted.dims.size()));
  return costs_.number_of(table, wanted);
}

std::vector<int> SearchProblem::classes() const {
  std::map<std::string, int> numbers;
  const auto number_of = [&](const std::string& text) {
    return numbers.try_emplace(text, static_cast<int>(numbers.size())).first->second;
  };
  std::vector<int> classes(problem_.nodes.size());
  for (size_t i = 0; i < graph_.inputs().size(); ++i) {
    const auto& input = graph_.inputs()[i];
    const bool is_given = options_given_.hints.contains(input.name);
    classes[i] = number_of(
        fmt::format("input {} {}", is_given ? input.name : layer_pattern(input.name), graph_.type(input.value)));
  }
  const auto class_of_value = [&](ValueId v) {
    const auto& info = graph_.info(v);
    const int node = info.node == ir::kNone ? node_of_input(static_cast<size_t>(info.index)) : node_of(info.node);
    return fmt::format("{}.{}", classes[static_cast<size_t>(node)], info.node == ir::kNone ? 0 : info.index);
  };
  std::map<std::string, int> seen;
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    const ir::Node& operation = graph_.node(n);
    const auto place = layer_pattern(operation.source);
    auto text = fmt::format("{}:{} {} {}", place, operation.op, operation.forward != ir::kNone,
                            static_cast<const void*>(options_[static_cast<size_t>(n)]));
    if (place != operation.source) {
      // The first, second, ... of its kind in its own layer.
      text += fmt::format(
          " #{}", ++seen[fmt::format("{}:{} {}", operation.source, operation.op, operation.forward != ir::kNone)]);
    } else {
      // Of no layer, as updates are: what it reads says where it belongs.
      for (const ValueId v : operation.inputs) text += " " + class_of_value(v);
    }
    classes[static_cast<size_t>(node_of(n))] = number_of(text);
  }
  for (const auto& copy : copies_) {
    classes[static_cast<size_t>(copy->node)] = number_of(fmt::format(
        "copy {} {} {}", class_of_value(copy->value), fmt::join(copy->shardings, ","), fmt::join(copy->made_of, ",")));
  }
  return classes;
}

PlanChoices SearchProblem::choices_of(const std::vector<int>& solution) const {
  PlanChoices result{.mesh = costs_.mesh()};
  for (size_t i = 0; i < graph_.inputs().size(); ++i) {
    const auto& input = graph_.inputs()[i];
    const int number = inputs_[i][static_cast<size_t>(solution[i])];
    result.inputs[input.name] = costs_.shardings_of(graph_.type(input.value)).shardings[static_cast<size_t>(number)];
  }
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    result.nodes[n] = options_of(n).choices[static_cast<size_t>(solution[static_cast<size_t>(node_of(n))])];
  }
  for (const auto& copy : copies_) {
    const Source source = source_of(copy->value);
    const int produced = (*source.shardings)[static_cast<size_t>(solution[static_cast<size_t>(source.node)])];
    const int number = copy->shardings[static_cast<size_t>(solution[static_cast<size_t>(copy->node)])];
    if (number == produced || is_only_returned(copy->value)) continue;
    result.copies[copy->value] = costs_.shardings_of(graph_.type(copy->value)).shardings[static_cast<size_t>(number)];
  }
  return result;
}

}  // namespace tessera::compiler
