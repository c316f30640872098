// Cells as Python sees them, and those that are written in it.
#pragma once

#include <nanobind/trampoline.h>

#include "python/src/tracing.h"

namespace tessera::python {

using OwnParameters = std::vector<std::shared_ptr<nn::Parameter>>;

// The C++ side of a cell whose construct() is Python's.
class PythonCell : public nn::Cell {
 public:
  NB_TRAMPOLINE(nn::Cell, 1);

  using nn::Cell::adopt;
  using nn::Cell::construct;
  using nn::Cell::enter;
  using nn::Cell::lend_settings;
  // Takes what a sequence of parameters holds, each under its own name.
  void hold_all(const std::string& attribute, const OwnParameters& parameters);
  // Whether a parameter of that name is here by a sequence.
  bool holds(const std::string& name) const;
  // Gives up what the attribute has brought.
  void release(const std::string& attribute);
  // Whether it has been part of a trace.
  bool was_traced() const { return was_traced_; }
  void note_traced() { was_traced_ = true; }
  // Takes the GIL. Throws InvalidArgument when the result is no single value.
  nn::Value construct(std::span<const nn::Value> inputs) override;

 private:
  std::map<std::string, std::vector<std::string>> held_;  // names by attribute
  bool was_traced_ = false;
};

// Those here and below, each once.
OwnParameters parameters_of(const nn::Cell& cell, bool trainable);

// The arguments of a call, with the values of parameters in place of these where the cell has a bprop().
nb::tuple differentiable_arguments(nb::handle self, const nb::tuple& arguments);
// What construct() has made of the arguments; where the cell has a bprop(*arguments, out, dout), the same values with
// the gradients that it gives.
nb::object with_own_gradient(nb::handle self, const nb::tuple& arguments, nb::object result);
// What construct(), with its branches on values traced, see tessera/_branches.py, returns. Throws TypeError naming the
// cell, what construct() takes and what it is given where these do not fit.
nb::object construct_with(nb::handle self, const nb::tuple& arguments, const nb::kwargs& keywords);
// Inside construct(): the parameter's new value in every run of the graph.
void assign_traced(const std::shared_ptr<nn::Parameter>& parameter, nb::handle value);
// A tensor, a parameter, or an array of another library.
bool is_tensor_like(nb::handle object);
// An attribute of a cell has changed: what was compiled before may be traced differently now.
void note_change();
// How often that was so.
uint64_t num_changes();

void bind_initializers(nb::module_& m);
void bind_parameter(nb::module_& m);
void bind_calls(nb::module_& m, nb::class_<nn::Cell, PythonCell>& cell);

// An initializer as Python passes it: one that the functions of tessera.initializers make, its name, or a number.
nn::Init to_init(nb::handle object);
// One of the first two.
bool is_initializer(nb::handle object);

}  // namespace tessera::python
