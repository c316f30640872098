// Gradients inside construct(), and the step of an optimizer there: training loops of one's own.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind.h"
#include "python/src/cells.h"
#include "python/src/helped_module.h"
#include "python/src/known_values.h"
#include "python/src/parameters.h"
#include "python/src/threads.h"

namespace tessera::python {
namespace {

ir::Graph& traced_graph(const char* who) {
  ir::Graph* graph = current_graph();
  if (graph == nullptr) throw InvalidArgument("{} works inside construct() only", who);
  return *graph;
}

// What a cell made of these values just now: random draws and updates of statistics are not made twice.
nb::object called_before(nb::handle f, const nb::list& args) {
  std::vector<ir::Value> inputs;
  for (const nb::handle arg : args) {
    if (!nb::isinstance<ir::Value>(arg)) return {};
    inputs.push_back(nb::cast<ir::Value>(arg));
  }
  return nb::isinstance<nn::Cell>(f) ? find_call(f, inputs) : nb::object();
}

// (f(*args), gradients of its first result with respect to the parameters, then to the arguments of those numbers).
nb::object value_and_grad(const nb::callable& f, const nb::list& args,
                          const std::vector<std::shared_ptr<nn::Parameter>>& parameters,
                          const std::vector<size_t>& numbers, nb::handle sens) {
  ir::Graph& graph = traced_graph("value_and_grad");
  note_differentiation();
  // As they are now: what f assigns is not differentiated through.
  std::vector<ir::Value> wrt;
  for (const auto& parameter : parameters) {
    read_by_trace(parameter);
    wrt.push_back(parameter->in(graph));
  }
  Operation operation;
  for (const size_t number : numbers) {
    if (number >= nb::len(args)) throw InvalidArgument("value_and_grad: there is no argument {}", number);
    wrt.push_back(operation.value(args[number]));
    args[number] = nb::cast(wrt.back());
  }
  nb::object result = called_before(f, args);
  if (!result.is_valid()) result = f(*nb::tuple(args));
  const nb::object first = nb::isinstance<nb::tuple>(result) ? nb::object(result[0]) : result;
  const ir::Value value = operation.value(first);
  ir::Value seed;
  if (is_number(sens)) {
    seed = ops::fill(graph, value.shape(), nb::cast<double>(nb::float_(sens)), value.dtype());
  } else {
    seed = operation.value(sens);
    if (seed.ndim() > value.ndim() && seed.shape().num_elements() == 1) seed = ops::reshape(seed, {});
    seed = ops::broadcast_to(seed, value.shape().to_vector());
  }
  nb::list gradients;
  for (const auto& gradient : compiler::gradients(value, wrt, seed)) gradients.append(nb::cast(gradient));
  return nb::make_tuple(result, nb::tuple(gradients));
}

// Values within tuples and lists, in order.
void append_values(nb::handle object, std::vector<ir::Value>& values) {
  if (nb::isinstance<ir::Value>(object)) {
    values.push_back(nb::cast<ir::Value>(object));
  } else if (nb::isinstance<nb::tuple>(object) || nb::isinstance<nb::list>(object)) {
    for (const nb::handle item : object) append_values(item, values);
  }
}

// The object with its values replaced, in order.
nb::object with_values(nb::handle object, const std::vector<ir::Value>& values, size_t& next) {
  if (nb::isinstance<ir::Value>(object)) return nb::cast(values[next++]);
  const bool is_list = nb::isinstance<nb::list>(object);
  if (!is_list && !nb::isinstance<nb::tuple>(object)) return nb::borrow(object);
  nb::list items;
  for (const nb::handle item : object) items.append(with_values(item, values, next));
  return is_list ? nb::object(items) : nb::object(nb::tuple(items));
}

std::vector<ir::Value> add_inputs(ir::Graph& graph, const char* prefix, const std::vector<ir::Value>& like) {
  std::vector<ir::Value> inputs;
  for (size_t i = 0; i < like.size(); ++i) {
    inputs.push_back(graph.add_input(ir::InputKind::kInput, fmt::format("{}{}", prefix, i), like[i].type()));
  }
  return inputs;
}

std::string class_name(nb::handle object) { return nb::cast<std::string>(nb::str(object.type().attr("__name__"))); }

// What bprop() gives for each argument, as results of its graph.
void add_results(ir::Graph& graph, const std::string& who, const nb::object& arguments, nb::object gradients,
                 const std::vector<ir::Value>& inputs) {
  if (!nb::isinstance<nb::tuple>(gradients) && !nb::isinstance<nb::list>(gradients) && nb::len(arguments) == 1) {
    gradients = nb::make_tuple(gradients);
  }
  if (!nb::isinstance<nb::tuple>(gradients) && !nb::isinstance<nb::list>(gradients)) {
    throw InvalidArgument("{} must return a tuple with a gradient for each of the {} inputs, it returned {}", who,
                          nb::len(arguments), class_name(gradients));
  }
  if (nb::len(gradients) != nb::len(arguments)) {
    throw InvalidArgument("{} must return a gradient for each of the {} inputs, it returned {}", who,
                          nb::len(arguments), nb::len(gradients));
  }
  Operation operation;
  size_t next = 0;
  for (size_t i = 0; i < nb::len(arguments); ++i) {
    std::vector<ir::Value> held;
    append_values(arguments[i], held);
    const size_t first = next;
    next += held.size();
    if (held.empty() || gradients[i].is_none()) continue;
    const bool is_sequence = !nb::isinstance<ir::Value>(arguments[i]);
    const auto given = is_sequence ? operation.values(gradients[i]) : std::vector{operation.value(gradients[i])};
    if (given.size() != held.size()) {
      throw InvalidArgument("{} returned {} gradients for input {}, which has {} tensors", who, given.size(), i,
                            held.size());
    }
    for (size_t j = 0; j < held.size(); ++j) {
      const Type& type = inputs[first + j].type();
      if (!is_floating(type.dtype)) continue;
      if (!(given[j].shape() == type.shape)) {
        throw InvalidArgument("{} returned a gradient of shape {} for input {} of shape {}", who, given[j].shape(), i,
                              type.shape);
      }
      graph.add_output(fmt::format("$dx{}", first + j), ops::cast(given[j], type.dtype));
    }
  }
}

// The states of these parameters, which the optimizer's Python object keeps. Where parameters have been renamed since,
// so are their states.
std::vector<std::shared_ptr<nn::Parameter>> state_parameters(
    nb::handle self, const std::vector<std::shared_ptr<nn::Parameter>>& own_parameters) {
  std::vector<nn::Parameter*> parameters;
  for (const auto& parameter : own_parameters) parameters.push_back(parameter.get());
  const auto wanted = nb::cast<nn::Optimizer&>(self).states(parameters);
  nb::dict own = nb::borrow<nb::dict>(self.attr("__dict__"));
  std::vector<std::shared_ptr<nn::Parameter>> kept;
  if (own.contains("states")) kept = nb::cast<std::vector<std::shared_ptr<nn::Parameter>>>(own["states"]);
  const auto is_like = [](const nn::Parameter& one, const nn::Parameter& other) { return one.type == other.type; };
  if (kept.size() == wanted.size() &&
      std::equal(wanted.begin(), wanted.end(), kept.begin(),
                 [&](const auto& one, const auto& other) { return is_like(one, *other); })) {
    for (size_t i = 0; i < kept.size(); ++i) kept[i]->name = wanted[i].name;
    return kept;
  }
  std::vector<std::shared_ptr<nn::Parameter>> states;
  for (const auto& state : wanted) {
    const auto known = std::find_if(kept.begin(), kept.end(), [&](const auto& other) {
      return other->full_name() == state.full_name() && is_like(state, *other);
    });
    states.push_back(known == kept.end() ? std::make_shared<nn::Parameter>(state) : *known);
    if (known == kept.end()) kept.push_back(states.back());
  }
  own["states"] = nb::cast(kept);
  return states;
}

// Whether one of the states has the name of another parameter that the trace has met.
bool clashes(const std::vector<std::shared_ptr<nn::Parameter>>& states) {
  std::map<std::string, const nn::Parameter*> known;
  for (const auto& parameter : read_by_trace()) known.emplace(parameter->full_name(), parameter.get());
  return std::any_of(states.begin(), states.end(), [&](const auto& state) {
    const auto other = known.find(state->full_name());
    return other != known.end() && other->second != state.get();
  });
}

// The states, under names that no other optimizer of the trace uses.
std::vector<std::shared_ptr<nn::Parameter>> own_states(
    nb::handle self, const std::vector<std::shared_ptr<nn::Parameter>>& own_parameters) {
  auto states = state_parameters(self, own_parameters);
  std::vector<std::string> names;
  for (const auto& state : states) names.push_back(state->full_name());
  for (int number = 2; clashes(states); ++number) {
    for (size_t i = 0; i < states.size(); ++i) states[i]->given_name = fmt::format("optimizer_{}.{}", number, names[i]);
  }
  return states;
}

// While it lives, the optimizer's update reads states by their full names: the path of the cell that holds them stands
// before what the optimizer calls them. A state that is called otherwise has that name until the trace ends.
class StatesByFullName {
 public:
  StatesByFullName(nb::handle self, const std::vector<std::shared_ptr<nn::Parameter>>& own_parameters,
                   const std::vector<std::shared_ptr<nn::Parameter>>& states)
      : optimizer_(nb::cast<nn::Optimizer&>(self)), prefix_(state_prefix_of(self)) {
    std::vector<nn::Parameter*> parameters;
    for (const auto& parameter : own_parameters) parameters.push_back(parameter.get());
    const auto called = optimizer_.states(parameters);
    if (called.empty()) return;
    const auto full = states.at(0)->full_name();
    const auto& own = called[0].name;
    const auto before = full.ends_with(own) ? full.substr(0, full.size() - own.size()) : std::string();
    if (!before.empty()) {
      optimizer_.set_state_prefix(before + prefix_);
      is_set_ = true;
    }
    // Those that a script has named.
    for (size_t i = 0; i < states.size(); ++i) {
      const auto name = before + called[i].name;
      if (states[i]->full_name() != name) rename_for_trace(states[i], name);
    }
  }
  ~StatesByFullName() {
    if (is_set_) optimizer_.set_state_prefix(prefix_);
  }
  StatesByFullName(const StatesByFullName&) = delete;
  StatesByFullName& operator=(const StatesByFullName&) = delete;

 private:
  nn::Optimizer& optimizer_;
  std::string prefix_;
  bool is_set_ = false;
};

// Adds the updates to the graph.
void update(nb::handle self, const std::vector<std::shared_ptr<nn::Parameter>>& own_parameters, nb::handle gradients) {
  ir::Graph& graph = traced_graph("an optimizer's update");
  for (const auto& parameter : own_parameters) read_by_trace(parameter);
  const auto states = own_states(self, own_parameters);
  for (const auto& state : states) read_by_trace(state);
  Operation operation;
  const auto values = operation.values(gradients);
  if (values.size() != own_parameters.size()) {
    throw InvalidArgument("an optimizer got {} gradients for {} parameters", values.size(), own_parameters.size());
  }
  std::vector<nn::ParameterGradient> pairs;
  for (size_t i = 0; i < values.size(); ++i) pairs.push_back({own_parameters[i].get(), values[i]});
  const ir::SourceScope scope(graph, "optimizer");
  const StatesByFullName full_names(self, own_parameters, states);
  nb::cast<nn::Optimizer&>(self).update(graph, pairs);
}

// An optimizer whose update is written in Python.
class TracedOptimizer : public nn::Optimizer {
 public:
  TracedOptimizer(nb::object update, nb::object states) : update_(std::move(update)), states_(std::move(states)) {}
  void set_state_prefix(const std::string& prefix) override {
    const WithGil gil;
    for (const nb::handle item : states_()) {
      auto& state = nb::cast<nn::Parameter&>(item);
      auto name = state.full_name();
      if (!prefix_.empty() && name.starts_with(prefix_)) name.erase(0, prefix_.size());
      state.given_name = prefix + name;
    }
    prefix_ = prefix;
  }
  void update(ir::Graph& graph, std::span<const nn::ParameterGradient> gradients) override {
    const WithGil gil;
    const TraceScope scope(graph);
    nb::dict by_name;
    for (const auto& pair : gradients) {
      const ir::Value value = pair.gradient ? pair.gradient : ops::zeros_like(pair.parameter->in(graph));
      by_name[pair.parameter->full_name().c_str()] = nb::cast(value);
    }
    update_(by_name);
  }
  std::vector<nn::Parameter> states(std::span<nn::Parameter* const>) const override {
    const WithGil gil;
    std::vector<nn::Parameter> all;
    for (const nb::handle item : states_()) {
      auto& state = nb::cast<nn::Parameter&>(item);
      state.kind = ir::InputKind::kState;
      state.requires_grad = false;
      fetch_held(state);
      all.push_back(state);
      all.back().name = state.full_name();
      all.back().owner = nullptr;
    }
    return all;
  }

 private:
  nb::object update_;
  nb::object states_;
  std::string prefix_;
};

// (then(), otherwise()), both traced. What either assigns to a parameter holds where the condition, bool[], says so.
nb::tuple trace_branches(ir::Value condition, const nb::callable& then, const nb::callable& otherwise) {
  ir::Graph& graph = traced_graph("a branch");
  const auto before = graph.assignments();
  const auto value_before = [&](const std::string& name) {
    const auto known = before.find(name);
    return graph.value(known != before.end() ? known->second : graph.find_input(name)->value);
  };
  const nb::object first = then();
  const auto after_first = graph.assignments();
  for (const auto& [name, value] : after_first) graph.assign(name, value_before(name));
  const nb::object second = otherwise();
  const auto after_second = graph.assignments();
  for (const auto& [name, value] : after_second) {
    const auto other = after_first.find(name);
    const ir::Value one = other != after_first.end() ? graph.value(other->second) : value_before(name);
    if (one.id() != value) graph.assign(name, ops::select(condition, one, graph.value(value)));
  }
  return nb::make_tuple(first, second);
}

}  // namespace

nb::tuple differentiable_arguments(nb::handle self, const nb::tuple& arguments) {
  if (!nb::hasattr(self.type(), "bprop")) return arguments;
  Operation operation;
  nb::list values;
  for (const nb::handle argument : arguments) {
    values.append(nb::isinstance<nn::Parameter>(argument) ? nb::cast(operation.value(argument)) : nb::borrow(argument));
  }
  return nb::tuple(values);
}

nb::object with_own_gradient(nb::handle self, const nb::tuple& arguments, nb::object result) {
  if (!nb::hasattr(self.type(), "bprop")) return result;
  std::vector<ir::Value> outputs;
  std::vector<ir::Value> inputs;
  append_values(result, outputs);
  append_values(arguments, inputs);
  if (outputs.empty()) return result;
  const auto who = fmt::format("bprop() of {} \"{}\"", class_name(self), nb::cast<nn::Cell&>(self).path());
  // Of types, not of values: what it computes is written behind the gradients of the results, wherever those are asked
  // for.
  ir::Graph backward("backward");
  {
    const TraceScope scope(backward);
    const auto xs = add_inputs(backward, "$x", inputs);
    const auto outs = add_inputs(backward, "$out", outputs);
    const auto douts = add_inputs(backward, "$dout", outputs);
    size_t next = 0;
    const nb::object own = with_values(arguments, xs, next);
    nb::list given;
    for (const nb::handle argument : own) given.append(argument);
    given.append(with_values(result, outs, next = 0));
    given.append(with_values(result, douts, next = 0));
    add_results(backward, who, own, nb::object(self.attr("bprop"))(*nb::tuple(given)), xs);
  }
  size_t next = 0;
  return with_values(result, ops::with_gradient(outputs, inputs, backward), next);
}

void bind_gradients(nb::module_& m) {
  helped(m).def(
      "is_tracing", [] { return current_graph() != nullptr; }, "Whether construct() is being traced.");
  helped(m).def(
      "is_known", [](ir::Value value) { return known_value(value).has_value(); }, "value"_a,
      "Inside construct(): whether the value is made of constants alone, and so has elements, a number and a truth.");
  helped(m).def(
      "hold_for_one_call", &hold_for_one_call, "what"_a,
      R"(Inside construct(): what is traced holds for one call, for `what` has changed, which the next call looks at.

Raises TypeError in the trace of a Model, of which there is one for all steps.)");
  helped(m).def("value_and_grad", &value_and_grad, "f"_a, "args"_a, "parameters"_a = nb::make_tuple(),
                "argument_numbers"_a = nb::make_tuple(), "sens"_a = 1.0,
                R"(Inside construct(): (f(*args), gradients), f being traced once.

The gradients are those of f's (first) result, a loss of any shape, with respect to the parameters, then to the arguments of
these numbers; `sens` is the gradient that they start with.)");
  helped(m).def(
      "trace_branches", &trace_branches, "condition"_a, "then"_a, "otherwise"_a,
      R"(Inside construct(): (then(), otherwise()), both traced; what they assign holds where the condition, bool[], says so.)");
  nb::class_<TracedOptimizer, nn::Optimizer>(m, "TracedOptimizer", R"(An optimizer whose update is written in Python.

update(gradients): called while the step is traced, with the gradients by the parameters' names; assigns to parameters and
states. states(): the parameters that are its states.)")
      .def(nb::init<nb::object, nb::object>(), "update"_a, "states"_a);
  m.attr("Optimizer").attr("update") =
      nb::cpp_function(&update, nb::name("update"), nb::scope(m.attr("Optimizer")), nb::is_method(), "parameters"_a,
                       "gradients"_a, "Inside construct(): every run updates the parameters.");
  m.attr("Optimizer").attr("state_parameters") = nb::cpp_function(
      &state_parameters, nb::name("state_parameters"), nb::scope(m.attr("Optimizer")), nb::is_method(), "parameters"_a,
      "The states that update() reads for these parameters, in the order of a checkpoint, as parameters.");
}

}  // namespace tessera::python
