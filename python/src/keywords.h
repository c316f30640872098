// What is said of a keyword argument that a function does not have.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

// Functions of the module or class, and of all within: their errors for keywords that they do not have name the keyword
// and the nearest that they have. Call it once all is bound.
void explain_keywords(nanobind::handle scope);

}  // namespace tessera::python
