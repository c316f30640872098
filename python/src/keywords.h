// What every call of C++ from Python goes through, and what is said of an attribute that is called like an option.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace tessera::python {

// Functions and properties of the module or class, and of all within: a thread that calls one is counted (threads.h),
// and gets SystemExit where another thread ends the process; errors for keywords that a function does not have name the
// keyword and the nearest that it has; a cell remembers what it was made of, as `_made_of`. Call it once all is bound.
void guard_calls(nanobind::handle scope);

// Throws AttributeError where the object is of a class that comes with Tessera and the name is one of its constructor's
// options, which it has read: the attribute would change nothing, and read back as set.
void refuse_option(nanobind::handle self, const std::string& name);
// As a class's __setattr__: any other attribute becomes part of the object.
void set_unless_option(nanobind::handle self, nanobind::handle name, nanobind::handle value);

}  // namespace tessera::python
