// Cells: their attributes, settings and what Python code writes of them.
#include "python/src/cells.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <ranges>

#include "python/src/bind.h"
#include "python/src/called_cells.h"
#include "python/src/helped_module.h"
#include "python/src/keywords.h"
#include "python/src/parameters.h"
#include "python/src/threads.h"

namespace tessera::python {
namespace {

void collect(const nn::Cell& cell, OwnParameters& into) {
  for (const auto& [name, parameter] : cell.own_parameters()) {
    if (std::find(into.begin(), into.end(), parameter) == into.end()) into.push_back(parameter);
  }
  for (const auto& [name, child] : cell.children()) collect(*child, into);
}

using NamedParameters = std::vector<std::pair<std::string, std::shared_ptr<nn::Parameter>>>;

void collect_named(const nn::Cell& cell, const std::string& path, NamedParameters& into) {
  for (const auto& [name, parameter] : cell.own_parameters()) {
    const auto is_same = [&](const auto& entry) { return entry.second == parameter; };
    if (std::none_of(into.begin(), into.end(), is_same)) into.emplace_back(path + name, parameter);
  }
  for (const auto& [name, child] : cell.children()) {
    const bool is_in_path = child->path() != cell.path();
    collect_named(*child, is_in_path ? path + name + "." : path, into);
  }
}

std::shared_ptr<nn::Parameter> own_parameter(const nn::Cell& cell, const std::string& name) {
  for (const auto& [key, parameter] : cell.own_parameters()) {
    if (key == name) return parameter;
  }
  return nullptr;
}

// A tuple of parameters and of nothing else; empty where it is none.
OwnParameters parameters_in(nb::handle value) {
  OwnParameters all;
  if (!nb::isinstance<nb::tuple>(value)) return all;
  for (const nb::handle item : value) {
    if (!nb::isinstance<nn::Parameter>(item)) return {};
    all.push_back(nb::cast<std::shared_ptr<nn::Parameter>>(item));
  }
  return all;
}

// Whether nothing that was compiled can depend on the cell's attribute: one that a cell gets while it is made.
bool is_unseen(nb::handle self, const std::string& name) {
  const auto* cell = dynamic_cast<const PythonCell*>(&nb::cast<const nn::Cell&>(self));
  return cell != nullptr && !cell->was_traced() && !cell->is_part() &&
         !nb::borrow<nb::dict>(self.attr("__dict__")).contains(name.c_str());
}

// A number of Python or of NumPy.
bool is_number_or_scalar(nb::handle object) {
  static const nb::handle scalar = nb::object(nb::module_::import_("numpy").attr("generic")).release();
  return is_number(object) || nb::isinstance(object, scalar);
}

Tensor filled(const Type& type, nb::handle number) {
  const double value = nb::cast<double>(nb::float_(number));
  const std::vector<double> values(static_cast<size_t>(type.shape.num_elements()), value);
  return Tensor::of(type.shape, std::span<const double>(values)).cast(type.dtype);
}

std::string class_of(nb::handle object) { return nb::cast<std::string>(object.type().attr("__name__")); }

// `Dense "up"`; `Net` for the root, which its class tells.
std::string words_of_cell(nb::handle cell) {
  const auto path = nb::cast<nn::Cell&>(cell).path();
  return path.empty() ? class_of(cell) : fmt::format("{} \"{}\"", class_of(cell), path);
}

// The parameter is part of the cell by a tuple that another attribute is: it would be gone from there, too, while what
// was made of the tuple went on with it. A null value: it is to be deleted.
[[noreturn]] void refuse_to_replace(nb::handle self, const std::string& name, nb::handle value) {
  throw nb::type_error(
      fmt::format("{}: \"{}\" is a parameter, which {}: a number or a tensor of its shape becomes its value",
                  class_of(self), name,
                  value.is_valid() ? fmt::format("a {} cannot replace", class_of(value)) : "cannot be deleted")
          .c_str());
}

// Anything else in a parameter's place would read back as set while the network trains what it had, or nothing at all.
[[noreturn]] void refuse_as_value(nb::handle self, const std::string& name, nb::handle value) {
  throw nb::type_error(
      fmt::format(
          "{0}: \"{1}\" is a parameter, which a {2} cannot replace: {1}.set_data(value) makes it the value, and a "
          "tessera.Parameter takes the place",
          class_of(self), name, class_of(value))
          .c_str());
}

// What a cell of C++ consists of is fixed: it computes with what it was made of, whatever is called so here.
[[noreturn]] void refuse_in_built_in(nb::handle self, const std::string& name, nb::handle value) {
  throw nb::type_error(
      fmt::format(
          "{0}: a {2} cannot take the place of \"{1}\", the cell comes with Tessera and keeps what it was made "
          "of. {1}.set_data(value) gives it a value; two cells share all they have where one is both attributes, "
          "self.b = self.a, and construct() may compute with the {1} of another cell: ops.matmul(x, "
          "self.a.weight, transpose_b=True)",
          class_of(self), name, class_of(value))
          .c_str());
}

bool has_child(const nn::Cell& cell, const std::string& name) {
  return std::ranges::any_of(cell.children(), [&](const auto& child) { return child.first == name; });
}

using NamedCells = std::vector<std::pair<std::string, std::shared_ptr<nn::Cell>>>;

// The children behind the one of that name, in their order.
NamedCells children_behind(const nn::Cell& cell, const std::string& name) {
  NamedCells behind;
  bool is_met = false;
  for (const auto& [key, child] : cell.children()) {
    if (is_met) behind.emplace_back(key, nb::cast<std::shared_ptr<nn::Cell>>(nb::find(*child)));
    is_met = is_met || key == name;
  }
  return behind;
}

// Cells and parameters become part of the cell, under the attribute's name.
void set_attribute(nb::handle self, nb::handle key, nb::object value) {
  const auto name = nb::cast<std::string>(key);
  if (!nb::inst_ready(self)) {  // __init__() has not called that of Cell yet
    if (nb::isinstance<nn::Cell>(value) || nb::isinstance<nn::Parameter>(value)) {
      throw nb::attribute_error(fmt::format("{}: super().__init__() must be called before \"{}\" becomes part of it",
                                            nb::cast<std::string>(self.type().attr("__name__")), name)
                                    .c_str());
    }
    if (PyObject_GenericSetAttr(self.ptr(), key.ptr(), value.ptr()) != 0) throw nb::python_error();
    return;
  }
  auto& cell = nb::cast<nn::Cell&>(self);
  const auto own = own_parameter(cell, name);
  auto* const python_cell = dynamic_cast<PythonCell*>(&cell);
  const bool is_new_value = nb::isinstance<ir::Value>(value) || nb::isinstance<Tensor>(value) ||
                            nb::isinstance<nn::Parameter>(value) || is_number_or_scalar(value) || is_tensor_like(value);
  if (own != nullptr && current_graph() != nullptr && is_new_value) {
    assign_traced(own, value);
    return;
  }
  if (own != nullptr && nb::isinstance<Tensor>(value)) {
    set_parameter_value(*own, nb::cast<Tensor>(value));
    return;
  }
  if (own != nullptr && is_number_or_scalar(value)) {
    set_parameter_value(*own, filled(parameter_type(*own), value));
    return;
  }
  if (python_cell != nullptr && python_cell->holds(name)) {
    const bool is_itself = nb::isinstance<nn::Parameter>(value) && &nb::cast<nn::Parameter&>(value) == own.get();
    if (is_itself) return;
    refuse_to_replace(self, name, value);
  }
  const bool is_part = nb::isinstance<nn::Cell>(value) || nb::isinstance<nn::Parameter>(value);
  if (own != nullptr && python_cell != nullptr && !is_part && !value.is_none()) refuse_as_value(self, name, value);
  const bool is_change = current_graph() == nullptr && !is_unseen(self, name);
  if (python_cell != nullptr) {
    const bool is_in_path = nb::cast<bool>(self.attr("auto_prefix"));
    // A cell in another one's place stands where that stood.
    const NamedCells behind = nb::isinstance<nn::Cell>(value) ? children_behind(cell, name) : NamedCells();
    python_cell->release(name);
    if (nb::isinstance<nn::Parameter>(value)) {
      python_cell->adopt(name, nb::cast<std::shared_ptr<nn::Parameter>>(value));
    } else if (is_part) {
      python_cell->adopt(name, nb::cast<std::shared_ptr<nn::Cell>>(value), is_in_path);
      for (const auto& [key, child] : behind) {
        python_cell->release(key);
        python_cell->adopt(key, child, is_in_path);
      }
    } else {
      python_cell->hold_all(name, parameters_in(value));
    }
  } else if (own != nullptr || has_child(cell, name)) {
    if (nb::isinstance<nn::Parameter>(value) && &nb::cast<nn::Parameter&>(value) == own.get()) return;
    refuse_in_built_in(self, name, value);
  } else if (is_part) {
    throw InvalidArgument(
        "{}: \"{}\" cannot be added, the cell comes with Tessera: only a cell written in Python has parts of "
        "its own, and it may hold this one",
        words_of_cell(self), name);
  } else {
    refuse_option(self, name);
  }
  if (PyObject_GenericSetAttr(self.ptr(), key.ptr(), value.ptr()) != 0) throw nb::python_error();
  if (is_change) note_change();
}

void delete_attribute(nb::handle self, nb::handle key) {
  const auto name = nb::cast<std::string>(key);
  if (auto* cell = dynamic_cast<PythonCell*>(&nb::cast<nn::Cell&>(self))) {
    if (cell->holds(name)) refuse_to_replace(self, name, {});
    cell->release(name);
  }
  if (PyObject_GenericSetAttr(self.ptr(), key.ptr(), nullptr) != 0) throw nb::python_error();
  note_change();
}

// What C++ cells consist of: parameters and children by their names.
nb::object get_part(nb::handle self, const std::string& name) {
  if (!nb::inst_ready(self)) {
    throw nb::attribute_error(fmt::format("{} has no attribute '{}': super().__init__() has not been called yet",
                                          nb::cast<std::string>(self.type().attr("__name__")), name)
                                  .c_str());
  }
  auto& cell = nb::cast<nn::Cell&>(self);
  if (const auto own = own_parameter(cell, name)) return nb::cast(own);
  for (const auto& [key, child] : cell.children()) {
    if (key == name) return nb::cast(child, nb::rv_policy::reference_internal, self);
  }
  const nb::object hint = nb::module_::import_("tessera._keywords").attr("attribute_hint")(self.type(), name);
  throw nb::attribute_error(
      fmt::format("{} has no attribute '{}'{}", words_of_cell(self), name, nb::cast<std::string>(hint)).c_str());
}

}  // namespace

OwnParameters parameters_of(const nn::Cell& cell, bool trainable) {
  OwnParameters all;
  collect(cell, all);
  if (trainable) std::erase_if(all, [](const auto& parameter) { return !parameter->requires_grad; });
  return all;
}

void assign_traced(const std::shared_ptr<nn::Parameter>& parameter, nb::handle value) {
  read_by_trace(parameter);
  Operation operation;
  const Type& type = parameter->type;
  ir::Value assigned = operation.value(value);
  if (is_number(value)) assigned = ops::broadcast_to(ops::cast(assigned, type.dtype), type.shape.to_vector());
  parameter->assign(assigned);
}

void PythonCell::hold_all(const std::string& attribute, const OwnParameters& parameters) {
  for (const auto& parameter : parameters) {
    held_[attribute].push_back(parameter->full_name());
    hold(parameter->full_name(), parameter);
  }
}

bool PythonCell::holds(const std::string& name) const {
  return std::ranges::any_of(
      held_, [&](const auto& entry) { return std::ranges::find(entry.second, name) != entry.second.end(); });
}

void PythonCell::release(const std::string& attribute) {
  Cell::release(attribute);
  if (const auto held = held_.extract(attribute)) {
    for (const auto& name : held.mapped()) Cell::release(name);
  }
}

nn::Value PythonCell::construct(std::span<const nn::Value> inputs) {
  const WithGil gil;
  const ModelTraceScope model_trace;
  const TraceScope scope(graph());
  note_traced();
  nb::list arguments;
  for (const auto& input : inputs) arguments.append(nb::cast(input));
  const nb::object self = nb::find(static_cast<nn::Cell&>(*this));
  const nb::tuple given(arguments);
  const CallerScope caller(self);
  const nb::object result = with_own_gradient(self, given, construct_with(self, given, nb::kwargs()));
  if (nb::isinstance<nb::tuple>(result) || nb::isinstance<nb::list>(result) || result.is_none()) {
    throw InvalidArgument("{}: construct() must return one value here, it returned {}{}", words_of_cell(self),
                          nb::cast<std::string>(nb::str(result.type().attr("__name__"))),
                          result.is_none() ? ": is its return missing?" : "");
  }
  Operation operation;
  return operation.value(result);
}

namespace {

// What stands for a cell's parts, and for a construct() that it has not.
void bind_attributes(nb::class_<nn::Cell, PythonCell>& cell) {
  cell.def("__setattr__", &set_attribute, "name"_a, "value"_a.none());
  cell.def("__delattr__", &delete_attribute);
  cell.def("__getattr__", &get_part);
  cell.def("construct", [](nb::handle self, const nb::args& args) -> nb::object {
    throw InvalidArgument(
        "{} has no construct() for {} inputs{}", words_of_cell(self), args.size(),
        nb::hasattr(self.type(), "forward") ? ": its forward() is not called; name it construct()" : "");
  });
}

// Parameters and child cells, and the names that they go by.
void bind_parameters_and_names(nb::class_<nn::Cell, PythonCell>& cell) {
  cell.def(
      "parameters", [](const nn::Cell& self) { return parameters_of(self, false); },
      "Every parameter here and below, in the order of declaration, parents first.");
  cell.def(
      "trainable_parameters", [](const nn::Cell& self) { return parameters_of(self, true); },
      "Those with requires_grad.");
  cell.def("children", &nn::Cell::children, nb::rv_policy::reference_internal, "(name, cell) of each child.");
  cell.def("own_parameters", &nn::Cell::own_parameters,
           "(name, parameter) of each that is the cell's own, by the name that it has here.");
  cell.def(
      "prefix_parameters",
      [](nn::Cell& self, const std::string& prefix, bool recurse) { self.prefix_parameters(prefix, recurse); },
      "prefix"_a, "recurse"_a = true, "Names the parameters by the prefix and their path from this cell on.");
  cell.def(
      "name_parameters", [](nn::Cell& self) { self.name_parameters(); },
      "Names every parameter here and below by the path of attributes that leads to it, whatever it was called.");
  cell.def(
      "lead_to", [](nn::Cell& self, const std::string& name) { self.lead_to(name); }, "name"_a,
      R"(Makes the path that leads over the child of that name the one of the child and of all below.

Of several paths below the first counts. A cell keeps else the path over the cell that had it first.)");
  cell.def(
      "named_parameters",
      [](const nn::Cell& self) {
        NamedParameters all;
        collect_named(self, "", all);
        return all;
      },
      "(path of attributes, parameter) of each.");
  cell.def("path", &nn::Cell::path, "The attribute path: \"\" for the root, \"layer1.0\" below.");
}

// Where it is computed: its split, servers, stages.
void bind_placement(nb::class_<nn::Cell, PythonCell>& cell) {
  cell.def(
      "shard",
      [](nn::Cell& self, const std::string& op, const mesh::Strategy& strategy) {
        self.shard(op, strategy);
        note_change();
      },
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
      "set_on_servers",
      [](nb::object self, bool on_servers) {
        nb::cast<nn::Cell&>(self).set_on_servers(on_servers);
        note_change();
        return self;
      },
      "on_servers"_a = true,
      "In a job with parameter servers, these keep all trainable parameters here and below, and update them.");
  cell.def(
      "set_stage",
      [](nb::handle self, int stage, int segment) {
        nb::cast<nn::Cell&>(self).set_stage(stage, segment);
        note_change();
      },
      "stage"_a, "segment"_a = 0,
      R"(The pipeline stage, from 0, on which this cell and those below it are computed, unless one of those names its own.

A network that goes over the stages more than once has cells of several segments on each: segment 0 is what the first pass
computes, and so on. Within a segment the stages follow each other, up from 0 or down to it. Has a meaning in
pipeline_parallel only. Raises InvalidArgument for a negative one.)");
}

// How it is trained, and what it computes in.
void bind_training_settings(nb::class_<nn::Cell, PythonCell>& cell) {
  cell.def(
      "freeze",
      [](nn::Cell& self, const std::string& pattern) {
        nn::freeze(self, pattern);
        note_change();
      },
      "pattern"_a = "*",
      R"(Training leaves the parameters as they are whose names, from this cell on, the pattern matches.

`*` stands for any text, `?` for one character; a cell's name for all below it: net.freeze("backbone"). A pattern that matches
none raises InvalidArgument naming what is near. Moving statistics of norms still follow the batches: use_batch_statistics
says whether.)");
  cell.def(
      "unfreeze",
      [](nn::Cell& self, const std::string& pattern) {
        nn::unfreeze(self, pattern);
        note_change();
      },
      "pattern"_a = "*", "Has the parameters trained again that the pattern matches, but for moving statistics.");
  cell.def(
      "recompute",
      [](nb::object self, bool collectives, bool parameters) {
        nb::cast<nn::Cell&>(self).recompute(
            {.mp_comm_recompute = collectives, .parallel_optimizer_comm_recompute = parameters});
        return self;
      },
      "mp_comm_recompute"_a = true, "parallel_optimizer_comm_recompute"_a = false,
      R"(Backward computes what is inside of this cell once more instead of keeping it. Changes no result.

mp_comm_recompute: collectives of split operators, too. parallel_optimizer_comm_recompute: the gathering of parameters whose
rows replicas share, too. Raises InvalidArgument where it, a cell above or one below is recomputed already.)");
  cell.def(
      "to_float",
      [](nb::object self, nb::handle dtype) {
        nb::cast<nn::Cell&>(self).to_float(to_dtype(dtype));
        note_change();
        return self;
      },
      "dtype"_a,
      "What operators here and below compute in, whatever the model's precision: float32, bfloat16 or float16. "
      "Parameters stay as they are.");
  cell.def(
      "set_train",
      [](nb::object self, bool mode) {
        auto& own = nb::cast<nn::Cell&>(self);
        auto settings = own.settings();
        const bool is_change = !own.has_settings() || settings.training != mode;
        settings.training = mode;
        settings.seed = global_seed();
        own.apply_settings(settings);
        if (is_change && is_called_by_others(own)) note_change();
        return self;
      },
      "mode"_a = true, "Whether the cell runs as in training: dropout, statistics of the batch.");
  cell.def("configure_as", &nn::Cell::configure_as, "other"_a,
           "Takes over what is set of a cell of the same structure, here and below: mode, strategies, precision, "
           "recomputation, stages.");
}

}  // namespace

void bind_cells(nb::module_& m) {
  bind_initializers(m);
  bind_parameter(m);
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
  bind_calls(m, cell);
  helped(m).def(
      "_is_ready", [](nb::handle cell) { return nb::inst_ready(cell); }, "cell"_a,
      "Whether the __init__() of Cell has been called.");
  bind_attributes(cell);
  bind_parameters_and_names(cell);
  bind_placement(cell);
  bind_training_settings(cell);
  cell.def(
      "_run_construct",
      [](nb::handle self, const nb::args& args, const nb::kwargs& kwargs) {
        nb::object result;
        // Of any cell: one in Python may stand on a C++ class.
        (nb::cast<nn::Cell&>(self).*
         &PythonCell::lend_settings)([&] { result = self.attr("construct")(*args, **kwargs); });
        return result;
      },
      "construct() as it stands, operator by operator; what it calls runs in this cell's mode where it was told none.");
  cell.def_prop_ro("training", [](const nn::Cell& self) { return self.settings().training; });
}

}  // namespace tessera::python
