#include "python/src/helped_module.h"

#include <nanobind/stl/string.h>

namespace tessera::python {

std::string with_help_of(nb::handle module, const char* name, const char* doc) {
  const auto with_help = nb::module_::import_("tessera._function_help").attr("with_help");
  return nb::cast<std::string>(with_help(module.attr("__name__"), name, doc));
}

}  // namespace tessera::python
