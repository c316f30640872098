#include "python/src/parameters.h"

#include <algorithm>
#include <utility>

#include "python/src/called_cells.h"
#include "python/src/threads.h"

namespace tessera::python {
namespace {

Tensor initial_value(const nn::Parameter& parameter) {
  check(static_cast<bool>(parameter.init), "a parameter has an initializer or data");
  ir::Graph graph("initialize");
  graph.add_output("value", parameter.init({graph, parameter.type, parameter.full_name(), global_seed()}));
  const WithoutGilBeforeTheEnd computing;
  return session::evaluate(graph, {}).at("value");
}

// Its ranks have gone with their pieces of the value. was_on_servers: they were servers, and no worker had any of it.
void lose(nn::Parameter& parameter, bool was_on_servers = false) {
  parameter.data.reset();
  parameter.init = [was_on_servers](const nn::InitContext& context) -> ir::Value {
    if (was_on_servers) {
      throw InvalidArgument(
          "the value of \"{}\" was on the servers of a model that is gone: read it before, on all ranks, or save it "
          "with model.save_checkpoint()",
          context.name);
    }
    throw InvalidArgument(
        "the value of \"{}\" was split over the ranks of a model that is gone: keep the model as long as the network "
        "is used",
        context.name);
  };
}

// What scripts go on to see of a parameter that was split, once the model is gone that showed them this rank's slice.
struct LeftSlice {
  std::vector<mesh::Range> range;  // of the whole; empty: the rank had nothing of it
  Tensor value;
};

// Null where there is none, or none any more: the parameter has been given another dtype since.
const LeftSlice* left_slice(const nn::Parameter& parameter) {
  const auto* left = static_cast<const LeftSlice*>(parameter.attached.get());
  return left != nullptr && left->value.dtype() == parameter.type.dtype ? left : nullptr;
}

void leave_slice(nn::Parameter& parameter, std::vector<mesh::Range> range, Tensor value) {
  parameter.attached = std::make_shared<const LeftSlice>(LeftSlice{std::move(range), std::move(value)});
}

// The other ranks' slices are not known any more then.
void set_left_slice(nn::Parameter& parameter, const Tensor& value) {
  leave_slice(parameter, left_slice(parameter)->range, value.clone());
  lose(parameter);
}

// Its slice is taken from the whole that the script has given.
void renew_left_slice(nn::Parameter& parameter) {
  const LeftSlice* left = left_slice(parameter);
  if (left == nullptr || left->range.empty()) return;
  leave_slice(parameter, left->range, Tensor::copy_of(mesh::piece_of(parameter.data->view(), left->range)));
}

// What the present trace has met; empty outside of one.
struct Met {
  struct Renamed {
    std::shared_ptr<nn::Parameter> parameter;
    std::string given_name;  // before
  };
  std::vector<std::shared_ptr<nn::Parameter>> parameters;
  std::set<std::string> names;
  std::vector<Renamed> renamed;
};
Met& of_trace() {
  static thread_local Met met;
  return met;
}

}  // namespace

struct HeldParameters::Known {
  int64_t version = 0;               // grows whenever the value changes
  HeldParameters* holder = nullptr;  // whose model has the newest value; null: it is `data`
  int num_models = 0;
};

std::map<const nn::Parameter*, HeldParameters::Known>& HeldParameters::known() {
  static std::map<const nn::Parameter*, Known> all;  // guarded by the GIL
  return all;
}

HeldParameters* HeldParameters::holder(const nn::Parameter& parameter) {
  const auto it = known().find(&parameter);
  return it == known().end() ? nullptr : it->second.holder;
}

std::optional<Type> shown_slice_type(const nn::Parameter& parameter) {
  if (auto* const holder = HeldParameters::holder(parameter)) return holder->slice_type(parameter);
  const LeftSlice* left = left_slice(parameter);
  return left == nullptr ? std::nullopt : std::optional(left->value.type());
}

void read_by_trace(std::shared_ptr<nn::Parameter> parameter) {
  auto& [all, names, renamed] = of_trace();
  if (std::find(all.begin(), all.end(), parameter) != all.end()) return;
  const std::string name = parameter->full_name();
  if (names.contains(name) && !is_traced_by_model()) {
    int number = 2;
    while (names.contains(fmt::format("{}_{}", name, number))) ++number;
    rename_for_trace(parameter, fmt::format("{}_{}", name, number));
  }
  names.insert(parameter->full_name());
  all.push_back(std::move(parameter));
}

const std::vector<std::shared_ptr<nn::Parameter>>& read_by_trace() { return of_trace().parameters; }

void rename_for_trace(const std::shared_ptr<nn::Parameter>& parameter, const std::string& name) {
  of_trace().renamed.push_back({parameter, parameter->given_name});
  parameter->given_name = name;
}

void forget_trace() {
  Met& met = of_trace();
  // The first name that one had counts, where it was renamed more than once.
  for (auto one = met.renamed.rbegin(); one != met.renamed.rend(); ++one) one->parameter->given_name = one->given_name;
  met = {};
}

bool is_in_model(const nn::Parameter& parameter) {
  return HeldParameters::known().contains(&parameter) || left_slice(parameter) != nullptr;
}

void fetch_held(nn::Parameter& parameter) {
  if (auto* const holder = HeldParameters::holder(parameter)) holder->fetch(parameter);
}

Tensor whole_value(nn::Parameter& parameter) {
  fetch_held(parameter);
  if (!parameter.data) parameter.data = initial_value(parameter);
  return *parameter.data;
}

Tensor parameter_value(nn::Parameter& parameter) {
  if (!shown_slice_type(parameter)) return whole_value(parameter);
  if (auto* const holder = HeldParameters::holder(parameter)) return holder->read_slice(parameter);
  return left_slice(parameter)->value.clone();
}

Type parameter_type(const nn::Parameter& parameter) {
  const auto slice = current_graph() == nullptr ? shown_slice_type(parameter) : std::nullopt;
  return slice.value_or(parameter.type);
}

void set_parameter_value(nn::Parameter& parameter, const Tensor& value) {
  auto* const holder = HeldParameters::holder(parameter);
  const auto slice = shown_slice_type(parameter);
  if (slice && *slice == value.type()) {
    if (holder != nullptr) {
      holder->set_slice(parameter, value);
    } else {
      set_left_slice(parameter, value);
    }
  } else {
    if (!(value.type() == parameter.type)) {
      throw InvalidArgument("parameter \"{}\" is {}, it cannot be set to {}", parameter.full_name(), parameter.type,
                            value.type());
    }
    parameter.data = value.clone();
    if (holder != nullptr) {
      holder->set_whole(parameter, value);
    } else {
      renew_left_slice(parameter);
    }
  }
  const auto known = HeldParameters::known().find(&parameter);
  if (known == HeldParameters::known().end()) return;
  ++known->second.version;
  if (holder == nullptr) return;
  for (auto& held : holder->parameters_) {
    if (held.parameter == &parameter) held.version = known->second.version;
  }
}

HeldParameters::HeldParameters(train::Model& model, const std::vector<nn::Parameter*>& parameters, bool shows_slices)
    : model_(model), shows_slices_(shows_slices), stale_(parameters.begin(), parameters.end()) {
  for (nn::Parameter* parameter : parameters) {
    Known& one = known()[parameter];
    ++one.num_models;
    parameters_.push_back({parameter, &one, one.version});
    names_[parameter] = parameter->full_name();
    if (one.holder == nullptr) one.holder = this;
    parameter->attached.reset();
  }
}

HeldParameters::~HeldParameters() {
  for (auto& [parameter, one, version] : parameters_) {
    if (one->holder == this) {
      give_back(*parameter);
      one->holder = nullptr;
    }
    if (--one->num_models == 0) known().erase(parameter);
  }
}

// A destructor must not throw: what cannot be fetched, because memory has run out, say, is lost, and a line says so.
void HeldParameters::give_back(nn::Parameter& parameter) {
  try {
    parameter.attached.reset();
    const auto& name = name_of(parameter);
    if (!is_gathered(name)) {
      fetch(parameter);
      return;
    }
    const bool is_of_servers = is_on_servers_only(name);
    if (!is_of_servers && slice_type(parameter)) leave_slice(parameter, range_here(name), read_slice(parameter));
    if (changed_.contains(&parameter)) lose(parameter, is_of_servers);
  } catch (const std::exception& error) {
    log_error("the value of \"{}\" is lost with its model, it has the one from before again: {}", name_of(parameter),
              error.what());
  }
}

void HeldParameters::become_holder(Known& known) {
  if (known.holder != nullptr && known.holder != this) known.holder->holds_all_ = false;
  known.holder = this;
}

void HeldParameters::take() {
  if (holds_all_) return;
  for (auto& held : parameters_) {
    if (held.known->holder == this) continue;
    if (held.version != held.known->version) set_whole(*held.parameter, whole_value(*held.parameter));
    held.version = held.known->version;
    become_holder(*held.known);
  }
  holds_all_ = true;
}

void HeldParameters::invalidate() {
  for (auto& held : parameters_) invalidate(held);
  holds_all_ = true;
}

void HeldParameters::invalidate(Held& held) {
  stale_.insert(held.parameter);
  changed_.insert(held.parameter);
  // The whole of an earlier step: it is gathered anew before anyone sees it. A model that has not begun may take its
  // values from there again.
  if (held.parameter->data && model_.step() > 0 && is_gathered(name_of(*held.parameter))) held.parameter->data.reset();
  held.version = ++held.known->version;
  become_holder(*held.known);
}

void HeldParameters::renew(const std::set<std::string>& names) {
  std::vector<nn::Parameter*> renewed;
  for (auto& held : parameters_) {
    if (!names.contains(name_of(*held.parameter))) continue;
    invalidate(held);
    renewed.push_back(held.parameter);
  }
  fetch_split(renewed);
}

void HeldParameters::fetch(nn::Parameter& parameter) {
  if (stale_.contains(&parameter)) {
    parameter.data = [&] {
      const WithoutGilBeforeTheEnd computing;
      return model_.own_value(name_of(parameter));
    }();
  }
  // Only now: a fetch may fail, and the next one is not to find the old value.
  stale_.erase(&parameter);
  changed_.erase(&parameter);
}

bool HeldParameters::is_gathered(const std::string& name) const {
  return model_.bare_session().is_split(name) && !model_.has_row_per_rank(name);
}

bool HeldParameters::is_on_servers_only(const std::string& name) const {
  const int servers = model_.options().servers;
  const auto layouts = model_.bare_session().layouts(name);
  const auto are_servers = [servers](const mesh::Layout& layout) {
    return std::ranges::all_of(layout.mesh.ranks(), [servers](int rank) { return rank < servers; });
  };
  return !layouts.empty() && std::ranges::all_of(layouts, are_servers);
}

std::optional<Type> HeldParameters::slice_type(const nn::Parameter& parameter) {
  const auto& name = name_of(parameter);
  if (!shows_slices_ || !is_gathered(name)) return std::nullopt;
  return model_.bare_session().values().type(name);
}

std::vector<mesh::Range> HeldParameters::range_here(const std::string& name) const {
  const session::Session& session = model_.bare_session();
  const mesh::Layout& layout = *session.layout(name);
  const int rank = model_.context().rank();
  if (std::ranges::find(layout.mesh.ranks(), rank) == layout.mesh.ranks().end()) return {};
  return mesh::slice_of(session.global_type(name).shape, layout.sharding, layout.mesh, rank);
}

Tensor HeldParameters::read_slice(const nn::Parameter& parameter) {
  return std::as_const(model_).session().values().read(name_of(parameter));
}

void HeldParameters::set_slice(nn::Parameter& parameter, const Tensor& value) {
  model_.session().set_piece(name_of(parameter), value.view());
  stale_.insert(&parameter);
  changed_.insert(&parameter);
}

void HeldParameters::set_whole(nn::Parameter& parameter, const Tensor& value) {
  model_.set_own_value(name_of(parameter), value);
  stale_.erase(&parameter);
  changed_.erase(&parameter);
}

void HeldParameters::fetch_split() {
  std::vector<nn::Parameter*> all;
  for (const auto& held : parameters_) all.push_back(held.parameter);
  fetch_split(all);
}

void HeldParameters::fetch_split(const std::vector<nn::Parameter*>& parameters) {
  for (nn::Parameter* parameter : parameters) {
    // States, and what no worker has, stay where they are until someone asks for them: whole they may be more than a
    // rank can hold.
    const auto& name = name_of(*parameter);
    if (parameter->kind == ir::InputKind::kState || is_on_servers_only(name)) continue;
    if (model_.bare_session().is_split(name)) fetch(*parameter);
  }
}

}  // namespace tessera::python
