// What is said of a keyword argument that a function does not have, its name and the nearest that it has, of an
// argument of another type, in place of all signatures, and of an attribute that is called like an option.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "python/src/bind.h"
#include "python/src/keywords.h"

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
  return explained(function, {args, num_args, keywords}, ways[I](function, args, num_args, keywords));
}

template <size_t... I>
std::array<vectorcallfunc, kMaxWays> calls(std::index_sequence<I...>) {
  return {&call<I>...};
}

void explain_calls_of(nb::handle function) {
  static const auto wrappers = calls(std::make_index_sequence<kMaxWays>());
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

void explain_keywords(nb::handle scope) {
  for (const nb::handle item : scope.attr("__dict__").attr("values")()) {
    const std::string_view kind = Py_TYPE(item.ptr())->tp_name;
    if (kind.ends_with("nb_func") || kind.ends_with("nb_method")) {
      explain_calls_of(item);
    } else if (nb::isinstance<nb::module_>(item) || (PyType_Check(item.ptr()) && nb::type_check(item))) {
      explain_keywords(item);
    }
  }
}

}  // namespace tessera::python
