// Callbacks of a training, Tessera's and those that scripts write.
#pragma once

#include <memory>
#include <vector>

#include "python/src/bind.h"

namespace tessera::python {

void bind_callbacks(nb::module_& m);

// Each with its own word for what it is not: one whose __init__() has not called Callback's has nothing in C++ yet.
// Throws Python's TypeError.
std::vector<std::shared_ptr<train::Callback>> to_callbacks(nb::handle sequence);

}  // namespace tessera::python
