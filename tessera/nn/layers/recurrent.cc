#include "tessera/nn/layers/recurrent.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/ir/cell_name.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

int64_t num_gates(Recurrence recurrence) {
  if (recurrence == Recurrence::kLstm) return 4;
  return recurrence == Recurrence::kGru ? 3 : 1;
}

void check_state_sizes(const char* who, int64_t input_size, int64_t hidden_size) {
  if (input_size < 1 || hidden_size < 1) {
    throw InvalidArgument("{}: input_size and hidden_size must be at least 1, got {} and {}", who, input_size,
                          hidden_size);
  }
}

void check_dtype(const char* who, const std::string& path, Value x, const char* what) {
  if (!is_floating(x.dtype()))
    throw InvalidArgument("{} \"{}\": {} must be floating, got {}", who, path, what, x.type());
}

// A state in the dtype of x, checked.
Value state_in(const char* who, const std::string& path, const char* what, Value state, const Shape& shape, Value x) {
  if (!(state.shape() == shape)) {
    throw InvalidArgument("{} \"{}\": {} must be {}, got {}", who, path, what, shape, state.type());
  }
  check_dtype(who, path, state, what);
  return ops::cast(state, x.dtype());
}

void check_memory(const char* who, const std::string& path, Recurrence recurrence, const RecurrentState& state) {
  if (static_cast<bool>(state.memory) == (recurrence == Recurrence::kLstm)) return;
  throw InvalidArgument("{} \"{}\": {}", who, path,
                        state.memory ? "only an LSTM has a memory" : "the state of an LSTM is (hidden, memory)");
}

// A cell's parameters in the dtype that it computes in; absent biases are absent values.
struct Gates {
  Recurrence recurrence;
  Value weight_ih;
  Value weight_hh;
  Value bias_ih;
  Value bias_hh;
};

Value in_dtype(Parameter* parameter, DType dtype) {
  return parameter == nullptr ? Value{} : ops::cast(*parameter, dtype);
}

// The part of the gates that does not depend on the state, [rows, gates]; x [rows, input_size] may be of many steps.
Value of_input(const Gates& gates, Value x) {
  Value result = ops::matmul(x, gates.weight_ih, /*transpose_a=*/false, /*transpose_b=*/true);
  if (!gates.bias_ih) return result;
  // Only a GRU multiplies what comes of the state before it adds it.
  const bool is_one_sum = gates.recurrence != Recurrence::kGru;
  return ops::bias_add(result, is_one_sum ? gates.bias_ih + gates.bias_hh : gates.bias_ih);
}

RecurrentState next_state(const Gates& gates, Value of_x, const RecurrentState& state) {
  const Value of_state = ops::matmul(state.hidden, gates.weight_hh, /*transpose_a=*/false, /*transpose_b=*/true);
  switch (gates.recurrence) {
    case Recurrence::kTanh: return {ops::tanh(of_x + of_state)};
    case Recurrence::kRelu: return {ops::relu(of_x + of_state)};
    case Recurrence::kGru: {
      const auto x = ops::split(of_x, 3, 1);
      const auto h = ops::split(gates.bias_hh ? ops::bias_add(of_state, gates.bias_hh) : of_state, 3, 1);
      const Value fresh = ops::tanh(x[2] + ops::sigmoid(x[0] + h[0]) * h[2]);
      return {fresh + ops::sigmoid(x[1] + h[1]) * (state.hidden - fresh)};
    }
    case Recurrence::kLstm: {
      const auto parts = ops::split(of_x + of_state, 4, 1);
      const Value memory = ops::sigmoid(parts[1]) * state.memory + ops::sigmoid(parts[0]) * ops::tanh(parts[2]);
      return {ops::sigmoid(parts[3]) * ops::tanh(memory), memory};
    }
  }
  check(false, "a recurrence without a step");
  return {};
}

// The step's state where `counts` [n,1] holds, else the one before.
RecurrentState where(Value counts, const RecurrentState& next, const RecurrentState& before) {
  RecurrentState chosen{ops::select(counts, next.hidden, before.hidden)};
  if (next.memory) chosen.memory = ops::select(counts, next.memory, before.memory);
  return chosen;
}

// The results [n,hidden] of every step over x [n,t,input], in the order of time, and the state at the end.
std::pair<std::vector<Value>, RecurrentState> walk(const Gates& gates, Value x, RecurrentState state, Value lengths,
                                                   bool backwards) {
  const int64_t rows = x.shape()[0];
  const int64_t steps = x.shape()[1];
  // One product for all steps; only the state's is made step by step.
  const Value all = of_input(gates, ops::reshape(x, {rows * steps, x.shape()[2]}));
  const int64_t width = all.shape()[1];
  const auto of_x = ops::split(ops::reshape(all, {rows, steps, width}), steps, 1);
  std::vector<Value> results(static_cast<size_t>(steps));
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t step = backwards ? steps - 1 - i : i;
    const auto at = static_cast<size_t>(step);
    const RecurrentState next = next_state(gates, ops::squeeze(of_x[at], {1}), state);
    if (lengths) {
      const Value counts = ops::greater(lengths, step);
      state = where(counts, next, state);
      results[at] = ops::select(counts, next.hidden, 0);
    } else {
      state = next;
      results[at] = next.hidden;
    }
  }
  return {results, state};
}

Value zeros_of(ir::Graph& graph, const Shape& shape, DType dtype) { return ops::fill(graph, shape, 0, dtype); }

}  // namespace

Recurrence recurrence_of(const std::string& name) {
  constexpr std::array<std::pair<const char*, Recurrence>, 4> kNames{{{"tanh", Recurrence::kTanh},
                                                                      {"relu", Recurrence::kRelu},
                                                                      {"gru", Recurrence::kGru},
                                                                      {"lstm", Recurrence::kLstm}}};
  for (const auto& [known, recurrence] : kNames) {
    if (name == known) return recurrence;
  }
  throw InvalidArgument("recurrence \"{}\" is not one of tanh, relu, gru, lstm", name);
}

RecurrentCell::RecurrentCell(int64_t input_size, int64_t hidden_size, const RecurrentCellOptions& options)
    : input_size_(input_size), hidden_size_(hidden_size), recurrence_(options.recurrence) {
  check_state_sizes("RecurrentCell", input_size, hidden_size);
  const int64_t gates = num_gates(recurrence_) * hidden_size;
  const Init even = uniform(1 / std::sqrt(static_cast<double>(hidden_size)));
  weight_ih_ = &parameter("weight_ih", {options.dtype, {gates, input_size}}, even);
  weight_hh_ = &parameter("weight_hh", {options.dtype, {gates, hidden_size}}, even);
  if (!options.has_bias) return;
  bias_ih_ = &parameter("bias_ih", {options.dtype, {gates}}, even);
  bias_hh_ = &parameter("bias_hh", {options.dtype, {gates}}, even);
}

RecurrentState RecurrentCell::step(Value x, const RecurrentState& state) {
  constexpr const char* kWho = "RecurrentCell";
  if (x.ndim() != 2 || x.shape()[1] != input_size_) {
    throw InvalidArgument("{} \"{}\": takes [n,{}], got {}", kWho, ir::cell_name(path()), input_size_, x.type());
  }
  check_dtype(kWho, ir::cell_name(path()), x, "x");
  check_memory(kWho, ir::cell_name(path()), recurrence_, state);
  RecurrentState result;
  enter(x.graph(), [&] {
    const Shape shape{x.shape()[0], hidden_size_};
    RecurrentState before{state_in(kWho, ir::cell_name(path()), "the hidden state", state.hidden, shape, x)};
    if (state.memory) before.memory = state_in(kWho, ir::cell_name(path()), "the memory", state.memory, shape, x);
    const DType dtype = x.dtype();
    const Gates gates{recurrence_, in_dtype(weight_ih_, dtype), in_dtype(weight_hh_, dtype), in_dtype(bias_ih_, dtype),
                      in_dtype(bias_hh_, dtype)};
    result = next_state(gates, of_input(gates, x), before);
  });
  return result;
}

Value RecurrentCell::construct(std::span<const Value> inputs) {
  if (inputs.size() < 2 || inputs.size() > 3) {
    throw InvalidArgument("RecurrentCell \"{}\": takes x, the hidden state and an LSTM's memory, got {} inputs",
                          ir::cell_name(path()), inputs.size());
  }
  return step(inputs[0], {inputs[1], inputs.size() == 3 ? inputs[2] : Value{}}).hidden;
}

RecurrentLayer::RecurrentLayer(int64_t input_size, int64_t hidden_size, const RecurrentLayerOptions& options)
    : input_size_(input_size), hidden_size_(hidden_size), options_(options) {
  check_state_sizes("RecurrentLayer", input_size, hidden_size);
  constexpr int64_t kMostLayers = 4096;
  if (options.num_layers < 1 || options.num_layers > kMostLayers) {
    throw InvalidArgument("RecurrentLayer: num_layers must be at least 1 and at most {}, got {}", kMostLayers,
                          options.num_layers);
  }
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    throw InvalidArgument("RecurrentLayer: dropout must be in [0,1), got {}", options.dropout);
  }
  if (options.dropout > 0 && options.num_layers == 1) {
    throw InvalidArgument(
        "RecurrentLayer: dropout = {} has no effect on one layer: it is of the results of all layers but the last; use "
        "more layers, or a Dropout behind this one",
        options.dropout);
  }
  const int64_t directions = options.bidirectional ? 2 : 1;
  const int64_t gates = num_gates(options.recurrence) * hidden_size;
  const Init even = uniform(1 / std::sqrt(static_cast<double>(hidden_size)));
  weights_.resize(static_cast<size_t>(options.num_layers * directions));
  const auto declare = [&](const char* kind, Parameter* Weights::*place, const auto& shape_of) {
    for (size_t i = 0; i < weights_.size(); ++i) {
      const auto layer = static_cast<int64_t>(i) / directions;
      const bool is_reverse = static_cast<int64_t>(i) % directions == 1;
      weights_[i].*place = &parameter(fmt::format("{}_l{}{}", kind, layer, is_reverse ? "_reverse" : ""),
                                      {options.dtype, shape_of(layer)}, even);
    }
  };
  declare("weight_ih", &Weights::ih, [&](int64_t layer) {
    return Shape{gates, layer == 0 ? input_size : directions * hidden_size};
  });
  declare("weight_hh", &Weights::hh, [&](int64_t) { return Shape{gates, hidden_size}; });
  if (options.has_bias) {
    declare("bias_ih", &Weights::bias_ih, [&](int64_t) { return Shape{gates}; });
    declare("bias_hh", &Weights::bias_hh, [&](int64_t) { return Shape{gates}; });
  }
  if (options.dropout > 0) dropout_ = &child<Dropout>("dropout", 1 - options.dropout);
}

std::vector<Parameter*> RecurrentLayer::parameters_of(const std::string& kind) const {
  std::vector<Parameter*> found;
  for (const auto& [name, parameter] : own_parameters()) {
    if (name.starts_with(kind + "_l")) found.push_back(parameter.get());
  }
  return found;
}

void RecurrentLayer::check_inputs(const RecurrentInputs& inputs) const {
  constexpr const char* kWho = "RecurrentLayer";
  const Value x = inputs.x;
  if (x.ndim() != 3 || x.shape()[2] != input_size_) {
    throw InvalidArgument("{} \"{}\": takes [{},{}], got {}", kWho, ir::cell_name(path()),
                          options_.batch_first ? "n,t" : "t,n", input_size_, x.type());
  }
  check_dtype(kWho, ir::cell_name(path()), x, "x");
  if (x.shape()[options_.batch_first ? 1 : 0] < 1) {
    throw InvalidArgument("{} \"{}\": sequences must have at least one step, got {}", kWho, ir::cell_name(path()),
                          x.type());
  }
  if (inputs.state.hidden || inputs.state.memory) {
    check_memory(kWho, ir::cell_name(path()), options_.recurrence, inputs.state);
    if (!inputs.state.hidden) {
      throw InvalidArgument("{} \"{}\": a memory needs a hidden state", kWho, ir::cell_name(path()));
    }
  }
  if (!inputs.lengths) return;
  const Type& lengths = inputs.lengths.type();
  const int64_t rows = x.shape()[options_.batch_first ? 0 : 1];
  if ((lengths.dtype != DType::kI32 && lengths.dtype != DType::kI64) || !(lengths.shape == Shape{rows})) {
    throw InvalidArgument("{} \"{}\": lengths must be i32 or i64 [{}], got {}", kWho, ir::cell_name(path()), rows,
                          lengths);
  }
}

RecurrentResults RecurrentLayer::run(const RecurrentInputs& inputs) {
  check_inputs(inputs);
  RecurrentResults results;
  enter(inputs.x.graph(), [&] { results = construct_all(inputs); });
  return results;
}

RecurrentResults RecurrentLayer::construct_all(const RecurrentInputs& inputs) {
  constexpr const char* kWho = "RecurrentLayer";
  const bool is_lstm = options_.recurrence == Recurrence::kLstm;
  const size_t directions = options_.bidirectional ? 2 : 1;
  Value x = options_.batch_first ? inputs.x : ops::transpose(inputs.x, {1, 0, 2});
  const DType dtype = x.dtype();
  const Shape one{x.shape()[0], hidden_size_};
  // The states of all cells, each [n,hidden].
  const auto states = [&](Value given, const char* what) {
    const auto count = static_cast<int64_t>(weights_.size());
    if (!given) return std::vector<Value>(weights_.size(), zeros_of(graph(), one, dtype));
    std::vector<Value> cut =
        ops::split(state_in(kWho, ir::cell_name(path()), what, given, {count, one[0], one[1]}, x), count, 0);
    for (Value& state : cut) state = ops::squeeze(state, {0});
    return cut;
  };
  std::vector<Value> hidden = states(inputs.state.hidden, "the hidden state");
  std::vector<Value> memory = is_lstm ? states(inputs.state.memory, "the memory") : std::vector<Value>(weights_.size());
  const Value lengths = inputs.lengths ? ops::expand_dims(inputs.lengths, {1}) : Value{};
  for (size_t first = 0; first < weights_.size(); first += directions) {
    if (first > 0 && dropout_ != nullptr) x = (*dropout_)(x);
    std::vector<Value> outputs;
    for (size_t i = first; i < first + directions; ++i) {
      const Weights& own = weights_[i];
      const Gates gates{options_.recurrence, in_dtype(own.ih, dtype), in_dtype(own.hh, dtype),
                        in_dtype(own.bias_ih, dtype), in_dtype(own.bias_hh, dtype)};
      const auto [results, last] = walk(gates, x, {hidden[i], memory[i]}, lengths, /*backwards=*/i > first);
      outputs.push_back(ops::stack(results, 1));
      hidden[i] = last.hidden;
      memory[i] = last.memory;
    }
    x = directions == 1 ? outputs[0] : ops::concat(outputs, 2);
  }
  RecurrentState state{ops::stack(hidden, 0)};
  if (is_lstm) state.memory = ops::stack(memory, 0);
  return {options_.batch_first ? x : ops::transpose(x, {1, 0, 2}), state};
}

Value RecurrentLayer::construct(Value x) {
  const RecurrentInputs inputs{.x = x};
  check_inputs(inputs);
  return construct_all(inputs).output;
}

}  // namespace tessera::nn
