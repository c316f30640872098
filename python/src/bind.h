// What the parts of the module _tessera share: each binds one part of tessera/tessera.h.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "python/src/tracing.h"

namespace tessera::python {

using namespace nanobind::literals;  // NOLINT: "axis"_a

// A path as Python passes it: str, bytes or os.PathLike. Bytes that are no UTF-8 stay what they are (PEP 383).
struct Path {
  std::string bytes;
};
std::vector<Path> to_paths(const std::vector<std::string>& paths);

// A seed as Python passes it: any int. One that is none says so where it is used.
class Seed {
 public:
  Seed() = default;
  explicit Seed(uint64_t value) : value_(value) {}
  // Takes Python's int; false where it is none.
  bool take(nb::handle source) noexcept;
  // Throws InvalidArgument for an int that is not from 0 to 2**64 - 1.
  operator uint64_t() const;  // NOLINT(google-explicit-constructor)

 private:
  uint64_t value_ = 0;
  std::string refused_;  // as Python writes it
};

// set_seed()'s where none is given.
inline uint64_t or_global(const std::optional<Seed>& seed) { return seed ? uint64_t{*seed} : global_seed(); }

void bind_errors(nb::module_& m);
void bind_tensor(nb::module_& m);
void bind_operators(nb::module_& m);
void bind_sharded_call(nb::module_& ops_module);
void bind_cells(nb::module_& m);
void bind_layers(nb::module_& m);
void bind_recurrent(nb::module_& m);
void bind_transformer(nb::module_& m);
void bind_optimizers(nb::module_& m);
void bind_tuning(nb::module_& m);
void bind_gradients(nb::module_& m);
void bind_random(nb::module_& m);
void bind_dlpack(nb::module_& m);  // after bind_tensor and bind_cells
void bind_data(nb::module_& m);
void bind_text(nb::module_& data_module);
void bind_checkpoint(nb::module_& m);
void bind_conversion(nb::module_& checkpoint);
void bind_cluster(nb::module_& m);
void bind_train(nb::module_& m);

// Arithmetic, comparison, indexing, shape and dtype: what tensors, parameters and values have in common.
void bind_operators_of(nb::handle cls);

// Tensors and texts by name, to be saved. Throws InvalidArgument for others.
std::vector<checkpoint::Entry> to_entries(const nb::dict& values);

// None: no encryption.
checkpoint::Encryption to_encryption(const std::optional<nb::bytes>& key, const std::string& mode);

// What the script has set as the prefix of an optimizer's states; "" without one.
std::string state_prefix_of(nb::handle optimizer);

// What the keys of Model's `search` say. Throws InvalidArgument listing them for an unknown one.
train::AutomaticPlanOptions search_options(const nb::dict& given);

}  // namespace tessera::python

template <>
struct nanobind::detail::type_caster<tessera::python::Path> {
  NB_TYPE_CASTER(tessera::python::Path, const_name("str | bytes | os.PathLike"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    PyObject* encoded = nullptr;
    if (PyUnicode_FSConverter(source.ptr(), &encoded) == 0) {
      PyErr_Clear();
      return false;
    }
    value.bytes.assign(PyBytes_AS_STRING(encoded), static_cast<size_t>(PyBytes_GET_SIZE(encoded)));
    Py_DECREF(encoded);
    return true;
  }
  static handle from_cpp(const tessera::python::Path& path, rv_policy, cleanup_list*) noexcept {
    return PyUnicode_DecodeFSDefaultAndSize(path.bytes.data(), static_cast<Py_ssize_t>(path.bytes.size()));
  }
};

template <>
struct nanobind::detail::type_caster<tessera::python::Seed> {
  NB_TYPE_CASTER(tessera::python::Seed, const_name("int"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept { return value.take(source); }
  static handle from_cpp(const tessera::python::Seed& seed, rv_policy, cleanup_list*) {
    return PyLong_FromUnsignedLongLong(seed);
  }
};
