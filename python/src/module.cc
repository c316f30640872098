// The module tessera._tessera: the public C++ classes as Python sees them.
#include "python/src/bind.h"
#include "python/src/keywords.h"
#include "python/src/threads.h"
#include "python/src/tracing.h"

namespace tessera::python {

namespace {

// A message may name a file whose name is no UTF-8: such bytes are shown as \\xNN.
void raise(const nb::handle& type, const std::exception& error) {
  // Nothing has failed of which a traceback could tell.
  if (begin_anew_after(error)) return PyErr_SetObject(PyExc_SystemExit, nb::int_(EXIT_FAILURE).ptr());
  const std::string_view text = error.what();
  const auto message =
      nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), /*errors=*/"backslashreplace"));
  const auto* peer = dynamic_cast<const comm::PeerFailure*>(&error);
  if (peer == nullptr) return PyErr_SetObject(type.ptr(), message.ptr());
  // For whoever reports the end of the job: with which rank's failure it began.
  nb::object made = type(message);
  made.attr("failed_rank") = peer->rank();
  PyErr_SetObject(type.ptr(), made.ptr());
}

template <typename E>
nb::object bind_error(nb::module_& m, const char* name, nb::handle base) {
  const nb::object type = nb::exception<E>(m, name, base);
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void* payload) {
        try {
          std::rethrow_exception(thrown);
        } catch (const E& error) {
          raise(nb::handle(static_cast<PyObject*>(payload)), error);
        }
      },
      type.ptr());
  return type;
}

}  // namespace

std::vector<Path> to_paths(const std::vector<std::string>& paths) {
  std::vector<Path> made;
  for (const auto& path : paths) made.push_back({path});
  return made;
}

bool Seed::take(nb::handle source) noexcept {
  if (!PyIndex_Check(source.ptr())) return false;
  try {
    const auto number = nb::steal(PyNumber_Index(source.ptr()));
    if (number.is_valid()) value_ = PyLong_AsUnsignedLongLong(number.ptr());
    if (PyErr_Occurred() == nullptr) return true;
    const bool is_too_large = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
    PyErr_Clear();
    if (!is_too_large) return false;
    refused_ = "more digits than Python writes";
    const auto text = nb::steal(PyObject_Str(number.ptr()));
    if (text.is_valid()) {
      refused_ = nb::cast<std::string>(text);
    } else {
      PyErr_Clear();
    }
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

Seed::operator uint64_t() const {
  if (refused_.empty()) return value_;
  throw InvalidArgument("seed: must be from 0 to 2**64 - 1, got {}", refused_);
}

void bind_errors(nb::module_& m) {
  // Handlers are tried from the last one on: the general one comes first.
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::bad_cast&) {
      PyErr_SetString(PyExc_TypeError,
                      "an argument, or an item of one, has another type than it may have; help() of what was called "
                      "says which");
    }
  });
  const auto error = bind_error<Error>(m, "Error", PyExc_RuntimeError);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const ProcessEnds&) {
      PyErr_SetNone(PyExc_SystemExit);
    }
  });
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const cluster::Terminated&) {
      PyErr_SetObject(PyExc_SystemExit, nb::int_(cluster::kExitTerminated).ptr());
    }
  });
  bind_error<executor::NonFiniteLoss>(m, "NonFiniteLoss", error);
  bind_error<train::ValuesDiffer>(m, "ValuesDiffer", error);
  bind_error<InternalError>(m, "InternalError", PyExc_RuntimeError);
  bind_error<IoError>(m, "IoError", PyExc_OSError);
  const auto invalid_argument = bind_error<InvalidArgument>(m, "InvalidArgument", PyExc_ValueError);
  bind_error<UsageError>(m, "UsageError", invalid_argument);
  bind_error<checkpoint::NoUsableCheckpoint>(m, "NoUsableCheckpoint", invalid_argument);
  bind_error<mesh::StrategyError>(m, "StrategyError", nb::make_tuple(invalid_argument, nb::handle(PyExc_RuntimeError)));
}

}  // namespace tessera::python

NB_MODULE(_tessera, m) {
  using namespace tessera::python;  // NOLINT
  nb::set_leak_warnings(false);     // a script may end with models alive
  m.attr("__version__") = TESSERA_VERSION;
  bind_errors(m);
  bind_tensor(m);
  bind_operators(m);
  bind_cluster(m);
  auto nn = m.def_submodule("nn", "Cells, losses, optimizers.");
  bind_cells(nn);
  bind_layers(nn);
  bind_recurrent(nn);
  bind_transformer(nn);
  bind_tuning(nn);
  bind_optimizers(nn);
  bind_gradients(nn);
  bind_random(nn);
  bind_dlpack(m);
  bind_data(m);
  bind_checkpoint(m);
  bind_train(m);
  guard_calls(m);
}
