// A module whose functions' help is that of their bindings and, behind it, what python/tessera/_function_help.py says
// of shapes and errors, with an example: nanobind's functions take no other text once they are made.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <type_traits>
#include <utility>

namespace tessera::python {

namespace nb = nanobind;

// `doc` with what that file says of the function of this name in the module; `doc` where it says nothing.
std::string with_help_of(nb::handle module, const char* name, const char* doc);

class HelpedModule : public nb::module_ {
 public:
  explicit HelpedModule(const nb::module_& module) : nb::module_(module) {}

  template <typename F, typename... Extra>
  HelpedModule& def(const char* name, F&& f, const Extra&... extra) {
    // Of several texts the last one holds.
    nb::module_::def(name, std::forward<F>(f), extra..., with_help_of(*this, name, doc_in(extra...)).c_str());
    return *this;
  }

 private:
  static const char* doc_in() { return ""; }
  template <typename First, typename... Rest>
  static const char* doc_in(const First& first, const Rest&... rest) {
    if constexpr (std::is_convertible_v<const First&, const char*>) {
      return first;
    } else {
      return doc_in(rest...);
    }
  }
};

// The module, to define functions in: helped(m).def(...).
inline HelpedModule helped(const nb::module_& module) { return HelpedModule(module); }

}  // namespace tessera::python
