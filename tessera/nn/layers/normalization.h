// BatchNorm2d, BatchNorm1d: each channel brought to mean 0 and variance 1 over the batch (Ioffe and Szegedy, 2015).
// LayerNorm: each sample over its trailing dims (Ba et al., 2016).
#pragma once

#include <optional>

#include "tessera/nn/cell.h"
#include "tessera/nn/initializers.h"

namespace tessera::nn {

struct BatchNorm2dOptions {
  double eps = 1e-5;
  // moving = momentum * moving + (1 - momentum) * batch
  double momentum = 0.9;
  // false: gamma and beta keep their initial values.
  bool affine = true;
  Init gamma_init = "ones";
  Init beta_init = "zeros";
  Init moving_mean_init = "zeros";
  Init moving_var_init = "ones";
  // true: the batch's statistics in evaluation too; false: the moving ones in training too; absent: the batch's in
  // training, the moving ones in evaluation. Only training updates the moving ones.
  std::optional<bool> use_batch_statistics = std::nullopt;
};

// x f32[n,c,h,w] -> gamma * (x - mean) / sqrt(variance + eps) + beta, same type. Parameters moving_mean,
// moving_variance, gamma, beta, all [c]. The batch is normalised with its biased variance, the moving variance takes
// the unbiased one. Where settings().batch_norm_groups is G > 0, the batch is cut into G consecutive balanced parts,
// larger first; each is normalised with its own statistics, and the moving ones are [G,c].
class BatchNorm2d : public Cell {
 public:
  using Options = BatchNorm2dOptions;
  // Throws InvalidArgument unless num_features >= 1, eps > 0 and 0 <= momentum <= 1.
  explicit BatchNorm2d(int64_t num_features, const BatchNorm2dOptions& options = {});
  using Cell::construct;
  // Throws InvalidArgument for an x of other channels, and in training for a batch that leaves a group empty.
  Value construct(Value x) override;
  void apply_settings(const Settings& settings) override;
  // "batch_norm" stands for all its operators: ((n,c,h,w),(c),(c),(c),(c)), of which the first tuple decides; the
  // statistics are those of the whole batch however it is split.
  void shard(const std::string& op, const mesh::Strategy& strategy) override;

 private:
  // Elements per channel that each group averages.
  std::vector<int64_t> counts_of(const Shape& images) const;
  void update_moving(Value mean, Value variance, const std::vector<int64_t>& counts);

  int64_t num_features_;
  double eps_;
  double momentum_;
  std::optional<bool> use_batch_statistics_;
  Parameter* moving_mean_;
  Parameter* moving_variance_;
  Parameter* gamma_;
  Parameter* beta_;
};

// The same for x f32[n,c].
class BatchNorm1d : public BatchNorm2d {
 public:
  using BatchNorm2d::BatchNorm2d;
  // Throws InvalidArgument unless x is [n,num_features].
  Value construct(Value x) override;
};

struct LayerNormOptions {
  double eps = 1e-5;
  Init gamma_init = "ones";
  Init beta_init = "zeros";
};

// x [..., normalized_shape] -> gamma * (x - mean) / sqrt(variance + eps) + beta, mean and variance over the dims of
// normalized_shape. Parameters gamma and beta, both of normalized_shape.
class LayerNorm : public Cell {
 public:
  using Options = LayerNormOptions;
  explicit LayerNorm(const Shape& normalized_shape, const LayerNormOptions& options = {});
  using Cell::construct;
  Value construct(Value x) override;

 private:
  Shape normalized_shape_;
  double eps_;
  Parameter* gamma_;
  Parameter* beta_;
};

}  // namespace tessera::nn
