// Callbacks of a training, Tessera's and those that scripts write.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "python/src/bind.h"

namespace tessera::python {

void bind_callbacks(nb::module_& m);
// Those that write down how a training goes: a part of bind_callbacks().
void bind_logs(nb::module_& m);

// A line goes where Python's print() goes, in one write: those of several ranks do not mix.
void print_in_python(const std::string& line);

// Each with its own word for what it is not: one whose __init__() has not called Callback's has nothing in C++ yet.
// Throws Python's TypeError.
std::vector<std::shared_ptr<train::Callback>> to_callbacks(nb::handle sequence);

}  // namespace tessera::python
