// The module tessera._tessera: the public C++ classes as Python sees them.
#include "python/src/bind.h"

namespace tessera::python {

void bind_errors(nb::module_& m) {
  // Handlers are tried from the last one on: the general one comes first.
  nb::exception<Error>(m, "Error", PyExc_RuntimeError);
  nb::exception<InternalError>(m, "InternalError", PyExc_RuntimeError);
  nb::exception<IoError>(m, "IoError", PyExc_OSError);
  const auto invalid_argument = nb::exception<InvalidArgument>(m, "InvalidArgument", PyExc_ValueError);
  nb::exception<mesh::StrategyError>(m, "StrategyError",
                                     nb::make_tuple(invalid_argument, nb::handle(PyExc_RuntimeError)));
}

}  // namespace tessera::python

NB_MODULE(_tessera, m) {
  using namespace tessera::python;  // NOLINT
  nb::set_leak_warnings(false);     // a script may end with models alive
  bind_errors(m);
  bind_tensor(m);
  bind_operators(m);
  bind_cluster(m);
  auto nn = m.def_submodule("nn", "Cells, losses, optimizers.");
  bind_cells(nn);
  bind_layers(nn);
  bind_transformer(nn);
  bind_optimizers(nn);
  bind_gradients(nn);
  bind_data(m);
  bind_checkpoint(m);
  bind_train(m);
}
