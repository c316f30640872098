// Recurrent cells and layers of them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind.h"
#include "python/src/cells.h"

namespace tessera::python {
namespace {

// None, hidden, or (hidden, memory).
nn::RecurrentState to_state(Operation& operation, nb::handle object) {
  if (object.is_none()) return {};
  if (!nb::isinstance<nb::tuple>(object) && !nb::isinstance<nb::list>(object)) return {operation.value(object)};
  const auto values = operation.values(object);
  if (values.empty() || values.size() > 2) {
    throw InvalidArgument("a recurrent state is hidden or (hidden, memory), got {} values", values.size());
  }
  return {values[0], values.size() == 2 ? values[1] : ir::Value{}};
}

nb::object from_state(const nn::RecurrentState& state) {
  if (!state.memory) return nb::cast(state.hidden);
  return nb::make_tuple(nb::cast(state.hidden), nb::cast(state.memory));
}

}  // namespace

void bind_recurrent(nb::module_& m) {
  nb::class_<nn::RecurrentCell, nn::Cell>(m, "RecurrentCell",
                                          R"(One step: (x [n,input_size], state) -> the next state.

recurrence: tanh and relu, an Elman cell; gru; lstm. state: hidden [n,hidden_size]; of an lstm (hidden, memory). dtype: the
parameters'; they are used in x's. Parameters: weight_ih [g hidden_size, input_size], weight_hh [g hidden_size, hidden_size],
and bias_ih, bias_hh if has_bias, g being 1, 3 of a gru and 4 of an lstm; they start even in +-1 / sqrt(hidden_size).)")
      .def(
          "__init__",
          [](nn::RecurrentCell* self, int64_t input, int64_t hidden, const std::string& recurrence, bool has_bias,
             nb::handle dtype) {
            new (self) nn::RecurrentCell(input, hidden, {nn::recurrence_of(recurrence), has_bias, to_dtype(dtype)});
          },
          "input_size"_a, "hidden_size"_a, "recurrence"_a = "tanh", "has_bias"_a = true, "dtype"_a = "float32")
      .def(
          "_trace",
          [](nn::RecurrentCell& self, nb::handle x, nb::handle state) {
            Operation operation;
            const ir::Value of_x = operation.value(x);
            return from_state(self.step(of_x, to_state(operation, state)));
          },
          "x"_a, "state"_a, "What a call adds to the graph.");
  nb::class_<nn::RecurrentLayer, nn::Cell>(
      m, "RecurrentLayer",
      R"((x, state=None, lengths=None) -> (output, state): recurrent cells over sequences.

x [t,n,input_size], or [n,t,input_size] with batch_first. state: hidden [num_layers * directions, n, hidden_size], of an lstm
(hidden, memory); None: zeros. lengths int32 or int64 [n]: the steps of each sequence that count; what lies behind them gives
zeros and changes no state. output [t,n,directions * hidden_size], or [n,t,...]. recurrence: tanh, relu, gru, lstm. dropout: of
the results of all layers but the last, in training. Parameters of layer i: weight_ih_l<i>, weight_hh_l<i>, bias_ih_l<i>,
bias_hh_l<i>, as RecurrentCell has them, and the same with _reverse.)")
      .def(
          "__init__",
          [](nn::RecurrentLayer* self, int64_t input, int64_t hidden, const std::string& recurrence, int64_t layers,
             bool has_bias, bool batch_first, double dropout, bool bidirectional, nb::handle dtype) {
            new (self) nn::RecurrentLayer(input, hidden,
                                          {.recurrence = nn::recurrence_of(recurrence),
                                           .num_layers = layers,
                                           .has_bias = has_bias,
                                           .batch_first = batch_first,
                                           .dropout = dropout,
                                           .bidirectional = bidirectional,
                                           .dtype = to_dtype(dtype)});
          },
          "input_size"_a, "hidden_size"_a, "recurrence"_a = "tanh", "num_layers"_a = 1, "has_bias"_a = true,
          "batch_first"_a = false, "dropout"_a = 0.0, "bidirectional"_a = false, "dtype"_a = "float32")
      .def(
          "_trace",
          [](nn::RecurrentLayer& self, nb::handle x, nb::handle state, nb::handle lengths) {
            Operation operation;
            nn::RecurrentInputs inputs{.x = operation.value(x)};
            inputs.state = to_state(operation, state);
            if (!lengths.is_none()) inputs.lengths = operation.value(lengths);
            const auto results = self.run(inputs);
            return nb::make_tuple(nb::cast(results.output), from_state(results.state));
          },
          "x"_a, "state"_a.none() = nb::none(), "lengths"_a.none() = nb::none(), "What a call adds to the graph.");
}

}  // namespace tessera::python
