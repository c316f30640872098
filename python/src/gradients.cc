// Gradients inside construct(), and the step of an optimizer there: training loops of one's own.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind.h"
#include "python/src/parameters.h"

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

// Adds the updates to the graph. The optimizer's states are parameters that its Python object keeps.
void update(nb::handle self, const std::vector<std::shared_ptr<nn::Parameter>>& own_parameters, nb::handle gradients) {
  ir::Graph& graph = traced_graph("an optimizer's update");
  auto& optimizer = nb::cast<nn::Optimizer&>(self);
  std::vector<nn::Parameter*> parameters;
  for (const auto& parameter : own_parameters) {
    read_by_trace(parameter);
    parameters.push_back(parameter.get());
  }
  nb::dict own = nb::borrow<nb::dict>(self.attr("__dict__"));
  if (!own.contains("states")) own["states"] = nb::dict();
  const nb::dict states = nb::borrow<nb::dict>(own["states"]);
  for (const auto& state : optimizer.states(parameters)) {
    const auto name = state.full_name();
    if (!states.contains(name.c_str())) states[name.c_str()] = nb::cast(std::make_shared<nn::Parameter>(state));
    read_by_trace(nb::cast<std::shared_ptr<nn::Parameter>>(states[name.c_str()]));
  }
  Operation operation;
  const auto values = operation.values(gradients);
  if (values.size() != parameters.size()) {
    throw InvalidArgument("an optimizer got {} gradients for {} parameters", values.size(), parameters.size());
  }
  std::vector<nn::ParameterGradient> pairs;
  for (size_t i = 0; i < values.size(); ++i) pairs.push_back({parameters[i], values[i]});
  const ir::SourceScope scope(graph, "optimizer");
  optimizer.update(graph, pairs);
}

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

void bind_gradients(nb::module_& m) {
  m.def(
      "is_tracing", [] { return current_graph() != nullptr; }, "Whether construct() is being traced.");
  m.def("value_and_grad", &value_and_grad, "f"_a, "args"_a, "parameters"_a = nb::make_tuple(),
        "argument_numbers"_a = nb::make_tuple(), "sens"_a = 1.0,
        R"(Inside construct(): (f(*args), gradients), f being traced once.

The gradients are those of f's (first) result, a loss of any shape, with respect to the parameters, then to the arguments of
these numbers; `sens` is the gradient that they start with.)");
  m.def(
      "trace_branches", &trace_branches, "condition"_a, "then"_a, "otherwise"_a,
      R"(Inside construct(): (then(), otherwise()), both traced; what they assign holds where the condition, bool[], says so.)");
  m.attr("Optimizer").attr("update") =
      nb::cpp_function(&update, nb::name("update"), nb::scope(m.attr("Optimizer")), nb::is_method(), "parameters"_a,
                       "gradients"_a, "Inside construct(): every run updates the parameters.");
}

}  // namespace tessera::python
