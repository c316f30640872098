// Checkpoints as files of named tensors.
#include <nanobind/stl/string.h>

#include "python/src/bind.h"

namespace tessera::python {
namespace {

std::string save(const std::string& path, const nb::dict& values) {
  std::vector<checkpoint::Entry> entries;
  for (const auto& [key, value] : values) {
    const auto name = nb::cast<std::string>(key);
    if (nb::isinstance<nb::str>(value)) {
      entries.emplace_back(name, nb::cast<std::string>(value));
    } else {
      entries.emplace_back(name, to_tensor(value));
    }
  }
  const nb::gil_scoped_release release;
  return checkpoint::save(FileSystem::local(), {.path = path}, entries, {});
}

nb::dict load(const std::string& path) {
  const auto loaded = [&] {
    const nb::gil_scoped_release release;
    return checkpoint::load(FileSystem::local(), path);
  }();
  nb::dict values;
  for (const auto& entry : loaded.entries()) {
    values[entry.name.c_str()] = entry.is_text ? nb::cast(entry.read_text()) : nb::cast(entry.read());
  }
  return values;
}

}  // namespace

void bind_checkpoint(nb::module_& parent) {
  auto m = parent.def_submodule("checkpoint", "Checkpoints as files of named tensors, which are whole or absent.");
  m.def("save", &save, "path"_a, "values"_a,
        "Writes tensors (and texts) by name, with a manifest; \".ckpt\" is appended where it is missing. Returns the "
        "path.");
  m.def("load", &load, "path"_a,
        "The tensors (and texts) of a file by name. Raises InvalidArgument when it is damaged, IoError when it cannot "
        "be read.");
}

}  // namespace tessera::python
