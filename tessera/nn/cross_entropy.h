// CrossEntropy: the cross entropy with weights of classes, labels that do not count, and smoothed labels.
#pragma once

#include <optional>
#include <vector>

#include "tessera/nn/losses.h"

namespace tessera::nn {

struct CrossEntropyOptions {
  // The weight of each class; empty: all are 1.
  std::vector<double> weight = {};
  // Rows with this label count nothing; absent: -100. It holds for class numbers only.
  std::optional<int64_t> ignore_index = std::nullopt;
  // none, sum or mean: the sum divided by the weights of the labels that count; of distributions by the rows.
  std::string reduction = "mean";
  // The part in [0,1] of a label's probability that is spread evenly over all classes. Szegedy et al., CVPR 2016.
  double label_smoothing = 0;
  bool is_strict = true;  // refuses an ignore_index beside distributions; off: takes it, as MindSpore does
};

// logits f32[n,c,d...] or [c]; label i32 or i64 [n,d...] or [], class numbers, or floating of the logits' shape,
// distributions. f32[n,d...] for reduction "none", else f32[]. A label outside [0,c) that is not ignore_index is
// an error.
class CrossEntropy : public Loss {
 public:
  // Throws InvalidArgument for an unknown reduction and a label_smoothing outside [0,1]; construct() does for labels
  // that do not fit, and for distributions where an ignore_index is given.
  explicit CrossEntropy(const CrossEntropyOptions& options = {});
  using Cell::construct;
  Value construct(Value logits, Value label) override;

 private:
  Value of_classes(Value logits, Value label);
  Value of_distributions(Value logits, Value label);
  // The weights of the classes, [c].
  Value weights(Value logits);

  CrossEntropyOptions options_;
};

}  // namespace tessera::nn
