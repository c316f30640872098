#include "tessera/nn/cell.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/ir/cell_name.h"

namespace tessera::nn {
namespace {

// The innermost cell whose construct() the thread is in.
thread_local const Cell* constructing = nullptr;

}  // namespace

std::string Parameter::full_name() const {
  if (!given_name.empty()) return given_name;
  const auto path = owner == nullptr ? std::string() : owner->path();
  return path.empty() ? name : path + "." + name;
}

ir::Value Parameter::in(ir::Graph& graph) const {
  const auto full = full_name();
  if (const auto bound = graph.find_binding(full)) return *bound;
  return graph.add_input(kind, full, type);
}

Parameter::operator ir::Value() const {
  check(owner != nullptr, "a parameter without a cell is read with in(graph)");
  return in(owner->graph());
}

void Parameter::assign(ir::Value value) const {
  in(value.graph());  // makes sure that the graph has it as an input
  value.graph().assign(full_name(), value);
}

Cell::~Cell() {
  // What others own, too, lives on under the names that it had.
  for (const auto& [name, parameter] : parameters_) {
    if (parameter->owner != this) continue;
    parameter->name = parameter->full_name();
    parameter->owner = nullptr;
  }
  for (const auto& [name, cell] : children_) {
    if (cell->parent_ != this) continue;
    cell->name_ = cell->path();
    cell->parent_ = nullptr;
  }
}

void Cell::lend_settings(const std::function<void()>& construct) {
  struct Restore {
    Cell* cell;
    const Settings* callers;
    const Cell* caller;
    ~Restore() {
      cell->callers_ = callers;
      constructing = caller;
    }
  } const restore{this, callers_, constructing};
  callers_ = constructing == nullptr ? &settings_ : &constructing->settings();
  constructing = this;
  construct();
}

void Cell::enter(ir::Graph& graph, const std::function<void()>& construct) {
  ir::Graph* const outer = graph_;
  graph_ = &graph;
  struct Restore {
    Cell* cell;
    ir::Graph* outer;
    ~Restore() { cell->graph_ = outer; }
  } const restore{this, outer};
  const ir::SourceScope scope(graph, ir::cell_name(path()));
  std::optional<ir::StageScope> on_stage;
  if (stage_ >= 0) on_stage.emplace(graph, stage_, segment_);
  std::optional<ir::RecomputeScope> block;
  if (recompute_) block.emplace(graph, recompute_->mp_comm_recompute, recompute_->parallel_optimizer_comm_recompute);
  const ir::NodeId first = graph.num_nodes();
  lend_settings(construct);
  if (!strategies_.empty() || !optional_strategies_.empty()) apply_strategies(graph, first);
  if (compute_dtype_) apply_compute_dtype(graph, first);
}

void Cell::shard(const std::string& op, const mesh::Strategy& strategy) { strategies_[op] = strategy; }

void Cell::apply_strategies(ir::Graph& graph, ir::NodeId first) const {
  const auto source = graph.origin().source;
  std::set<std::string> added;
  for (ir::NodeId n = first; n < graph.num_nodes(); ++n) {
    ir::Node& node = graph.mutable_node(n);
    if (node.source != source) continue;
    added.insert(node.op);
    for (const auto* strategies : {&optional_strategies_, &strategies_}) {
      const auto it = strategies->find(node.op);
      if (it == strategies->end()) continue;
      node.strategy = it->second;
      node.grid = {};
    }
  }
  for (const auto& [op, strategy] : strategies_) {
    if (!added.contains(op)) {
      throw InvalidArgument("cell \"{}\" has a strategy {} for {}, but its operators are {}", ir::cell_name(path()),
                            mesh::to_string(strategy), op, fmt::join(added, ", "));
    }
  }
}

void Cell::configure_as(const Cell& other) {
  if (other.is_told_) apply_settings(other.settings_);
  strategies_ = other.strategies_;
  optional_strategies_ = other.optional_strategies_;
  compute_dtype_ = other.compute_dtype_;
  recompute_ = other.recompute_;
  stage_ = other.stage_;
  for (const auto& [name, child] : children_) {
    for (const auto& [other_name, other_child] : other.children_) {
      if (name == other_name) child->configure_as(*other_child);
    }
  }
}

void Cell::to_float(DType dtype) {
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    throw InvalidArgument("cell \"{}\" cannot compute in {}: f32, bf16 or f16", ir::cell_name(path()), dtype);
  }
  compute_dtype_ = dtype;
}

void Cell::apply_compute_dtype(ir::Graph& graph, ir::NodeId first) const {
  for (ir::NodeId n = first; n < graph.num_nodes(); ++n) {
    auto& wanted = graph.mutable_node(n).compute_dtype;
    if (!wanted) wanted = compute_dtype_;
  }
}

Value Cell::operator()(Value x) {
  Value result;
  enter(x.graph(), [&] { result = construct(x); });
  return result;
}
Value Cell::operator()(Value x, Value y) {
  Value result;
  enter(x.graph(), [&] { result = construct(x, y); });
  return result;
}
Value Cell::operator()(std::span<const Value> inputs) {
  if (inputs.empty()) throw InvalidArgument("cell \"{}\" was called without inputs", ir::cell_name(path()));
  if (inputs.size() == 1) return (*this)(inputs[0]);
  if (inputs.size() == 2) return (*this)(inputs[0], inputs[1]);
  Value result;
  enter(inputs[0].graph(), [&] { result = construct(inputs); });
  return result;
}

Value Cell::construct(Value x) { return construct(std::span<const Value>(&x, 1)); }
Value Cell::construct(Value x, Value y) {
  const Value inputs[] = {x, y};
  return construct(std::span<const Value>(inputs));
}
Value Cell::construct(std::span<const Value> inputs) {
  throw InvalidArgument("cell \"{}\" has no construct() for {} inputs", ir::cell_name(path()), inputs.size());
}

std::vector<Parameter*> Cell::parameters() {
  std::vector<Parameter*> result;
  collect(result);
  return result;
}

std::vector<Parameter*> Cell::trainable_parameters() {
  auto result = parameters();
  std::erase_if(result, [](const Parameter* p) { return !p->requires_grad; });
  return result;
}

void Cell::set_comm_fusion(int id) {
  if (id < 0) throw InvalidArgument("cell \"{}\": a fusion id must not be negative, got {}", ir::cell_name(path()), id);
  for (Parameter* parameter : trainable_parameters()) parameter->comm_fusion = id;
}

void Cell::set_on_servers(bool on_servers) {
  for (Parameter* parameter : trainable_parameters()) parameter->on_servers = on_servers;
}

void Cell::set_stage(int stage, int segment) {
  if (stage < 0) {
    throw InvalidArgument("cell \"{}\": a stage must not be negative, got {}", ir::cell_name(path()), stage);
  }
  if (segment < 0) {
    throw InvalidArgument("cell \"{}\": a segment must not be negative, got {}", ir::cell_name(path()), segment);
  }
  stage_ = stage;
  segment_ = segment;
}

void Cell::recompute(const RecomputeOptions& options) {
  const Cell* configured = find_recomputed();
  for (const Cell* above = parent_; above != nullptr && configured == nullptr; above = above->parent_) {
    if (above->recompute_) configured = above;
  }
  if (configured != nullptr) {
    throw InvalidArgument("cell \"{}\" cannot be recomputed: \"{}\" is already, with all that is below it",
                          ir::cell_name(path()), ir::cell_name(configured->path()));
  }
  recompute_ = options;
}

const Cell* Cell::find_recomputed() const {
  if (recompute_) return this;
  for (const auto& [name, cell] : children_) {
    if (const Cell* found = cell->find_recomputed()) return found;
  }
  return nullptr;
}

void Cell::collect(std::vector<Parameter*>& into) {
  for (const auto& [name, parameter] : parameters_) {
    if (std::find(into.begin(), into.end(), parameter.get()) == into.end()) into.push_back(parameter.get());
  }
  for (const auto& [name, cell] : children_) cell->collect(into);
}

void Cell::name_parameters() {
  std::vector<Parameter*> named;
  name_parameters(named);
}

void Cell::name_parameters(std::vector<Parameter*>& named) {
  for (const auto& [name, parameter] : parameters_) {
    if (std::find(named.begin(), named.end(), parameter.get()) != named.end()) continue;
    named.push_back(parameter.get());
    parameter->name = name;
    parameter->owner = this;
    parameter->given_name.clear();
  }
  for (const auto& [name, cell] : children_) cell->name_parameters(named);
}

void Cell::lead_to(const std::string& name) {
  std::set<const Cell*> led;
  for (const auto& [known, cell] : children_) {
    if (known == name) cell->follow(*this, name, led);
  }
}

void Cell::follow(Cell& parent, const std::string& name, std::set<const Cell*>& led) {
  if (!led.insert(this).second) return;
  if (parent_ != &parent || !name_.empty()) name_ = parent.names_children_ ? name : "";
  parent_ = &parent;
  for (const auto& [below, cell] : children_) cell->follow(*this, below, led);
}

void Cell::prefix_parameters(const std::string& prefix, bool recurse) {
  const std::string own = path();
  for (Parameter* parameter : parameters()) {
    if (!recurse && parameter->owner != this) continue;
    parameter->given_name.clear();
    const std::string full = parameter->full_name();
    const bool is_below = !own.empty() && full.starts_with(own + ".");
    parameter->given_name = prefix + (is_below ? full.substr(own.size() + 1) : full);
  }
}

Parameter& Cell::find_parameter(const std::string& full_name) {
  std::vector<std::string> names;
  for (Parameter* parameter : parameters()) {
    names.push_back(parameter->full_name());
    if (names.back() == full_name) return *parameter;
  }
  const auto near = closest(full_name, names);
  throw InvalidArgument("no parameter \"{}\"{}", full_name,
                        near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

std::vector<std::pair<std::string, Cell*>> Cell::children() const {
  std::vector<std::pair<std::string, Cell*>> result;
  for (const auto& [name, cell] : children_) result.emplace_back(name, cell.get());
  return result;
}

std::string Cell::path() const {
  if (parent_ == nullptr) return name_;
  const auto above = parent_->path();
  if (name_.empty()) return above;
  return above.empty() ? name_ : above + "." + name_;
}

const Settings& Cell::settings() const {
  if (is_told_) return settings_;
  if (callers_ != nullptr) return *callers_;
  return constructing == nullptr ? settings_ : constructing->settings();
}

void Cell::apply_settings(const Settings& settings) {
  settings_ = settings;
  is_told_ = true;
  for (const auto& [name, cell] : children_) cell->apply_settings(settings);
}

ir::Graph& Cell::graph() const {
  check(graph_ != nullptr, "parameters can be read only inside construct()");
  return *graph_;
}

void Cell::check_name(const std::string& name) const {
  if (name.empty() || name.find_first_of("- \t\n.,(){}=") != std::string::npos) {
    throw InvalidArgument(
        "cell \"{}\": \"{}\" cannot name a parameter or child: no spaces and none of - . , ( ) {{ }} =",
        ir::cell_name(path()), name);
  }
  for (const auto& [taken, parameter] : parameters_) {
    if (taken == name) throw InvalidArgument("cell \"{}\" already has a parameter \"{}\"", ir::cell_name(path()), name);
  }
  for (const auto& [taken, cell] : children_) {
    if (taken == name) throw InvalidArgument("cell \"{}\" already has a child \"{}\"", ir::cell_name(path()), name);
  }
}

Parameter& Cell::parameter(const std::string& name, const Type& type, Initializer init, bool requires_grad) {
  adopt(name, std::make_shared<Parameter>(
                  Parameter{.name = name, .type = type, .init = std::move(init), .requires_grad = requires_grad}));
  return *parameters_.back().second;
}

void Cell::adopt(const std::string& name, std::shared_ptr<Parameter> parameter) {
  check_name(name);
  if (parameter->owner == nullptr) {
    const bool has_name = !parameter->name.empty() && parameter->name.find('.') == std::string::npos;
    if (!has_name) parameter->name = name;  // none, or a path that is no more
    parameter->owner = this;
  }
  parameters_.emplace_back(name, std::move(parameter));
}

void Cell::hold(const std::string& name, std::shared_ptr<Parameter> parameter) {
  const auto is_same = [&](const auto& entry) { return entry.second == parameter; };
  if (std::none_of(parameters_.begin(), parameters_.end(), is_same))
    parameters_.emplace_back(name, std::move(parameter));
}

void Cell::adopt(const std::string& name, std::shared_ptr<Cell> cell, bool is_in_path) {
  check_name(name);
  names_children_ = is_in_path;
  if (cell->parent_ == nullptr) {
    cell->name_ = is_in_path ? name : "";
    cell->parent_ = this;
  }
  children_.emplace_back(name, std::move(cell));
}

void Cell::release(const std::string& name) {
  std::erase_if(parameters_, [&](const auto& entry) {
    if (entry.first != name) return false;
    if (entry.second->owner == this) entry.second->owner = nullptr;
    return true;
  });
  std::erase_if(children_, [&](const auto& entry) {
    if (entry.first != name) return false;
    if (entry.second->parent_ == this) entry.second->parent_ = nullptr;
    return true;
  });
}

void set_parameter_dtype(Cell& cell, DType dtype) {
  if (!is_floating(dtype)) throw InvalidArgument("parameters cannot become {}: a floating dtype is needed", dtype);
  for (Parameter* parameter : cell.parameters()) {
    if (!is_floating(parameter->type.dtype)) continue;
    parameter->type.dtype = dtype;
    if (parameter->data) parameter->data = parameter->data->cast(dtype);
  }
}

}  // namespace tessera::nn
