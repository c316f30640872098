// Losses: cells called with what the network computed and what is true, loss(logits, label).
#pragma once

#include <string>

#include "tessera/nn/cell.h"

namespace tessera::nn {

// The nodes of a loss have the source "loss". A loss is computed in f32 whatever the precision of the network.
class Loss : public Cell {
 public:
  Loss() : Cell("loss") { to_float(DType::kF32); }
};

struct SoftmaxCrossEntropyWithLogitsOptions {
  bool sparse = false;             // label is a class number, not a distribution
  std::string reduction = "none";  // none (trains like sum), mean or sum over the batch
};

// logits f32[n,c]; label i32[n] if sparse, else f32[n,c], rows that sum to 1. -sum of label * log softmax(logits):
// f32[n] for reduction "none", else f32[]. A class number outside [0,c) is an error.
class SoftmaxCrossEntropyWithLogits : public Loss {
 public:
  // Throws InvalidArgument for an unknown reduction.
  explicit SoftmaxCrossEntropyWithLogits(const SoftmaxCrossEntropyWithLogitsOptions& options = {});
  using Cell::construct;
  Value construct(Value logits, Value label) override;

 private:
  bool sparse_;
  std::string reduction_;
};

struct SoftmaxCrossEntropyExpandOptions {
  bool sparse = false;
  // Added inside the logarithm; 0 adds nothing. A class whose probability underflows then costs -log eps, not inf.
  double eps = 1e-24;
};

// The same, averaged over the batch, written in small operators: tutorials, "Defining the Loss Function". Every one of
// them can be split by itself, which is why the tutorials of semi-automatic parallel training use this form.
// logits f32[n,c]; label i32[n] if sparse, else f32[n,c]. Returns f32[].
class SoftmaxCrossEntropyExpand : public Loss {
 public:
  explicit SoftmaxCrossEntropyExpand(const SoftmaxCrossEntropyExpandOptions& options = {});
  using Cell::construct;
  Value construct(Value logits, Value label) override;

 private:
  bool sparse_;
  double eps_;
};

struct ElementwiseLossOptions {
  std::string reduction = "mean";  // none, mean or sum over all elements
};

// (logits - label)^2. Both of one shape.
class MSELoss : public Loss {
 public:
  explicit MSELoss(const ElementwiseLossOptions& options = {});
  using Cell::construct;
  Value construct(Value logits, Value label) override;

 private:
  std::string reduction_;
};

// |logits - label|. Both of one shape.
class L1Loss : public Loss {
 public:
  explicit L1Loss(const ElementwiseLossOptions& options = {});
  using Cell::construct;
  Value construct(Value logits, Value label) override;

 private:
  std::string reduction_;
};

}  // namespace tessera::nn
