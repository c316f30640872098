// Tensors that other libraries of the process give or take: the capsules of DLPack, and the methods by which libraries
// ask each other for them (https://data-apis.org/array-api/latest/design_topics/data_interchange.html).
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <utility>

#include "python/src/bind.h"
#include "python/src/helped_module.h"
#include "python/src/parameters.h"
#include "python/src/threads.h"

namespace tessera::python {
namespace {

using TwoNumbers = std::pair<int64_t, int64_t>;

// A capsule's name says which struct it has; a consumer gives it the other name, so that nobody else takes the struct.
struct CapsuleName {
  DlpackForm form;
  const char* fresh;
  const char* used;
};
constexpr CapsuleName kVersioned = {DlpackForm::kVersioned, "dltensor_versioned", "used_dltensor_versioned"};
constexpr CapsuleName kUnversioned = {DlpackForm::kUnversioned, "dltensor", "used_dltensor"};

// The version whose structs are taken and given, and the host's memory: kDLCPU, of which there is one.
constexpr TwoNumbers kNewestVersion = {1, 0};
constexpr TwoNumbers kHostDevice = {1, 0};

bool has_name(nb::handle capsule, const char* name) { return PyCapsule_IsValid(capsule.ptr(), name) != 0; }

void destroy_capsule(PyObject* capsule) {
  for (const CapsuleName& name : {kVersioned, kUnversioned}) {
    if (has_name(capsule, name.fresh)) release_dlpack(PyCapsule_GetPointer(capsule, name.fresh), name.form);
  }
}

// The tensor's or parameter's elements, and whether they are not to be written.
std::pair<Tensor, bool> elements_of(nb::handle tensor) {
  if (nb::isinstance<Tensor>(tensor)) return {nb::cast<Tensor>(tensor), false};
  if (nb::isinstance<nn::Parameter>(tensor)) {
    // A trace would take them for a constant.
    if (current_graph() != nullptr) refuse_use_as("elements");
    auto& parameter = nb::cast<nn::Parameter&>(tensor);
    return {parameter_value(parameter), is_in_model(parameter)};
  }
  throw nb::type_error(fmt::format("to_dlpack: a Tensor or a Parameter is needed, got {}; Tensor(x) makes one",
                                   nb::cast<std::string>(nb::type_name(tensor.type())))
                           .c_str());
}

nb::object to_capsule(nb::handle tensor, std::optional<int64_t> stream, std::optional<TwoNumbers> max_version,
                      std::optional<TwoNumbers> dl_device, std::optional<bool> copy) {
  if (stream && *stream != -1) {  // -1: none is waited for
    throw InvalidArgument("to_dlpack: the host's memory has no streams: stream must be None, got {}", *stream);
  }
  if (dl_device && *dl_device != kHostDevice) {
    throw nb::buffer_error(fmt::format("to_dlpack: a tensor lies in the host's memory, which is dl_device=(1, 0), got "
                                       "({}, {}): have the library that takes it copy it there",
                                       dl_device->first, dl_device->second)
                               .c_str());
  }
  auto [elements, is_read_only] = elements_of(tensor);
  const bool is_copied = copy.value_or(false);
  if (is_copied) {
    elements = elements.clone();
    is_read_only = false;
  }
  const CapsuleName& name = max_version && max_version->first >= kNewestVersion.first ? kVersioned : kUnversioned;
  if (is_read_only && name.form == DlpackForm::kUnversioned) {
    throw nb::buffer_error(
        "to_dlpack: a parameter that a model has is read-only, which a capsule of before DLPack 1.0 cannot say: ask "
        "its __dlpack__() for max_version=(1, 0), or for copy=True");
  }
  void* const managed = to_dlpack(elements, name.form, {.is_read_only = is_read_only, .is_copied = is_copied});
  PyObject* const capsule = PyCapsule_New(managed, name.fresh, destroy_capsule);
  if (capsule == nullptr) {
    release_dlpack(managed, name.form);
    throw nb::python_error();
  }
  return nb::steal(capsule);
}

// The object's own capsule. One of before the standard of 2023 does not take wishes: it is asked without.
nb::object ask_for_capsule(nb::handle x, bool in_host_memory, std::optional<bool> copy) {
  const nb::object method = nb::getattr(x, "__dlpack__", nb::none());
  if (method.is_none()) {
    throw nb::type_error(fmt::format("from_dlpack: an array or tensor that has __dlpack__() is needed, or a capsule, "
                                     "got {}; Tensor(x) takes numbers and sequences",
                                     nb::cast<std::string>(nb::type_name(x.type())))
                             .c_str());
  }
  nb::dict wishes;
  wishes["max_version"] = nb::make_tuple(kNewestVersion.first, kNewestVersion.second);
  if (in_host_memory) wishes["dl_device"] = nb::make_tuple(kHostDevice.first, kHostDevice.second);
  if (copy) wishes["copy"] = *copy;
  try {
    return method(**wishes);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return method();
}

Tensor take_capsule(nb::handle capsule, const CapsuleName& name, DlpackCopy copy) {
  void* const managed = PyCapsule_GetPointer(capsule.ptr(), name.fresh);
  // First: a deleter may call Python.
  if (PyCapsule_SetName(capsule.ptr(), name.used) != 0) throw nb::python_error();
  auto taken = std::make_unique<Tensor>();
  try {
    *taken = from_dlpack(managed, name.form, copy);
  } catch (...) {
    PyCapsule_SetName(capsule.ptr(), name.fresh);
    throw;
  }
  // Whoever gave the memory may be Python.
  void* const data = taken->view().data;
  const Type type = taken->type();
  return Tensor::wrap(type, std::shared_ptr<void>(data, [owner = taken.release()](void*) { let_go(owner); }));
}

Tensor from_capsule(nb::handle capsule, DlpackCopy copy) {
  if (PyCapsule_CheckExact(capsule.ptr()) != 0) {
    for (const CapsuleName& name : {kVersioned, kUnversioned}) {
      if (has_name(capsule, name.fresh)) return take_capsule(capsule, name, copy);
      if (has_name(capsule, name.used)) {
        throw InvalidArgument("from_dlpack: the capsule was used: a capsule is taken once, ask for another one");
      }
    }
  }
  throw nb::type_error(fmt::format("from_dlpack: a capsule \"dltensor\" or \"dltensor_versioned\" is needed, got {}",
                                   nb::cast<std::string>(nb::repr(capsule)))
                           .c_str());
}

Tensor from_any(nb::handle x, nb::handle device, std::optional<bool> copy) {
  const bool in_host_memory = !device.is_none();
  if (in_host_memory && !(nb::isinstance<nb::str>(device) && nb::cast<std::string>(device) == "cpu")) {
    throw InvalidArgument("from_dlpack: a tensor lies in the host's memory: device must be None or \"cpu\", got {}",
                          nb::cast<std::string>(nb::repr(device)));
  }
  const DlpackCopy way = !copy ? DlpackCopy::kIfNeeded : *copy ? DlpackCopy::kAlways : DlpackCopy::kNever;
  if (PyCapsule_CheckExact(x.ptr()) != 0) return from_capsule(x, way);
  return from_capsule(ask_for_capsule(x, in_host_memory, copy), way);
}

// The methods that other libraries call.
void bind_protocol(nb::handle cls) {
  cls.attr("__dlpack__") = nb::cpp_function(
      &to_capsule, nb::name("__dlpack__"), nb::scope(cls), nb::is_method(), nb::kw_only(), "stream"_a = nb::none(),
      "max_version"_a = nb::none(), "dl_device"_a = nb::none(), "copy"_a = nb::none(),
      "A capsule that shares the memory: what other libraries' from_dlpack() asks for.");
  cls.attr("__dlpack_device__") =
      nb::cpp_function([](nb::handle) { return kHostDevice; }, nb::name("__dlpack_device__"), nb::scope(cls),
                       nb::is_method(), "(1, 0), the host's memory.");
}

}  // namespace

void bind_dlpack(nb::module_& m) {
  bind_protocol(nb::type<Tensor>());
  bind_protocol(nb::type<nn::Parameter>());
  helped(m).def("from_dlpack", &from_any, "x"_a, nb::kw_only(), "device"_a = nb::none(), "copy"_a = nb::none(),
                R"(A tensor in the memory of an array or tensor of another library, or of a capsule.

It keeps the memory, and sees what is written there; tensor[key] = value gives it memory of its own. Copied is what a
tensor cannot share: elements that do not lie dense and row-major, memory that is read-only, an address that is no
multiple of an element's size, and bools that are bytes other than 0 and 1, which become 1. copy=False: that is refused; True: a copy in any case. device="cpu": what lies in the
memory of another device is copied to the host's by the library that has it.
Raises InvalidArgument for a capsule that was used, a dtype that no tensor has, more than 8 dims, and the memory of another
device; TypeError for what has no __dlpack__().)");
  helped(m).def("to_dlpack", &to_capsule, "tensor"_a, nb::kw_only(), "stream"_a = nb::none(),
                "max_version"_a = nb::none(), "dl_device"_a = nb::none(), "copy"_a = nb::none(),
                R"(A capsule that shares the memory of a Tensor or Parameter, for one consumer.

max_version=(1, 0): "dltensor_versioned", which says whether memory is read-only, as a parameter's is once a model has it;
else "dltensor". copy=True: the capsule has a copy. Raises BufferError for a dl_device that is not the host's memory, (1, 0), and
for read-only memory where the capsule cannot say so; InvalidArgument for a stream.)");
}

}  // namespace tessera::python
