// What is said of a keyword argument that a function does not have, and of an attribute that is called like one.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace tessera::python {

// Functions of the module or class, and of all within: their errors for keywords that they do not have name the keyword
// and the nearest that they have. Call it once all is bound.
void explain_keywords(nanobind::handle scope);

// Throws AttributeError where the object is of a class that comes with Tessera and the name is one of its constructor's
// options, which it has read: the attribute would change nothing, and read back as set.
void refuse_option(nanobind::handle self, const std::string& name);
// As a class's __setattr__: any other attribute becomes part of the object.
void set_unless_option(nanobind::handle self, nanobind::handle name, nanobind::handle value);

}  // namespace tessera::python
