// Data types and tensors, to and from NumPy.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind.h"
#include "python/src/cells.h"
#include "python/src/parameters.h"
#include "python/src/threads.h"

namespace tessera::python {
namespace {

const std::pair<DType, const char*> kNames[] = {
    {DType::kF32, "float32"}, {DType::kF64, "float64"}, {DType::kBF16, "bfloat16"}, {DType::kF16, "float16"},
    {DType::kI32, "int32"},   {DType::kI64, "int64"},   {DType::kU8, "uint8"},      {DType::kBool, "bool_"},
    {DType::kI8, "int8"},     {DType::kI16, "int16"},   {DType::kU16, "uint16"},    {DType::kU32, "uint32"},
    {DType::kU64, "uint64"}};

nb::dlpack::dtype dlpack_of(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto bits = static_cast<uint8_t>(8 * size_bytes(dtype));
  Code code = Code::UInt;
  if (is_floating(dtype)) code = Code::Float;
  if (dtype == DType::kI8 || dtype == DType::kI16 || dtype == DType::kI32 || dtype == DType::kI64) code = Code::Int;
  if (dtype == DType::kBool) code = Code::Bool;
  return {static_cast<uint8_t>(code), bits, 1};
}

nb::module_ numpy() { return nb::module_::import_("numpy"); }

// Python's own numbers have no width: float is f32, int i64, as in the reference.
nb::object as_array(nb::handle data) {
  const bool is_array = nb::hasattr(data, "__array__") || nb::hasattr(data, "dtype");
  nb::object array = numpy().attr("asarray")(data, nb::arg("order") = "C");
  if (!nb::cast<bool>(array.attr("dtype").attr("isnative"))) {  // of another byte order
    array = array.attr("astype")(array.attr("dtype").attr("newbyteorder")("="));
  }
  if (!is_array && nb::cast<std::string>(array.attr("dtype").attr("name")) == "float64") {
    array = array.attr("astype")("float32");
  }
  return array;
}

// A tensor that shares the array's memory, unless bools of it are bytes other than 0 and 1, as numpy's views of other
// elements may have: then it is a copy, in which they are 1. The array must be dense.
Tensor share(const nb::object& array) {
  const DType dtype = to_dtype(array.attr("dtype"));
  const auto shape = Shape(nb::cast<std::vector<int64_t>>(array.attr("shape")));
  const auto view = nb::cast<nb::ndarray<nb::ro, nb::device::cpu, nb::c_contig>>(array);
  auto* owner = new nb::object(array);
  std::shared_ptr<void> storage(const_cast<void*>(view.data()), [owner](void*) { let_go(owner); });
  const Tensor shared = Tensor::wrap({dtype, shape}, std::move(storage));
  if (dtype != DType::kBool || are_truths(shared.bytes())) return shared;
  Tensor made = shared.clone();
  make_truths(made.bytes());
  return made;
}

nb::object to_numpy(const Tensor& tensor) {
  // NumPy has no bfloat16.
  const Tensor shown = tensor.dtype() == DType::kBF16 ? tensor.cast(DType::kF32) : tensor;
  auto* owner = new Tensor(shown);
  const nb::capsule capsule(owner, [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  const auto sizes = shown.shape().to_vector();
  const std::vector<size_t> shape(sizes.begin(), sizes.end());
  const nb::ndarray<nb::numpy> array(shown.view().data, shape.size(), shape.data(), capsule, nullptr,
                                     dlpack_of(shown.dtype()));
  return nb::cast(array, nb::rv_policy::reference);
}

}  // namespace

DType to_dtype(nb::handle object) {
  if (nb::isinstance<DType>(object)) return nb::cast<DType>(object);
  if (nb::isinstance<nb::str>(object)) return parse_dtype(nb::cast<std::string>(object));
  return parse_dtype(nb::cast<std::string>(numpy().attr("dtype")(object).attr("name")));
}

Ints to_ints(nb::handle object) {
  const auto refuse = [](nb::handle what) {
    throw nb::type_error(fmt::format("a whole number, or a sequence of them, is needed, got {} of type {}",
                                     nb::cast<std::string>(nb::repr(what)),
                                     nb::cast<std::string>(what.type().attr("__name__")))
                             .c_str());
  };
  if (object.is_none()) return {};
  // A tensor with dims is a sequence, whatever counts as a whole number.
  const bool has_dims = nb::isinstance<Tensor>(object) && nb::cast<const Tensor&>(object).ndim() > 0;
  if (PyIndex_Check(object.ptr()) && !has_dims) return {nb::cast<int64_t>(nb::int_(object))};
  // A text is a sequence, too: of characters.
  if (nb::isinstance<nb::str>(object) || nb::isinstance<nb::bytes>(object)) refuse(object);
  // What has items without an __iter__ is a sequence as well.
  const auto items = nb::steal(PyObject_GetIter(object.ptr()));
  if (!items.is_valid()) {
    PyErr_Clear();
    refuse(object);
  }
  Ints result;
  for (const nb::handle item : nb::iter(items)) {
    if (!PyIndex_Check(item.ptr()) && !nb::isinstance<Tensor>(item)) refuse(item);
    result.push_back(nb::cast<int64_t>(nb::int_(item)));
  }
  return result;
}

bool is_number(nb::handle object) { return PyFloat_Check(object.ptr()) || PyLong_Check(object.ptr()); }

Tensor to_tensor(nb::handle object) {
  if (nb::isinstance<Tensor>(object)) return nb::cast<Tensor>(object);
  if (nb::isinstance<nn::Parameter>(object)) return parameter_value(nb::cast<nn::Parameter&>(object));
  const nb::object array = as_array(object);
  if (std::string("OUSMmV").find(nb::cast<std::string>(array.attr("dtype").attr("kind"))) != std::string::npos) {
    const auto text = [](nb::handle value) { return nb::cast<std::string>(nb::str(value)); };
    throw nb::type_error(fmt::format("a tensor of numbers is needed, got {} with the dtype {}, which no tensor has: "
                                     "give arrays of numbers, such as array.astype(numpy.float32)",
                                     text(nb::type_name(object.type())), text(array.attr("dtype")))
                             .c_str());
  }
  return share(array).clone();
}

void bind_tensor(nb::module_& m) {
  auto dtypes =
      nb::enum_<DType>(m, "DType", "The type of a tensor's elements; NumPy's types and names are taken, too.");
  for (const auto& [dtype, name] : kNames) dtypes.value(name, dtype);
  dtypes.export_values();

  auto tensor = nb::class_<Tensor>(m, "Tensor", R"(Elements of one dtype in a shape, dense and row-major.

Tensor(data, dtype=None): a copy of an array, number or sequence. Python's floats become float32, its ints int64.
Operators on tensors run at once. Numbers, arrays and tensors broadcast as NumPy's do.)",
                                   nb::dynamic_attr(), nb::is_weak_referenceable());
  tensor.def(
      "__init__",
      [](Tensor* self, nb::handle data, nb::handle dtype) {
        Tensor made = to_tensor(data);
        if (!dtype.is_none()) made = made.cast(to_dtype(dtype));
        new (self) Tensor(std::move(made));
      },
      "data"_a, "dtype"_a = nb::none());
  tensor.def_static(
      "from_numpy", [](const nb::object& array) { return share(as_array(array)); }, "array"_a,
      "Shares the memory of a dense array, until tensor[key] = value; another one is copied, and so are bools that are "
      "bytes other than 0 and 1, which become 1.");
  tensor.def("numpy", &to_numpy, "Shares the tensor's memory; bfloat16 becomes a copy in float32.");
  tensor.def("asnumpy", &to_numpy, "numpy(), by its name in the reference.");
  tensor.def(
      "__array__",
      [](const Tensor& self, nb::handle dtype, nb::handle copy) -> nb::object {
        nb::object array = to_numpy(self);
        if (!dtype.is_none()) return array.attr("astype")(dtype);
        return !copy.is_none() && nb::cast<bool>(copy) ? array.attr("copy")() : array;
      },
      "dtype"_a = nb::none(), "copy"_a = nb::none());
  tensor.def(
      "item", [](const Tensor& self) -> nb::object { return to_numpy(self).attr("item")(); },
      "The one element as Python's number. Raises ValueError unless there is exactly one.");
  tensor.def("__float__", [](const Tensor& self) { return self.item(); });
  tensor.def("__int__", [](const Tensor& self) { return static_cast<int64_t>(self.item()); });
  tensor.def("__bool__", [](const Tensor& self) { return self.item() != 0; });
  tensor.def("__len__", [](const Tensor& self) {
    if (self.ndim() == 0) throw nb::type_error("a tensor without dims has no length");
    return self.shape()[0];
  });
  tensor.def("__str__", [](const Tensor& self) { return nb::str(to_numpy(self)); });
  tensor.def("__repr__", [](const Tensor& self) {
    return fmt::format("Tensor({}, {})", self.type(), nb::cast<std::string>(nb::str(to_numpy(self))));
  });
  tensor.def("clone", &Tensor::clone);
  tensor.def(
      "__deepcopy__", [](const Tensor& self, nb::handle) { return self.clone(); }, "memo"_a);
  tensor.def(
      "set_data",
      [](Tensor& self, nb::handle data) {
        const Tensor given = to_tensor(data);
        if (given.shape() != self.shape()) {
          throw InvalidArgument("set_data: a tensor of {} cannot take a value of {}", self.type(), given.type());
        }
        self = given.cast(self.dtype());
        note_change();
      },
      "data"_a, "Gives it other elements, in the same shape and dtype. Raises InvalidArgument for another shape.");
  bind_operators_of(tensor);
}

}  // namespace tessera::python
