// The door that every call of C++ from Python goes through. Behind a call stands what is said of a keyword argument
// that a function does not have, its name and the nearest that it has, and of an argument of another type, in place of
// all signatures; and beside it what is said of an attribute that is called like an option.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "python/src/bind.h"
#include "python/src/keywords.h"
#include "python/src/threads.h"

namespace tessera::python {
namespace {

// The ways in which nanobind calls functions: each function has the address of one. Guarded by the GIL.
constexpr size_t kMaxWays = 16;
std::array<vectorcallfunc, kMaxWays> ways;
size_t num_ways = 0;

// The arguments of a call as Python passes them: those by position, then the values of the keywords.
struct Arguments {
  PyObject* const* values;
  size_t num_args_and_flags;  // Python's flag and those of nanobind stand in the highest bits
  PyObject* keywords;

  size_t num_args() const { return num_args_and_flags & 0xffff'ffff; }

  nb::list list(size_t begin, size_t end) const {
    nb::list made;
    for (size_t i = begin; i < end; ++i) made.append(nb::handle(values[i]));
    return made;
  }
};

// The result of a call, or its error with what tessera._keywords says of the arguments.
PyObject* explained(PyObject* function, const Arguments& given, PyObject* result) {
  if (result != nullptr || PyErr_ExceptionMatches(PyExc_TypeError) == 0) return result;
  nb::python_error error;
  try {
    const auto explain = nb::module_::import_("tessera._keywords").attr("explain");
    const nb::object keywords = given.keywords == nullptr ? nb::object(nb::make_tuple()) : nb::borrow(given.keywords);
    const nb::object text =
        explain(nb::handle(function), given.list(0, given.num_args()), keywords,
                given.list(given.num_args(), given.num_args() + nb::len(keywords)), nb::str(error.value()));
    if (text.is_none()) {
      error.restore();
    } else {
      PyErr_SetObject(PyExc_TypeError, text.ptr());
    }
  } catch (nb::python_error& other) {
    other.restore();
  }
  return nullptr;
}

template <size_t I>
PyObject* call(PyObject* function, PyObject* const* args, size_t num_args, PyObject* keywords) {
  const Visit visit;
  if (!visit.is_welcome()) {
    PyErr_SetNone(PyExc_SystemExit);
    return nullptr;
  }
  return explained(function, {args, num_args, keywords}, ways[I](function, args, num_args, keywords));
}

// Of a cell that was made: by what, so that it can be made once more (tessera/_copies.py).
void note_making(PyObject* function, const Arguments& given) {
  const nb::handle cell = given.values[0];
  const nb::object keywords = given.keywords == nullptr ? nb::object(nb::make_tuple()) : nb::borrow(given.keywords);
  const size_t num_args = given.num_args();
  nb::dict named;
  for (size_t i = 0; i < nb::len(keywords); ++i) {
    const nb::object name = keywords[i];
    named[name] = nb::handle(given.values[num_args + i]);
  }
  nb::borrow<nb::dict>(cell.attr("__dict__"))["_made_of"] =
      nb::make_tuple(nb::handle(function), nb::tuple(given.list(1, num_args)), named);
}

template <size_t I>
PyObject* make_cell(PyObject* function, PyObject* const* args, size_t num_args, PyObject* keywords) {
  const auto result = nb::steal(call<I>(function, args, num_args, keywords));
  if (!result.is_valid()) return nullptr;
  try {
    note_making(function, {args, num_args, keywords});
  } catch (nb::python_error& error) {
    error.restore();
    return nullptr;
  }
  return nb::object(result).release().ptr();
}

using Wrappers = std::array<vectorcallfunc, kMaxWays>;
template <size_t... I>
Wrappers calls(std::index_sequence<I...>) {
  return {&call<I>...};
}
template <size_t... I>
Wrappers makers_of_cells(std::index_sequence<I...>) {
  return {&make_cell<I>...};
}

void guard_function(nb::handle function, bool makes_cells = false) {
  static const auto all_calls = calls(std::make_index_sequence<kMaxWays>());
  static const auto all_makers = makers_of_cells(std::make_index_sequence<kMaxWays>());
  const Wrappers& wrappers = makes_cells ? all_makers : all_calls;
  const Py_ssize_t offset = Py_TYPE(function.ptr())->tp_vectorcall_offset;
  auto& way = *reinterpret_cast<vectorcallfunc*>(reinterpret_cast<char*>(function.ptr()) + offset);
  if (std::ranges::find(wrappers, way) != wrappers.end()) return;
  const auto known = std::find(ways.begin(), ways.begin() + num_ways, way);
  const auto i = static_cast<size_t>(known - ways.begin());
  if (i == num_ways) {
    check(num_ways < kMaxWays, "nanobind has more ways to call a function than expected");
    ways[num_ways++] = way;
  }
  way = wrappers[i];
}

}  // namespace

void refuse_option(nb::handle self, const std::string& name) {
  const nb::object text = nb::module_::import_("tessera._keywords").attr("option_is_read")(self.type(), name);
  if (!text.is_none()) throw nb::attribute_error(nb::borrow<nb::str>(text).c_str());
}

void set_unless_option(nb::handle self, nb::handle name, nb::handle value) {
  if (nb::inst_ready(self)) refuse_option(self, nb::borrow<nb::str>(name).c_str());
  if (PyObject_GenericSetAttr(self.ptr(), name.ptr(), value.ptr()) != 0) throw nb::python_error();
}

void guard_calls(nb::handle scope) {
  const bool is_cell = PyType_Check(scope.ptr()) && PyObject_IsSubclass(scope.ptr(), nb::type<nn::Cell>().ptr()) == 1;
  for (const nb::handle entry : scope.attr("__dict__").attr("items")()) {
    const nb::object name = entry[0], item = entry[1];
    const std::string_view kind = Py_TYPE(item.ptr())->tp_name;
    if (kind.ends_with("nb_func") || kind.ends_with("nb_method")) {
      guard_function(item, is_cell && nb::cast<std::string>(name) == "__init__");
    } else if (PyObject_TypeCheck(item.ptr(), &PyProperty_Type)) {
      for (const char* way : {"fget", "fset"}) {
        const nb::object function = item.attr(way);
        if (!function.is_none()) guard_function(function);
      }
    } else if (nb::isinstance<nb::module_>(item) || (PyType_Check(item.ptr()) && nb::type_check(item))) {
      guard_calls(item);
    }
  }
}

}  // namespace tessera::python
