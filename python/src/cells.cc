// Cells and parameters.
#include "python/src/cells.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind.h"
#include "python/src/parameters.h"

namespace tessera::python {
namespace {

// Counts changes of cells' attributes: what was traced before one may be traced differently now.
uint64_t changes = 0;

struct NamedInitializer {
  nn::Initializer make;
};

using OwnParameters = std::vector<std::shared_ptr<nn::Parameter>>;

void collect(const nn::Cell& cell, OwnParameters& into) {
  for (const auto& [name, parameter] : cell.own_parameters()) {
    if (std::find(into.begin(), into.end(), parameter) == into.end()) into.push_back(parameter);
  }
  for (const auto& [name, child] : cell.children()) collect(*child, into);
}

OwnParameters parameters_of(const nn::Cell& cell, bool trainable) {
  OwnParameters all;
  collect(cell, all);
  if (trainable) std::erase_if(all, [](const auto& parameter) { return !parameter->requires_grad; });
  return all;
}

std::shared_ptr<nn::Parameter> own_parameter(const nn::Cell& cell, const std::string& name) {
  for (const auto& [key, parameter] : cell.own_parameters()) {
    if (key == name) return parameter;
  }
  return nullptr;
}

// Cells and parameters become part of the cell, under the attribute's name.
void set_attribute(nb::handle self, nb::handle key, nb::object value) {
  auto& cell = nb::cast<nn::Cell&>(self);
  const auto name = nb::cast<std::string>(key);
  const auto own = own_parameter(cell, name);
  if (own != nullptr && nb::isinstance<ir::Value>(value)) {
    own->assign(nb::cast<ir::Value>(value));
    return;
  }
  if (own != nullptr && nb::isinstance<Tensor>(value)) {
    set_parameter_value(*own, nb::cast<Tensor>(value));
    return;
  }
  const bool is_part = nb::isinstance<nn::Cell>(value) || nb::isinstance<nn::Parameter>(value);
  if (auto* python_cell = dynamic_cast<PythonCell*>(&cell)) {
    python_cell->release(name);
    if (nb::isinstance<nn::Parameter>(value)) {
      python_cell->adopt(name, nb::cast<std::shared_ptr<nn::Parameter>>(value));
    } else if (is_part) {
      python_cell->adopt(name, nb::cast<std::shared_ptr<nn::Cell>>(value), nb::cast<bool>(self.attr("auto_prefix")));
    }
  } else if (is_part) {
    throw InvalidArgument("cell \"{}\": \"{}\" cannot be added, the cell is not written in Python", cell.path(), name);
  }
  if (PyObject_GenericSetAttr(self.ptr(), key.ptr(), value.ptr()) != 0) throw nb::python_error();
  if (current_graph() == nullptr) ++changes;
}

void delete_attribute(nb::handle self, nb::handle key) {
  if (auto* cell = dynamic_cast<PythonCell*>(&nb::cast<nn::Cell&>(self))) cell->release(nb::cast<std::string>(key));
  if (PyObject_GenericSetAttr(self.ptr(), key.ptr(), nullptr) != 0) throw nb::python_error();
  ++changes;
}

// What C++ cells consist of: parameters and children by their names.
nb::object get_part(nb::handle self, const std::string& name) {
  auto& cell = nb::cast<nn::Cell&>(self);
  if (const auto own = own_parameter(cell, name)) return nb::cast(own);
  for (const auto& [key, child] : cell.children()) {
    if (key == name) return nb::cast(child, nb::rv_policy::reference_internal, self);
  }
  throw nb::attribute_error(fmt::format("{} \"{}\" has no attribute '{}'",
                                        nb::cast<std::string>(self.type().attr("__name__")), cell.path(), name)
                                .c_str());
}

nb::object trace_call(nb::handle self, nn::Cell& cell, const nb::args& args, const nb::kwargs& kwargs) {
  if (auto* python_cell = dynamic_cast<PythonCell*>(&cell)) {
    nb::object result;
    python_cell->enter(*current_graph(), [&] { result = self.attr("construct")(*args, **kwargs); });
    return result;
  }
  if (!kwargs.empty()) throw nb::type_error("this cell takes its inputs by position");
  Operation operation;
  return nb::cast(cell(operation.values(args)));
}

// What a cell was compiled into for one signature of its inputs.
struct CompiledCall {
  std::unique_ptr<Program> program;
  nb::object result;              // with values of the graph in it
  std::map<int, size_t> outputs;  // which output a value is

  nb::object fill(nb::handle object, const std::vector<Tensor>& tensors) const {
    if (nb::isinstance<ir::Value>(object)) return nb::cast(tensors[outputs.at(nb::cast<ir::Value>(object).id())]);
    if (nb::isinstance<nb::tuple>(object) || nb::isinstance<nb::list>(object)) {
      nb::list items;
      for (const nb::handle item : object) items.append(fill(item, tensors));
      if (nb::isinstance<nb::list>(object)) return items;
      return nb::tuple(items);
    }
    return nb::borrow(object);
  }
};

void find_values(nb::handle object, std::vector<ir::Value>& values) {
  if (nb::isinstance<ir::Value>(object)) {
    const auto value = nb::cast<ir::Value>(object);
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  } else if (nb::isinstance<nb::tuple>(object) || nb::isinstance<nb::list>(object)) {
    for (const nb::handle item : object) find_values(item, values);
  }
}

bool is_tensor_like(nb::handle object) {
  return nb::isinstance<Tensor>(object) || nb::isinstance<nn::Parameter>(object) ||
         (nb::hasattr(object, "__array__") && nb::hasattr(object, "dtype"));
}

std::unique_ptr<CompiledCall> compile_call(nb::handle self, nn::Cell& cell, const nb::args& args,
                                           const nb::kwargs& kwargs, const std::vector<Tensor>& inputs) {
  ir::Graph graph("forward");
  const TraceScope scope(graph);
  nb::list symbols;
  size_t next = 0;
  for (const nb::handle arg : args) {
    if (!is_tensor_like(arg)) {
      symbols.append(arg);
      continue;
    }
    symbols.append(nb::cast(graph.add_input(ir::InputKind::kInput, std::to_string(next), inputs[next].type())));
    ++next;
  }
  auto call = std::make_unique<CompiledCall>();
  take_read_by_trace();  // of a trace that failed
  call->result = trace_call(self, cell, nb::borrow<nb::args>(nb::tuple(symbols)), kwargs);
  std::vector<ir::Value> values;
  find_values(call->result, values);
  for (size_t i = 0; i < values.size(); ++i) {
    graph.add_output(fmt::format("result{}", i), values[i]);
    call->outputs[values[i].id()] = i;
  }
  if (cell.settings().training) session::advance_random_step(graph);
  graph.finish_assignments();
  std::map<std::string, nn::Parameter*> read;
  for (const auto& parameter : parameters_of(cell, false)) {
    if (graph.find_input(parameter->full_name()) != nullptr) read[parameter->full_name()] = parameter.get();
  }
  for (nn::Parameter* parameter : take_read_by_trace()) {
    if (graph.find_input(parameter->full_name()) != nullptr) read[parameter->full_name()] = parameter;
  }
  call->program = std::make_unique<Program>(graph, std::move(read));
  return call;
}

// Inside construct() a call is traced; outside it runs at once, compiled once for each signature of its inputs.
nb::object call_cell(nb::handle self, const nb::args& args, const nb::kwargs& kwargs) {
  auto& cell = nb::cast<nn::Cell&>(self);
  if (current_graph() != nullptr) return trace_call(self, cell, args, kwargs);
  std::vector<Tensor> inputs;
  std::string signature = cell.settings().training ? "training" : "";
  for (const nb::handle arg : args) {
    if (is_tensor_like(arg)) {
      inputs.push_back(to_tensor(arg));
      signature += fmt::format(" {}", inputs.back().type());
    } else {
      signature += fmt::format(" {}", nb::cast<std::string>(nb::repr(arg)));
    }
  }
  signature += fmt::format(" {}", nb::cast<std::string>(nb::repr(kwargs)));
  nb::dict own = nb::borrow<nb::dict>(self.attr("__dict__"));
  if (!own.contains("_calls") || nb::cast<uint64_t>(own["_changes"]) != changes) {
    own["_calls"] = nb::dict();
    own["_changes"] = changes;
  }
  const nb::dict calls = nb::borrow<nb::dict>(own["_calls"]);
  if (!calls.contains(signature.c_str())) {
    calls[signature.c_str()] =
        nb::cast(compile_call(self, cell, args, kwargs, inputs).release(), nb::rv_policy::take_ownership);
  }
  const auto& call = nb::cast<CompiledCall&>(calls[signature.c_str()]);
  return call.fill(call.result, call.program->run(inputs));
}

void bind_parameter(nb::module_& m) {
  auto parameter = nb::class_<nn::Parameter>(m, "Parameter", R"(A named tensor of a network that training may change.

Parameter(value): starts as the tensor, array or number. Parameter(initializer, shape, dtype): starts as the initializer
(or the one of that name) makes it, a function of the seed and of the parameter's name. The name is the attribute path,
`layer1.fc.weight`; `name` replaces its last part.
layerwise_parallel: in hybrid parallel a slice of this rank's own. parallel_optimizer=False: kept whole where optimizers
share their work. comm_fusion: gradients of equal ids travel together; 0: alone.)",
                                             nb::dynamic_attr(), nb::is_weak_referenceable());
  parameter.def(
      "__init__",
      [](nn::Parameter* self, nb::handle value, nb::handle shape, nb::handle dtype, const std::string& name,
         bool requires_grad, bool layerwise_parallel, bool parallel_optimizer, int comm_fusion) {
        nn::Parameter made{.name = name,
                           .requires_grad = requires_grad,
                           .parallel_optimizer = parallel_optimizer,
                           .comm_fusion = comm_fusion,
                           .layerwise_parallel = layerwise_parallel};
        if (nb::isinstance<NamedInitializer>(value) || nb::isinstance<nb::str>(value)) {
          if (shape.is_none()) throw InvalidArgument("parameter \"{}\": an initializer needs a shape", name);
          made.init = to_init(value);
          made.type = {dtype.is_none() ? DType::kF32 : to_dtype(dtype), Shape(to_ints(shape))};
        } else {
          made.data = to_tensor(value).clone();
          if (!dtype.is_none()) made.data = made.data->cast(to_dtype(dtype));
          made.type = made.data->type();
        }
        new (self) nn::Parameter(std::move(made));
      },
      "value"_a, "shape"_a = nb::none(), "dtype"_a = nb::none(), "name"_a = "", "requires_grad"_a = true,
      "layerwise_parallel"_a = false, "parallel_optimizer"_a = true, "comm_fusion"_a = 1);
  parameter.def_prop_ro("name", [](const nn::Parameter& self) { return self.full_name(); });
  parameter.def_rw("own_name", &nn::Parameter::name, "The last part of the name.");
  parameter.def_rw("requires_grad", &nn::Parameter::requires_grad);
  parameter.def_rw("parallel_optimizer", &nn::Parameter::parallel_optimizer);
  parameter.def_rw("comm_fusion", &nn::Parameter::comm_fusion);
  parameter.def_rw("layerwise_parallel", &nn::Parameter::layerwise_parallel);
  parameter.def("value", &parameter_value, "The present value. Every rank must ask where it is split over ranks.");
  parameter.def(
      "set_data", [](nn::Parameter& self, nb::handle value) { set_parameter_value(self, to_tensor(value)); }, "value"_a,
      "Raises InvalidArgument unless shape and dtype are the parameter's.");
  parameter.def("asnumpy", [](nn::Parameter& self) { return nb::cast(parameter_value(self)).attr("asnumpy")(); });
  parameter.def("numpy", [](nn::Parameter& self) { return nb::cast(parameter_value(self)).attr("numpy")(); });
  parameter.def("__array__", [](nn::Parameter& self, const nb::args& args, const nb::kwargs& kwargs) {
    return nb::cast(parameter_value(self)).attr("__array__")(*args, **kwargs);
  });
  parameter.def(
      "assign",
      [](nn::Parameter& self, nb::handle value) {
        Operation operation;
        if (current_graph() == nullptr) {
          set_parameter_value(self, to_tensor(value));
        } else {
          self.assign(operation.value(value));
        }
      },
      "value"_a, "Makes this the parameter's value from here on; inside construct(), in every step.");
  parameter.def("__repr__", [](const nn::Parameter& self) {
    return fmt::format("Parameter({}, {}, requires_grad={})", self.full_name(), self.type,
                       self.requires_grad ? "True" : "False");
  });
  bind_operators_of(parameter);
}

void bind_initializers(nb::module_& m) {
  auto sub = m.def_submodule("initializers", "How parameters start.");
  nb::class_<NamedInitializer>(sub, "Initializer", "What makes a parameter's first value.");
  const auto made = [](nn::Initializer make) { return NamedInitializer{std::move(make)}; };
  sub.def("zeros", [made] { return made(nn::zeros()); });
  sub.def("ones", [made] { return made(nn::ones()); });
  sub.def(
      "constant", [made](double value) { return made(nn::constant(value)); }, "value"_a);
  sub.def(
      "normal", [made](double sigma, double mean) { return made(nn::normal(sigma, mean)); }, "sigma"_a = 0.01,
      "mean"_a = 0.0, "Gaussian of standard deviation sigma around mean.");
  sub.def(
      "uniform", [made](double scale) { return made(nn::uniform(scale)); }, "scale"_a = 0.07,
      "Even in [-scale, scale).");
  sub.def(
      "truncated_normal", [made](double sigma) { return made(nn::truncated_normal(sigma)); }, "sigma"_a = 0.01,
      "Gaussian around 0, cut at 2 sigma on both sides.");
  sub.def(
      "xavier_uniform", [made](double gain) { return made(nn::xavier_uniform(gain)); }, "gain"_a = 1.0,
      "Even in +-gain * sqrt(6 / (fan_in + fan_out)): Glorot and Bengio, 2010.");
  sub.def(
      "he_uniform", [made] { return made(nn::he_uniform()); }, "Even in +-sqrt(6 / fan_in): He et al., 2015.");
  sub.def(
      "he_normal", [made] { return made(nn::he_normal()); },
      "Gaussian of standard deviation sqrt(2 / fan_out): He et al., 2015.");
  sub.def(
      "initializer", [made](const std::string& name) { return made(nn::initializer(name)); }, "name"_a,
      "By name, upper or lower case. Raises InvalidArgument listing the known ones.");
}

}  // namespace

nn::Value PythonCell::construct(std::span<const nn::Value> inputs) {
  const nb::gil_scoped_acquire gil;
  const TraceScope scope(graph());
  nb::list arguments;
  for (const auto& input : inputs) arguments.append(nb::cast(input));
  const nb::object self = nb::find(static_cast<nn::Cell&>(*this));
  const nb::object result = self.attr("construct")(*nb::tuple(arguments));
  if (nb::isinstance<nb::tuple>(result) || nb::isinstance<nb::list>(result) || result.is_none()) {
    throw InvalidArgument("cell \"{}\": construct() must return one value here, it returned {}", path(),
                          nb::cast<std::string>(nb::str(result.type().attr("__name__"))));
  }
  Operation operation;
  return operation.value(result);
}

nn::Init to_init(nb::handle object) {
  if (nb::isinstance<NamedInitializer>(object)) return nb::cast<NamedInitializer&>(object).make;
  if (nb::isinstance<nb::str>(object)) return nb::cast<std::string>(object);
  if (is_number(object)) return nn::constant(nb::cast<double>(nb::float_(object)));
  throw nb::type_error("an initializer, its name or a number is needed");
}

void bind_cells(nb::module_& m) {
  bind_initializers(m);
  bind_parameter(m);
  nb::class_<CompiledCall>(m, "_CompiledCall");
  auto cell =
      nb::class_<nn::Cell, PythonCell>(m, "Cell", R"(A piece of a network: parameters, child cells and construct().

    class Mlp(tessera.nn.Cell):
        def __init__(self):
            super().__init__()
            self.up = tessera.nn.Dense(64, 256)
            self.down = tessera.nn.Dense(256, 10)

        def construct(self, x):
            return self.down(tessera.ops.relu(self.up(x)))

construct() is traced: it is called with values that have a shape and a dtype but no elements, once for each signature
of its inputs. A parameter's name is its attribute path. Called with tensors outside of construct(), a cell runs at
once.)",
                                       nb::dynamic_attr(), nb::is_weak_referenceable());
  cell.def(
      "__init__",
      [](nn::Cell* self, bool auto_prefix) {
        auto* made = new (self) PythonCell();
        const nb::object object = nb::find(static_cast<nn::Cell&>(*made));
        nb::borrow<nb::dict>(object.attr("__dict__"))["auto_prefix"] = auto_prefix;
      },
      "auto_prefix"_a = true);
  cell.def("__call__", &call_cell);
  cell.def("__setattr__", &set_attribute, "name"_a, "value"_a.none());
  cell.def("__delattr__", &delete_attribute);
  cell.def("__getattr__", &get_part);
  cell.def("construct", [](nb::handle self, const nb::args& args) -> nb::object {
    throw InvalidArgument("cell \"{}\" has no construct() for {} inputs", nb::cast<nn::Cell&>(self).path(),
                          args.size());
  });
  cell.def(
      "parameters", [](const nn::Cell& self) { return parameters_of(self, false); },
      "Every parameter here and below, in the order of declaration, parents first.");
  cell.def(
      "trainable_parameters", [](const nn::Cell& self) { return parameters_of(self, true); },
      "Those with requires_grad.");
  cell.def("children", &nn::Cell::children, nb::rv_policy::reference_internal, "(name, cell) of each child.");
  cell.def("path", &nn::Cell::path, "The attribute path: \"\" for the root, \"layer1.0\" below.");
  cell.def(
      "shard", [](nn::Cell& self, const std::string& op, const mesh::Strategy& strategy) { self.shard(op, strategy); },
      "op"_a, "strategy"_a,
      "Fixes how the operators of that name which construct() itself adds are split: one tuple of counts per operand.");
  cell.def(
      "set_comm_fusion",
      [](nb::object self, int id) {
        nb::cast<nn::Cell&>(self).set_comm_fusion(id);
        return self;
      },
      "id"_a);
  cell.def(
      "set_train",
      [](nb::object self, bool mode) {
        auto& own = nb::cast<nn::Cell&>(self);
        auto settings = own.settings();
        settings.training = mode;
        settings.seed = global_seed();
        own.apply_settings(settings);
        return self;
      },
      "mode"_a = true, "Whether the cell runs as in training: dropout, statistics of the batch.");
  cell.def_prop_ro("training", [](const nn::Cell& self) { return self.settings().training; });
}

}  // namespace tessera::python
