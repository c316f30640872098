// The class Parameter.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind.h"
#include "python/src/cells.h"
#include "python/src/parameters.h"

namespace tessera::python {
namespace {

void def_constructor(nb::class_<nn::Parameter>& parameter) {
  parameter.def(
      "__init__",
      [](nn::Parameter* self, nb::handle value, nb::handle shape, nb::handle dtype, const std::string& name,
         bool requires_grad, bool layerwise_parallel, bool parallel_optimizer, int comm_fusion) {
        nn::Parameter made{.name = name,
                           .requires_grad = requires_grad,
                           .parallel_optimizer = parallel_optimizer,
                           .comm_fusion = comm_fusion,
                           .layerwise_parallel = layerwise_parallel};
        if (is_initializer(value)) {
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
}

void def_attributes(nb::class_<nn::Parameter>& parameter) {
  parameter.def_prop_rw(
      "name", [](const nn::Parameter& self) { return self.full_name(); },
      [](nn::Parameter& self, const std::string& name) {
        if (name.empty()) throw InvalidArgument("parameter \"{}\": a name must not be empty", self.full_name());
        self.given_name = name;
        note_change();
      },
      "The path of attributes, or what was assigned.");
  parameter.def_rw("own_name", &nn::Parameter::name, "The last part of the name.");
  parameter.def_rw("given_name", &nn::Parameter::given_name,
                   "What the name is, whatever path of attributes leads to the parameter; \"\": it is that path.");
  parameter.def_prop_rw(
      "requires_grad", [](const nn::Parameter& self) { return self.requires_grad; },
      [](nn::Parameter& self, bool on) {
        if (self.requires_grad != on) note_change();
        self.requires_grad = on;
      });
  parameter.def_rw("parallel_optimizer", &nn::Parameter::parallel_optimizer);
  parameter.def_rw("comm_fusion", &nn::Parameter::comm_fusion);
  parameter.def_rw("layerwise_parallel", &nn::Parameter::layerwise_parallel);
  parameter.def_prop_rw(
      "on_servers", [](const nn::Parameter& self) { return self.on_servers; },
      [](nn::Parameter& self, bool on) {
        if (self.on_servers != on) note_change();
        self.on_servers = on;
      },
      "In a job with parameter servers, these keep it and update it.");
  parameter.def_ro("is_statistic", &nn::Parameter::is_statistic, "Whether it is a moving statistic of batches.");
}

// The value as a tensor.
void def_values(nb::class_<nn::Parameter>& parameter) {
  parameter.def(
      "value",
      [](const std::shared_ptr<nn::Parameter>& self) -> nb::object {
        if (current_graph() == nullptr) return nb::cast(parameter_value(*self));
        Operation operation;
        return nb::cast(operation.value(nb::cast(self)));
      },
      "The present value; inside construct() what it is there, through which gradients flow. Every rank must ask where "
      "it is split over ranks, unless the model shows slices: then it is this rank's.");
  parameter.def_prop_ro(
      "whole_shape", [](const nn::Parameter& self) { return nb::tuple(nb::cast(self.type.shape.to_vector())); },
      "The shape, also where the model shows slices.");
  parameter.def("whole_value", &whole_value,
                "The present value, whole. Every rank must ask where it is split over ranks.");
  parameter.def(
      "set_data", [](nn::Parameter& self, nb::handle value) { set_parameter_value(self, to_tensor(value)); }, "value"_a,
      "Raises InvalidArgument unless shape and dtype are the parameter's.");
}

// The value as an array of NumPy.
void def_arrays(nb::class_<nn::Parameter>& parameter) {
  // The present elements. A trace would take them for a constant, which no training changes.
  const auto elements = [](nn::Parameter& self) {
    if (current_graph() != nullptr) refuse_use_as("elements");
    return nb::cast(parameter_value(self));
  };
  // The model would not see what is written into the array.
  const auto array_of = [elements](nn::Parameter& self) {
    nb::object array = elements(self).attr("numpy")();
    if (is_in_model(self)) array.attr("setflags")("write"_a = false);
    return array;
  };
  constexpr const char* kArrayDoc =
      "The present elements, in the parameter's memory. Once a model has the parameter they are not to be written: "
      "write a copy(), which set_data() takes.";
  parameter.def("asnumpy", array_of, kArrayDoc);
  parameter.def("numpy", array_of, kArrayDoc);
  parameter.def("__array__", [elements](nn::Parameter& self, const nb::args& args, const nb::kwargs& kwargs) {
    return elements(self).attr("__array__")(*args, **kwargs);
  });
}

// What construct() does to the value.
void def_assignments(nb::class_<nn::Parameter>& parameter) {
  parameter.def(
      "assign",
      [](const std::shared_ptr<nn::Parameter>& self, nb::handle value) {
        if (current_graph() == nullptr) {
          set_parameter_value(*self, to_tensor(value));
        } else {
          assign_traced(self, value);
        }
      },
      "value"_a, "Makes this the parameter's value from here on; inside construct(), in every step.");
  parameter.def(
      "rebind",
      [](const nn::Parameter& self, const ir::Value& value, const std::optional<ir::Value>& instead_of) {
        if (current_graph() == nullptr) throw InvalidArgument("rebind: no graph is being traced");
        const ir::Value now = self.in(*current_graph());
        if (instead_of && now.id() != instead_of->id()) return;
        current_graph()->rebind(self.full_name(), value);
      },
      "value"_a, "instead_of"_a = nb::none(),
      "Inside construct(): reads give this value from here on, and nothing is assigned. instead_of: only where they "
      "would "
      "give that value, which undoes an earlier rebind() unless something was assigned since.");
}

// The value of one element.
void def_numbers(nb::class_<nn::Parameter>& parameter) {
  const auto number = [](nn::Parameter& self, const char* what) {
    if (current_graph() != nullptr) refuse_use_as(what);
    return parameter_value(self).item();
  };
  parameter.def("__bool__", [number](nn::Parameter& self) { return number(self, "truth") != 0; });
  parameter.def("__float__", [number](nn::Parameter& self) { return number(self, "number"); });
  parameter.def("__int__", [number](nn::Parameter& self) { return static_cast<int64_t>(number(self, "number")); });
}

}  // namespace

void bind_parameter(nb::module_& m) {
  auto parameter = nb::class_<nn::Parameter>(m, "Parameter", R"(A named tensor of a network that training may change.

Parameter(value): starts as the tensor, array or number. Parameter(initializer, shape, dtype): starts as the initializer
(or the one of that name) makes it, a function of the seed and of the parameter's name. The name is the attribute path,
`layer1.fc.weight`; `name` replaces its last part.
layerwise_parallel: in hybrid parallel a slice of this rank's own. parallel_optimizer=False: kept whole where optimizers
share their work. comm_fusion: gradients of equal ids travel together; 0: alone.)",
                                             nb::dynamic_attr(), nb::is_weak_referenceable());
  def_constructor(parameter);
  def_attributes(parameter);
  def_values(parameter);
  def_arrays(parameter);
  def_assignments(parameter);
  parameter.def("__repr__", [](const nn::Parameter& self) {
    return fmt::format("Parameter({}, {}, requires_grad={})", self.full_name(), self.type,
                       self.requires_grad ? "True" : "False");
  });
  def_numbers(parameter);
  bind_operators_of(parameter);
}

}  // namespace tessera::python
