// Cells written in Python.
#pragma once

#include <nanobind/trampoline.h>

#include "python/src/tracing.h"

namespace tessera::python {

// The C++ side of a cell whose construct() is Python's.
class PythonCell : public nn::Cell {
 public:
  NB_TRAMPOLINE(nn::Cell, 1);

  using nn::Cell::adopt;
  using nn::Cell::construct;
  using nn::Cell::enter;
  using nn::Cell::release;
  // Takes the GIL. Throws InvalidArgument when the result is no single value.
  nn::Value construct(std::span<const nn::Value> inputs) override;
};

// An initializer as Python passes it: one that the functions of tessera.initializers make, its name, or a number.
nn::Init to_init(nb::handle object);

}  // namespace tessera::python
