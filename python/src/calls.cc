// Calls of cells: traced inside construct(), else compiled, once for each signature of the inputs, and run.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <functional>
#include <list>
#include <ranges>

#include "python/src/bind.h"
#include "python/src/called_cells.h"
#include "python/src/cells.h"
#include "python/src/helped_module.h"
#include "python/src/parameters.h"
#include "python/src/threads.h"

namespace tessera::python {
namespace {

// Training steps, which differentiate what they have called, are among the outermost cells.
constexpr size_t kRememberedDepth = 3;

// The inputs, where all are values.
std::optional<std::vector<ir::Value>> values_of(const nb::args& args, const nb::kwargs& kwargs) {
  std::vector<ir::Value> values;
  for (const nb::handle arg : args) {
    if (!nb::isinstance<ir::Value>(arg)) return std::nullopt;
    values.push_back(nb::cast<ir::Value>(arg));
  }
  return kwargs.empty() ? std::optional(values) : std::nullopt;
}

// The cells written in Python whose construct() the thread is in.
thread_local std::vector<nb::handle> callers;

thread_local bool model_traces = false;
void note_called(nb::handle self, const nn::Cell& cell) {
  if (!cell.path().empty()) return;
  const auto parameters = parameters_of(cell, false);
  if (parameters.empty()) return;
  auto words = nb::cast<std::string>(self.type().attr("__name__"));
  if (!callers.empty()) {
    words += nb::cast<std::string>(nb::module_::import_("tessera._keywords").attr("held_in")(callers.back(), self));
  }
  for (const auto& parameter : parameters) unowned_cells()[parameter->full_name()] = words;
}

bool is_below(const nn::Cell& above, const nn::Cell& cell) {
  return std::ranges::any_of(above.children(),
                             [&](const auto& child) { return child.second == &cell || is_below(*child.second, cell); });
}

// Of cells that construct() calls though they are no part of its cell.
constexpr const char* kCalledByOthers = "_is_called_by_others";

// What was compiled of the caller depends on the mode of a cell that is no part of it, unless it is traced each time.
void note_caller(nb::handle self, const nn::Cell& cell) {
  if (callers.empty()) return;
  const nb::handle caller = callers.back();
  if (nb::borrow<nb::dict>(caller.attr("__dict__")).contains("_programs")) return;
  if (is_below(nb::cast<const nn::Cell&>(caller), cell)) return;
  nb::borrow<nb::dict>(self.attr("__dict__"))[kCalledByOthers] = true;
}

nb::object trace_call(nb::handle self, nn::Cell& cell, const nb::args& args, const nb::kwargs& kwargs) {
  if (model_traces) note_called(self, cell);
  note_caller(self, cell);
  if (auto* python_cell = dynamic_cast<PythonCell*>(&cell)) {
    static thread_local size_t depth = 0;
    struct Inside {
      Inside() { ++depth; }
      ~Inside() { --depth; }
    };
    nb::object result;
    python_cell->note_traced();
    {
      const Inside inside;
      const CallerScope caller(self);
      python_cell->enter(*current_graph(), [&] {
        const nb::tuple given = differentiable_arguments(self, args);
        result = with_own_gradient(self, given, construct_with(self, given, kwargs));
      });
    }
    if (auto values = values_of(args, kwargs); values && depth <= kRememberedDepth)
      remember_call(self, std::move(*values), result);
    return result;
  }
  // Functions call cells that are no part of what is traced.
  for (const auto& parameter : parameters_of(cell, false)) read_by_trace(parameter);
  // Cells with optional inputs or several results say themselves how they are called.
  if (nb::hasattr(self, "_trace")) return self.attr("_trace")(*args, **kwargs);
  if (!kwargs.empty()) throw nb::type_error("this cell takes its inputs by position");
  Operation operation;
  return nb::cast(cell(operation.values(args)));
}

// Counts changes of cells' attributes: what was traced before one may be traced differently now.
uint64_t changes = 0;

// What a call returns and needs to run, as its trace has found.
struct CallForm {
  Program::Parameters parameters;
  nb::object result;              // with values of the graph in it
  std::map<int, size_t> outputs;  // which output a value is

  nb::object run(Program& program, const std::vector<Tensor>& inputs) const {
    return fill(result, program.run(inputs, parameters));
  }

 private:
  nb::object fill(nb::handle object, const std::vector<Tensor>& tensors) const {
    if (nb::isinstance<ir::Value>(object)) return nb::cast(tensors[outputs.at(nb::cast<ir::Value>(object).id())]);
    if (nb::isinstance<nb::tuple>(object) || nb::isinstance<nb::list>(object)) {
      nb::list items;
      for (const nb::handle item : object) items.append(fill(item, tensors));
      if (nb::isinstance<nb::list>(object)) return items;
      return nb::tuple(items);
    }
    if (!PyDict_CheckExact(object.ptr())) return nb::borrow(object);
    nb::dict made;
    for (const auto& [key, value] : nb::borrow<nb::dict>(object)) made[key] = fill(value, tensors);
    return made;
  }
};

// What is found by a text, as far as it was used lately.
template <typename Item>
class Latest {
 public:
  explicit Latest(size_t most) : most_(most) {}

  // Null where it is not known, or no longer. What is found counts as used.
  std::shared_ptr<Item> find(const std::string& key) {
    const auto known = std::find_if(items_.begin(), items_.end(), [&](const auto& one) { return one.first == key; });
    if (known == items_.end()) return nullptr;
    items_.splice(items_.begin(), items_, known);
    return items_.front().second;
  }
  void add(std::string key, std::shared_ptr<Item> item) {
    std::erase_if(items_, [&](const auto& one) { return one.first == key; });
    items_.emplace_front(std::move(key), std::move(item));
    if (items_.size() > most_) items_.pop_back();
  }

 private:
  size_t most_;
  std::list<std::pair<std::string, std::shared_ptr<Item>>> items_;  // the latest first
};

// What a cell was compiled into for one signature of its inputs.
struct CompiledCall {
  CallForm form;
  std::shared_ptr<Program> program;
};

// What calls that are traced once for each signature were compiled into, by signature.
class CompiledCalls {
 public:
  Latest<CompiledCall>& latest() { return calls_; }

 private:
  // On several ranks each has a file descriptor, of which a process has 1024, and address space of 64 GiB.
  static constexpr size_t kMaxCalls = 256;
  Latest<CompiledCall> calls_{kMaxCalls};
};

// A call of a cell with these inputs.
struct CellCall {
  nb::handle cell;
  const std::vector<Tensor>& inputs;
};

// What some rank does at a call that is spread over all of them, and so all must do.
struct SpreadCall {
  bool compiles = false;
  bool has_new_parameters = false;
};

// Before a call that is spread, of which each rank knows a program or none; every rank calls it. Throws InvalidArgument
// on all ranks where these give inputs of other types, as a short batch is.
SpreadCall agree_on_call(const CellCall& call, const Program* known, const Program::Parameters& parameters) {
  std::string types;
  for (const auto& input : call.inputs) types += fmt::format("{}{}", types.empty() ? "" : ", ", input.type());
  const auto step = fmt::format("\"{}\"", nb::cast<std::string>(call.cell.type().attr("__name__")));
  // Addresses of parameters tell nothing of those of other ranks: where one has new ones all compare.
  const bool are_new = known == nullptr || known->are_new(parameters);
  std::array<int64_t, 2> flags = {known == nullptr ? 1 : 0, are_new ? 1 : 0};
  comm::Communicator& world = context().world();
  {
    const WithoutGil waiting;  // until the last rank has come
    session::agree_on_step(world, step, types, flags);
  }
  return {.compiles = flags[0] != 0, .has_new_parameters = flags[1] != 0};
}

// One call, traced.
struct Trace {
  ir::Graph graph;
  CallForm form;
  std::optional<Spread> spread;
};

// What calls that are traced each time were compiled into, by their graph and how it is spread.
class TracedPrograms {
 public:
  TracedPrograms() = default;
  TracedPrograms(const TracedPrograms&) = delete;
  TracedPrograms& operator=(const TracedPrograms&) = delete;

  // Compiles unless it has done so, and with a spread where any rank has not. With a spread every rank calls it, and
  // they agree on that unless they have agreed already that all compile the call anew.
  std::shared_ptr<Program> program_for(const CellCall& call, const Trace& traced, bool is_compiled_anew) {
    const auto& spread = traced.spread;
    const auto& parameters = traced.form.parameters;
    auto key = fmt::format("{}\n{}", spread ? spread->text : "", ir::print(traced.graph));
    auto program = programs_.find(key);
    SpreadCall does = {.compiles = program == nullptr || is_compiled_anew};
    if (spread && !is_compiled_anew) does = agree_on_call(call, program.get(), parameters);
    if (does.compiles) {
      program = std::make_shared<Program>(traced.graph, parameters, spread, &sessions_);
      programs_.add(std::move(key), program);
    } else if (does.has_new_parameters) {
      program->agree_on(parameters);
    }
    return program;
  }

 private:
  // A training step has few forms: full and short batches, micro-batches.
  static constexpr size_t kMaxPrograms = 16;
  Latest<Program> programs_{kMaxPrograms};
  ProgramSessions sessions_;
};

void find_values(nb::handle object, std::vector<ir::Value>& values) {
  if (nb::isinstance<ir::Value>(object)) {
    const auto value = nb::cast<ir::Value>(object);
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  } else if (nb::isinstance<nb::tuple>(object) || nb::isinstance<nb::list>(object)) {
    for (const nb::handle item : object) find_values(item, values);
  } else if (PyDict_CheckExact(object.ptr())) {
    for (const auto& [key, value] : nb::borrow<nb::dict>(object)) find_values(value, values);
  }
}

// A tuple of a class of its own that holds parameters.
bool is_parameter_tuple(nb::handle object) {
  return nb::isinstance<nb::tuple>(object) && nb::len(object) > 0 &&
         nb::isinstance<nn::Parameter>(nb::borrow<nb::tuple>(object)[0]);
}

// The cell's own and what else the trace has met, as far as the graph reads them.
Program::Parameters parameters_in(const ir::Graph& graph, const nn::Cell& cell) {
  Program::Parameters read;
  OwnParameters all = parameters_of(cell, false);
  for (const auto& parameter : read_by_trace()) all.push_back(parameter);
  for (const auto& parameter : all) {
    const auto name = parameter->full_name();
    if (graph.find_input(name) == nullptr) continue;
    if (const auto& known = read.emplace(name, parameter).first->second; known != parameter) {
      throw InvalidArgument("two parameters are named \"{}\": give them names, or make them attributes of cells", name);
    }
  }
  return read;
}

// How often what the object is compiled into has drawn; kept when it is compiled anew. An attribute of a class is what
// all its objects share.
std::shared_ptr<nn::Parameter> random_step_of(nb::handle self) {
  if (nb::hasattr(self, "_random_step")) {
    return nb::cast<std::shared_ptr<nn::Parameter>>(nb::object(self.attr("_random_step")));
  }
  const Type type{DType::kI64, {}};
  auto step = std::make_shared<nn::Parameter>(
      nn::Parameter{.name = nn::kRandomStep, .type = type, .requires_grad = false, .kind = ir::InputKind::kState});
  step->data = Tensor::zeros(type);
  nb::borrow<nb::dict>(self.attr("__dict__"))["_random_step"] = nb::cast(step);
  return step;
}

// In f32, but where cells ask for another dtype.
ir::Graph in_asked_dtypes(ir::Graph graph) {
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (graph.node(n).compute_dtype) return compiler::rewrite_precision(graph, {});
  }
  return graph;
}

std::optional<Spread> spread_of(nb::handle self) {
  const nb::dict own = nb::borrow<nb::dict>(self.attr("__dict__"));
  return own.contains("_spread") ? std::optional(nb::cast<Spread>(own["_spread"])) : std::nullopt;
}

// Calls f(tensor-like object) for each within tuples, lists and dicts, in order, and puts what it returns in its place.
template <typename F>
nb::object map_tensors(nb::handle object, const F& f) {
  if (is_tensor_like(object)) return f(object);
  if (nb::isinstance<nb::dict>(object)) {
    nb::dict made;
    for (const auto& [key, value] : nb::borrow<nb::dict>(object)) made[key] = map_tensors(value, f);
    return made;
  }
  const bool is_list = object.type().is(reinterpret_cast<PyObject*>(&PyList_Type));
  if (!is_list && !object.type().is(reinterpret_cast<PyObject*>(&PyTuple_Type)) && !is_parameter_tuple(object))
    return nb::borrow(object);
  nb::list items;
  for (const nb::handle item : object) items.append(map_tensors(item, f));
  return is_list ? nb::object(items) : nb::object(nb::tuple(items));
}

int64_t rows_of_all_ranks(int64_t rows, int ranks) {
  int64_t all = 0;
  if (!__builtin_mul_overflow(rows, int64_t{ranks}, &all)) return all;
  throw InvalidArgument("{} rows on each of {} ranks are more than an int64 counts", rows, ranks);
}

// Nothing where the spread is for training steps only, and this is none.
std::optional<Trace> trace_spread(nb::handle self, nn::Cell& cell, const nb::args& args, const nb::kwargs& kwargs,
                                  const std::vector<Tensor>& inputs, const std::optional<Spread>& spread) {
  const uint64_t before = differentiations();
  ir::Graph graph("forward");
  const TraceScope scope(graph);
  size_t next = 0;
  const auto symbol_of = [&](nb::handle) {
    Type type = inputs[next].type();
    if (spread && !spread->full_batch && type.shape.ndim() > 0) {
      type.shape[0] = rows_of_all_ranks(type.shape[0], context().size());
    }
    const auto value = graph.add_input(ir::InputKind::kInput, std::to_string(next), type);
    ++next;
    return nb::cast(value);
  };
  const nb::object symbols = map_tensors(args, symbol_of);
  const nb::object named = map_tensors(kwargs, symbol_of);
  CallForm form;
  form.result = trace_call(self, cell, nb::borrow<nb::args>(symbols), nb::borrow<nb::kwargs>(named));
  if (spread && spread->only_training && differentiations() == before) return std::nullopt;
  std::vector<ir::Value> values;
  find_values(form.result, values);
  for (size_t i = 0; i < values.size(); ++i) {
    graph.add_output(fmt::format("result{}", i), values[i]);
    form.outputs[values[i].id()] = i;
  }
  session::advance_random_step(graph);
  graph.finish_assignments();
  form.parameters = parameters_in(graph, cell);
  if (graph.find_input(nn::kRandomStep) != nullptr) form.parameters.emplace(nn::kRandomStep, random_step_of(self));
  return Trace{in_asked_dtypes(std::move(graph)), std::move(form), spread};
}

Trace trace(nb::handle self, nn::Cell& cell, const nb::args& args, const nb::kwargs& kwargs,
            const std::vector<Tensor>& inputs) {
  static_cast<void>(take_holds_for_one_call());  // of a trace that has failed
  auto spread = trace_spread(self, cell, args, kwargs, inputs, spread_of(self));
  if (spread) return std::move(*spread);
  if (take_holds_for_one_call()) {
    throw nb::type_error(
        "a function that is called on ranks changes a number of Python's that it looks at: let a parameter count");
  }
  return *trace_spread(self, cell, args, kwargs, inputs, std::nullopt);
}

// The sessions of what the cell is compiled into. They outlive a change of its attributes, of which other ranks may
// know nothing.
ProgramSessions& sessions_of(nb::handle self) {
  nb::dict own = nb::borrow<nb::dict>(self.attr("__dict__"));
  if (!own.contains("_sessions"))
    own["_sessions"] = nb::cast(std::make_unique<ProgramSessions>().release(), nb::rv_policy::take_ownership);
  return nb::cast<ProgramSessions&>(own["_sessions"]);
}

std::shared_ptr<CompiledCall> compile_call(Trace traced, nb::handle self) {
  // Cells without parameters are often made anew for each call.
  auto program =
      traced.form.parameters.empty() && !traced.spread
          ? program_of(traced.graph)
          : std::make_shared<Program>(traced.graph, traced.form.parameters, traced.spread, &sessions_of(self));
  return std::make_shared<CompiledCall>(std::move(traced.form), std::move(program));
}

// Whether any cell has flags, attributes that are part of the key of what is compiled.
bool flags_are_used = false;

void append_flags(nb::handle self, std::string& key) {
  const nb::dict own = nb::borrow<nb::dict>(self.attr("__dict__"));
  if (own.contains("_flags")) key += nb::cast<std::string>(nb::repr(own["_flags"]));
  for (const auto& [name, child] : nb::cast<nn::Cell&>(self).children()) {
    if (const nb::object object = nb::find(*child); object.is_valid()) append_flags(object, key);
  }
}

nb::object new_compiled_calls() {
  return nb::cast(std::make_unique<CompiledCalls>().release(), nb::rv_policy::take_ownership);
}

// The calls compiled so far, and in the signature what else tells them apart. A phase that a script has named stands
// for what it was compiled as at first; else all is compiled anew after an attribute has changed.
nb::object compiled_calls(nb::handle self, std::string& signature) {
  nb::dict own = nb::borrow<nb::dict>(self.attr("__dict__"));
  if (own.contains("_phase") && nb::len(nb::handle(own["_phase"])) > 0) {
    if (!own.contains("_phases")) own["_phases"] = nb::dict();
    nb::dict phases = nb::borrow<nb::dict>(own["_phases"]);
    if (!phases.contains(own["_phase"])) phases[own["_phase"]] = new_compiled_calls();
    return phases[own["_phase"]];
  }
  if (!own.contains("_calls") || nb::cast<uint64_t>(own["_changes"]) != changes) {
    own["_calls"] = new_compiled_calls();
    own["_changes"] = changes;
  }
  if (flags_are_used) append_flags(self, signature);
  return own["_calls"];
}

// Tells the modes of the cell apart, and of what is below it where that has been told another one.
std::string modes_of(const nn::Cell& cell) {
  std::string modes = cell.settings().training ? "training" : "";
  bool is_mixed = false;
  const std::function<void(const nn::Cell&)> append = [&](const nn::Cell& above) {
    for (const auto& [name, child] : above.children()) {
      is_mixed = is_mixed || (child->has_settings() && child->settings().training != cell.settings().training);
      modes += child->settings().training ? 't' : 'f';
      append(*child);
    }
  };
  const size_t own = modes.size();
  append(cell);
  if (!is_mixed) modes.resize(own);
  return modes;
}

// Whether the object's repr() says all that construct() can see of it: no other object has it, and it never changes.
bool is_constant(nb::handle object) {
  PyObject* const o = object.ptr();
  if (object.is_none() || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyComplex_CheckExact(o) ||
      PyUnicode_CheckExact(o) || PyBytes_CheckExact(o) || o == Py_Ellipsis || nb::isinstance<DType>(object))
    return true;
  if (PySlice_Check(o)) {
    return is_constant(object.attr("start")) && is_constant(object.attr("stop")) && is_constant(object.attr("step"));
  }
  if (PyDict_CheckExact(o)) {
    for (const auto& [key, value] : nb::borrow<nb::dict>(object)) {
      if (!is_constant(key) || !is_constant(value)) return false;
    }
    return true;
  }
  if (!PyTuple_CheckExact(o) && !PyList_CheckExact(o)) return false;
  for (const nb::handle item : object) {
    if (!is_constant(item)) return false;
  }
  return true;
}

// What calls of the cell are compiled into that are traced each time; nothing where it is traced once for each
// signature.
nb::object traced_programs(nb::handle self, bool is_signed) {
  nb::dict own = nb::borrow<nb::dict>(self.attr("__dict__"));
  if (own.contains("_programs")) return own["_programs"];
  if (is_signed) return nb::none();
  if (!own.contains("_unsigned"))
    own["_unsigned"] = nb::cast(std::make_unique<TracedPrograms>().release(), nb::rv_policy::take_ownership);
  return own["_unsigned"];
}

// Compiled unless the programs have its graph, or all ranks compile it anew.
nb::object run_traced(nb::handle programs, const Trace& traced, const CellCall& call, bool is_compiled_anew = false) {
  const auto program = nb::cast<TracedPrograms&>(programs).program_for(call, traced, is_compiled_anew);
  return traced.form.run(*program, call.inputs);
}

// Whether all ranks compile a call that is spread, though this one knows what it was compiled into.
bool is_compiled_anew(const CellCall& made, const CompiledCall& known) {
  if (!known.program->is_spread()) return false;
  const SpreadCall does = agree_on_call(made, known.program.get(), known.form.parameters);
  if (does.has_new_parameters && !does.compiles) known.program->agree_on(known.form.parameters);
  return does.compiles;
}

// Inside construct() a call is traced; outside it runs at once, compiled once for each signature of its inputs, or,
// where these have no signature or the cell has programs for that, for each graph that its trace gives.
nb::object call_cell(nb::handle self, const nb::args& args, const nb::kwargs& kwargs) {
  auto& cell = nb::cast<nn::Cell&>(self);
  if (current_graph() != nullptr) return trace_call(self, cell, args, kwargs);
  std::vector<Tensor> inputs;
  std::string signature = modes_of(cell);
  // Types take the place of tensors.
  const auto note = [&](nb::handle object) -> nb::object {
    inputs.push_back(to_tensor(object));
    return nb::str(fmt::format("{}", inputs.back().type()).c_str());
  };
  const nb::object by_place = map_tensors(args, note), by_name = map_tensors(kwargs, note);
  const bool is_signed = is_constant(by_place) && is_constant(by_name);
  const CellCall made{self, inputs};
  if (const nb::object programs = traced_programs(self, is_signed); !programs.is_none()) {
    return run_traced(programs, trace(self, cell, args, kwargs, inputs), made);
  }
  signature +=
      fmt::format(" {} {}", nb::cast<std::string>(nb::repr(by_place)), nb::cast<std::string>(nb::repr(by_name)));
  const nb::object compiled = compiled_calls(self, signature);  // of this thread: another one may compile the cell anew
  auto& calls = nb::cast<CompiledCalls&>(compiled).latest();
  auto call = calls.find(signature);
  const bool is_anew = call != nullptr && is_compiled_anew(made, *call);
  if (call == nullptr || is_anew) {
    Trace traced = trace(self, cell, args, kwargs, inputs);
    if (take_holds_for_one_call()) {
      return run_traced(traced_programs(self, /*is_signed=*/false), traced, made, is_anew);
    }
    if (traced.spread && !is_anew) agree_on_call(made, nullptr, {});
    call = compile_call(std::move(traced), self);
    calls.add(signature, call);
  }
  return call->form.run(*call->program, inputs);
}

// The name of a graph's input among the values, "x" for a data set's column "x"; "" for what the network has computed.
std::string input_name(nb::handle value) {
  if (!nb::isinstance<ir::Value>(value)) return "";
  const auto input = nb::cast<ir::Value>(value);
  for (const auto& known : input.graph().inputs()) {
    if (known.value == input.id() && known.kind == ir::InputKind::kInput) return known.name;
  }
  return "";
}

// The values in what construct() has returned, in order; what is a tensor already becomes a value. Throws TypeError for
// what is neither.
void append_results(nb::handle object, Operation& operation, std::vector<ir::Value>& results) {
  if (object.is_none()) return;
  if (nb::isinstance<ir::Value>(object) || is_tensor_like(object)) {
    results.push_back(operation.value(object));
  } else if (nb::isinstance<nb::dict>(object)) {
    for (const auto& [key, value] : nb::borrow<nb::dict>(object)) append_results(value, operation, results);
  } else if (nb::isinstance<nb::tuple>(object) || nb::isinstance<nb::list>(object)) {
    for (const nb::handle item : object) append_results(item, operation, results);
  } else {
    throw nb::type_error(
        fmt::format("construct() returns {}, which is no tensor", nb::cast<std::string>(nb::str(object.type())))
            .c_str());
  }
}

// A graph as plain Python, for what writes it in another form. Values are numbers.
nb::dict describe(const ir::Graph& graph, const Program::Parameters& parameters) {
  nb::list types, inputs, nodes, outputs;
  for (ir::ValueId v = 0; v < graph.num_values(); ++v) {
    types.append(nb::make_tuple(graph.type(v).dtype, nb::tuple(nb::cast(graph.type(v).shape.to_vector()))));
  }
  for (const auto& input : graph.inputs()) {
    inputs.append(nb::make_tuple(ir::to_string(input.kind), input.name, input.value));
  }
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    const ir::Node& node = graph.node(n);
    nb::dict attributes;
    for (const auto& [name, value] : node.attributes) attributes[name.c_str()] = nb::cast(value);
    nodes.append(nb::make_tuple(node.op, attributes, node.inputs, node.outputs, node.source));
  }
  for (const auto& output : graph.outputs()) outputs.append(output.value);
  nb::dict values;
  for (const auto& [name, parameter] : parameters) values[name.c_str()] = nb::cast(whole_value(*parameter));
  nb::dict described;
  described["types"] = types;
  described["inputs"] = inputs;
  described["nodes"] = nodes;
  described["outputs"] = outputs;
  described["parameters"] = values;
  return described;
}

// What a call of the cell computes, simplified, in the cell's present mode.
nb::dict describe_call(nb::handle self, const nb::args& args) {
  auto& cell = nb::cast<nn::Cell&>(self);
  if (current_graph() != nullptr) throw InvalidArgument("inside construct() a cell's graph is not complete");
  ir::Graph graph("prediction");
  const TraceScope scope(graph);
  int num_inputs = 0;
  const nb::object symbols = map_tensors(args, [&](nb::handle object) {
    return nb::cast(graph.add_input(ir::InputKind::kInput, fmt::format("{}", num_inputs++), to_tensor(object).type()));
  });
  const nb::object result = trace_call(self, cell, nb::borrow<nb::args>(symbols), nb::kwargs());
  std::vector<ir::Value> results;
  Operation operation;
  append_results(result, operation, results);
  for (size_t i = 0; i < results.size(); ++i) graph.add_output(fmt::format("result{}", i), results[i]);
  nb::list assigned;
  for (const auto& [name, value] : graph.assignments()) assigned.append(name);
  const auto parameters = parameters_in(graph, cell);
  nb::dict described = describe(compiler::simplify(in_asked_dtypes(std::move(graph))), parameters);
  described["assigned"] = assigned;
  return described;
}

}  // namespace

CallerScope::CallerScope(nb::handle cell) { callers.push_back(cell); }
CallerScope::~CallerScope() { callers.pop_back(); }

ModelTraceScope::ModelTraceScope() : outer_(model_traces) { model_traces = model_traces || current_graph() == nullptr; }
ModelTraceScope::~ModelTraceScope() { model_traces = outer_; }
bool is_traced_by_model() { return model_traces; }

std::map<std::string, std::string>& unowned_cells() {
  static thread_local std::map<std::string, std::string> cells;
  return cells;
}

nb::object construct_with(nb::handle self, const nb::tuple& arguments, const nb::kwargs& keywords) {
  const nb::object construct = nb::module_::import_("tessera._branches").attr("construct_of")(self);
  try {
    return construct(*arguments, **keywords);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    nb::list names;
    for (const nb::handle argument : arguments) names.append(input_name(argument));
    const nb::object text =
        nb::module_::import_("tessera._keywords")
            .attr("construct_fault")(self, nb::cast<nn::Cell&>(self).path(), arguments, keywords, names);
    if (text.is_none()) throw;
    throw nb::type_error(nb::cast<std::string>(text).c_str());
  }
}

bool is_tensor_like(nb::handle object) {
  return nb::isinstance<Tensor>(object) || nb::isinstance<nn::Parameter>(object) ||
         (nb::hasattr(object, "__array__") && nb::hasattr(object, "dtype"));
}

bool is_called_by_others(const nn::Cell& cell) {
  const nb::object object = nb::find(cell);
  if (object.is_valid() && nb::borrow<nb::dict>(object.attr("__dict__")).contains(kCalledByOthers)) return true;
  return std::ranges::any_of(cell.children(), [](const auto& child) { return is_called_by_others(*child.second); });
}

void note_change() { ++changes; }
uint64_t num_changes() { return changes; }

void bind_calls(nb::module_& m, nb::class_<nn::Cell, PythonCell>& cell) {
  nb::class_<CompiledCalls>(m, "_CompiledCalls");
  nb::class_<ProgramSessions>(m, "_ProgramSessions");
  nb::class_<TracedPrograms>(m, "TracedPrograms",
                             R"(What calls of cells that are traced at each call were compiled into, by their graphs.

A cell in whose __dict__ one is as "_programs" is traced whenever it is called, because what its construct() looks at outside
of it may have changed, and compiled where that gives a new graph.)")
      .def(nb::init<>());
  helped(m).def(
      "num_compiled", &num_compiled,
      "How many graphs were compiled so far for calls of cells, functions and operators; a model's are not counted.");
  nb::class_<Spread>(m, "_Spread");
  helped(m).def(
      "_operator_names",
      [] {
        nb::list names;
        for (const auto& [name, def] : ops::OpRegistry::instance().all()) names.append(name);
        return names;
      },
      "All operators that a graph may hold.");
  helped(m).def(
      "_communicates", [](const std::string& op) { return ops::OpRegistry::instance().get(op).collective != nullptr; },
      "op"_a, "Whether an operator communicates between ranks.");
  helped(m).def(
      "retrace", &note_change,
      "Cells are traced anew when they are called next: what construct() looks at outside of them has changed.");
  cell.def("__call__", &call_cell);
  cell.def(
      "_describe_call", &describe_call,
      "What a call with these inputs computes, as exporters read it: types, inputs, nodes and outputs, values being "
      "numbers; the parameters' whole values by name; and the names of those that are assigned to.");
  cell.def(
      "set_flags",
      [](nb::object self, const nb::kwargs& flags) {
        nb::dict own = nb::borrow<nb::dict>(self.attr("__dict__"));
        if (!own.contains("_flags")) own["_flags"] = nb::dict();
        own.attr("update")(flags);
        own["_flags"].attr("update")(flags);
        flags_are_used = true;
        return self;
      },
      "Attributes that construct() looks at. For each set of flags a cell is compiled once.");
  cell.def(
      "spread",
      [](nb::object self, bool strategies, bool propagation, bool full_batch, const std::optional<nb::dict>& search,
         bool only_training, const mesh::Strategy& dataset_strategy) {
        Spread spread{.strategies = strategies,
                      .propagation = propagation,
                      .full_batch = full_batch || !dataset_strategy.empty(),
                      .inputs = full_batch ? mesh::Strategy() : dataset_strategy,
                      .only_training = only_training};
        if (search) spread.search = search_options(*search);
        spread.text =
            fmt::format("{} {} {} {} {} {}", strategies, propagation, spread.full_batch, mesh::to_string(spread.inputs),
                        only_training, search ? nb::cast<std::string>(nb::repr(*search)) : "");
        nb::dict own = nb::borrow<nb::dict>(self.attr("__dict__"));
        own["_spread"] = nb::cast(std::move(spread));
        own.attr("pop")("_calls", nb::none());
        return self;
      },
      "strategies"_a = false, "propagation"_a = false, "full_batch"_a = false, "search"_a = nb::none(),
      "only_training"_a = false, "dataset_strategy"_a = mesh::Strategy(),
      R"(Calls of this cell are split over the ranks of the job, which all make them; results are whole on every rank.

Each rank gives its rows of the inputs, or with full_batch all of them. strategies: operators are split as they say; search:
a search decides, strategies hold, with the keys of Model's search; else all follows the batch. The result is that of one
device on the whole batch. dataset_strategy: each rank gives all rows, which are split so, a list of counts for each input
that has dims. only_training: calls that ask for no gradients are each rank's own, as without spread(). Where ranks give inputs
of other types, as a short batch is, InvalidArgument says on each of them which ranks give what, and nothing is computed.)");
}

}  // namespace tessera::python
