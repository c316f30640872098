// Activations: functions of each element, or of each row (softmax), as cells and by name.
#pragma once

#include <string>

#include "tessera/nn/cell.h"

namespace tessera::nn {

// max(x, 0), element by element.
class ReLU : public Cell {
 public:
  using Cell::construct;
  Value construct(Value x) override;
};

// 1 / (1 + exp(-x)), element by element.
class Sigmoid : public Cell {
 public:
  using Cell::construct;
  Value construct(Value x) override;
};

class Tanh : public Cell {
 public:
  using Cell::construct;
  Value construct(Value x) override;
};

// x * P(X <= x) for a standard normal X (Hendrycks and Gimpel, 2016); `approximate` takes the tanh form.
class GELU : public Cell {
 public:
  explicit GELU(bool approximate = true) : approximate_(approximate) {}
  using Cell::construct;
  Value construct(Value x) override;

 private:
  bool approximate_;
};

// exp(x) / sum of exp(x) along `axis`; -1 is the last dim.
class Softmax : public Cell {
 public:
  explicit Softmax(int64_t axis = -1) : axis_(axis) {}
  using Cell::construct;
  Value construct(Value x) override;

 private:
  int64_t axis_;
};

// x through the activation of that name: relu, sigmoid, tanh, gelu, softmax (last dim), or "" for x itself.
Value activate(Value x, const std::string& name);
// Throws InvalidArgument naming `who` and the known names, unless activate() knows this one.
void check_activation(const std::string& who, const std::string& name);

}  // namespace tessera::nn
