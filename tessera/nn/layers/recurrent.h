// Recurrent layers: cells that make one step, and layers of them over sequences. A layer's steps are written one after
// the other into the graph, so its length is the sequences' and any plan can split it, rows of the batch foremost.
#pragma once

#include <string>
#include <vector>

#include "tessera/nn/cell.h"
#include "tessera/nn/initializers.h"

namespace tessera::nn {

class Dropout;

// What a recurrent cell computes of an input x and its last result h, with learned matrices W and U and vectors b, c:
enum class Recurrence {
  kTanh,  // tanh(x W^T + b + h U^T + c), Elman, 1990
  kRelu,  // the same with max(0, .)
  kGru,   // r, z, n: n + z (h - n), n = tanh(x_n + r h_n); Cho et al., "Learning phrase representations", 2014
  kLstm   // i, f, g, o: memory = f memory + i g; o tanh(memory); Hochreiter and Schmidhuber, 1997, with a forget gate
};

// "tanh", "relu", "gru", "lstm". Throws InvalidArgument listing them.
Recurrence recurrence_of(const std::string& name);

// What a step leaves to the next one. memory: of an LSTM only, else absent.
struct RecurrentState {
  Value hidden = {};
  Value memory = {};
};

struct RecurrentCellOptions {
  Recurrence recurrence = Recurrence::kTanh;
  bool has_bias = true;
  DType dtype = DType::kF32;  // the parameters'
};

// One step: x [n,input_size] and a state [n,hidden_size] -> the next state. Parameters, g being the number of gates (1,
// 3 of a GRU, 4 of an LSTM): weight_ih [g hidden_size, input_size], weight_hh [g hidden_size, hidden_size] and, if
// has_bias, bias_ih and bias_hh [g hidden_size]. They start even in +-1 / sqrt(hidden_size) and are used in x's dtype.
class RecurrentCell : public Cell {
 public:
  using Options = RecurrentCellOptions;
  // Throws InvalidArgument for sizes below 1.
  RecurrentCell(int64_t input_size, int64_t hidden_size, const RecurrentCellOptions& options = {});
  // Throws InvalidArgument where the shapes do not fit, and where there is a memory but no LSTM, or the reverse.
  RecurrentState step(Value x, const RecurrentState& state);
  // {x, hidden} or, of an LSTM, {x, hidden, memory} -> the next hidden state.
  using Cell::construct;
  Value construct(std::span<const Value> inputs) override;

  Recurrence recurrence() const { return recurrence_; }

 private:
  int64_t input_size_;
  int64_t hidden_size_;
  Recurrence recurrence_;
  Parameter* weight_ih_;
  Parameter* weight_hh_;
  Parameter* bias_ih_ = nullptr;
  Parameter* bias_hh_ = nullptr;
};

struct RecurrentLayerOptions {
  Recurrence recurrence = Recurrence::kTanh;
  int64_t num_layers = 1;
  bool has_bias = true;
  bool batch_first = false;  // sequences are [n,t,...], else [t,n,...]
  double dropout = 0;        // the part of the results of all layers but the last that is dropped, in training
  bool bidirectional = false;
  DType dtype = DType::kF32;  // the parameters'
};

// What a layer reads. state: [layers * directions, n, hidden_size], zeros where absent. lengths: i32 or i64 [n], how
// many steps of each sequence count; what lies behind them gives zeros and changes no state. Absent: all of them.
struct RecurrentInputs {
  Value x = {};
  RecurrentState state = {};
  Value lengths = {};
};

// output: [t,n,directions * hidden_size], or [n,t,...] with batch_first. state: after the last step of each layer and
// direction, as RecurrentInputs has it.
struct RecurrentResults {
  Value output;
  RecurrentState state;
};

// Layers of recurrent cells over sequences x [t,n,input_size]; the second reads the results of the first, and so on. A
// bidirectional layer has cells that go from the end to the front, too; its results are those of both, side by side.
// Parameters, of layer i: weight_ih_l<i>, weight_hh_l<i>, bias_ih_l<i>, bias_hh_l<i>, as those of RecurrentCell, and
// the same with `_reverse`; in this order, all weight_ih first.
class RecurrentLayer : public Cell {
 public:
  using Options = RecurrentLayerOptions;
  // Throws InvalidArgument for sizes below 1 and a dropout outside of [0, 1).
  RecurrentLayer(int64_t input_size, int64_t hidden_size, const RecurrentLayerOptions& options = {});
  // Throws InvalidArgument where shapes or dtypes do not fit.
  RecurrentResults run(const RecurrentInputs& inputs);
  // The output for a state of zeros.
  using Cell::construct;
  Value construct(Value x) override;

  Recurrence recurrence() const { return options_.recurrence; }
  // The parameters of one kind, "weight_ih", by layer and direction; empty for biases that there are not.
  std::vector<Parameter*> parameters_of(const std::string& kind) const;

 private:
  struct Weights {
    Parameter* ih = nullptr;
    Parameter* hh = nullptr;
    Parameter* bias_ih = nullptr;
    Parameter* bias_hh = nullptr;
  };
  RecurrentResults construct_all(const RecurrentInputs& inputs);
  void check_inputs(const RecurrentInputs& inputs) const;

  int64_t input_size_;
  int64_t hidden_size_;
  RecurrentLayerOptions options_;
  std::vector<Weights> weights_;  // the weights by layer and direction
  Dropout* dropout_ = nullptr;
};

}  // namespace tessera::nn
