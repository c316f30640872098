#include "tessera/nn/layers/normalization.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ir/cell_name.h"
#include "tessera/mesh/mesh.h"
#include "tessera/nn/layer_helpers.h"
#include "tessera/nn/number_checks.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

// n / (n - 1) per group: turns a biased variance into the unbiased one. A single element has no unbiased variance; its
// biased one, 0, is taken.
Doubles unbiased_scales(const std::vector<int64_t>& counts) {
  Doubles scales;
  for (const int64_t count : counts) {
    scales.push_back(count > 1 ? static_cast<double>(count) / static_cast<double>(count - 1) : 1.0);
  }
  return scales;
}

}  // namespace

BatchNorm2d::BatchNorm2d(int64_t num_features, const BatchNorm2dOptions& options)
    : num_features_(num_features),
      eps_(options.eps),
      momentum_(options.momentum),
      use_batch_statistics_(options.use_batch_statistics) {
  if (num_features < 1) throw InvalidArgument("BatchNorm2d: num_features must be at least 1, got {}", num_features);
  require_positive("BatchNorm2d", "eps", eps_);
  require_in("BatchNorm2d", "momentum", momentum_, 0, 1);
  const Type type{DType::kF32, {num_features}};
  moving_mean_ = &parameter("moving_mean", type, options.moving_mean_init, /*requires_grad=*/false);
  moving_variance_ = &parameter("moving_variance", type, options.moving_var_init, /*requires_grad=*/false);
  moving_mean_->is_statistic = moving_variance_->is_statistic = true;
  gamma_ = &parameter("gamma", type, options.gamma_init, options.affine);
  beta_ = &parameter("beta", type, options.beta_init, options.affine);
}

void BatchNorm2d::apply_settings(const Settings& settings) {
  if (settings.batch_norm_groups < 0) {
    throw InvalidArgument("BatchNorm2d \"{}\": batch_norm_groups must not be negative, got {}", ir::cell_name(path()),
                          settings.batch_norm_groups);
  }
  Cell::apply_settings(settings);
  const Shape shape =
      settings.batch_norm_groups > 0 ? Shape{settings.batch_norm_groups, num_features_} : Shape{num_features_};
  moving_mean_->type.shape = shape;
  moving_variance_->type.shape = shape;
}

void BatchNorm2d::shard(const std::string& op, const mesh::Strategy& strategy) {
  if (op != "batch_norm") return Cell::shard(op, strategy);
  if (strategy.empty() || strategy[0].size() != 4) {
    throw InvalidArgument("batch_norm \"{}\": strategy {} must begin with a tuple (n,c,h,w)", ir::cell_name(path()),
                          mesh::to_string(strategy));
  }
  const auto& image = strategy[0];
  const std::vector<int64_t> channels = {image[1]};
  for (size_t i = 1; i < strategy.size(); ++i) {
    if (strategy[i] != channels) {
      throw InvalidArgument("batch_norm \"{}\": strategy {} splits the channels in {} and a vector of them otherwise",
                            ir::cell_name(path()), mesh::to_string(strategy), image[1]);
    }
  }
  shard_if_added("batch_norm_mean", {image});
  shard_if_added("batch_norm_variance", {image, channels});
  shard_if_added("batch_norm", {image, channels, channels, channels, channels});
}

std::vector<int64_t> BatchNorm2d::counts_of(const Shape& images) const {
  std::vector<int64_t> counts = mesh::balanced_sizes(images[0], std::max(settings().batch_norm_groups, 1));
  for (int64_t& count : counts) count *= images[2] * images[3];
  return counts;
}

void BatchNorm2d::update_moving(Value mean, Value variance, const std::vector<int64_t>& counts) {
  const auto update = [&](const Parameter& moving, Value batch, const Doubles& scales) {
    batch = ops::cast(batch, moving.type.dtype);
    moving.assign(ops::apply1("moving_average", {moving, batch}, {{"momentum", momentum_}, {"scales", scales}}));
  };
  update(*moving_mean_, mean, {1.0});
  update(*moving_variance_, variance, unbiased_scales(counts));
}

Value BatchNorm2d::construct(Value x) {
  check_images("batch_norm", x);
  if (x.shape()[1] != num_features_) {
    throw InvalidArgument("batch_norm \"{}\": has {} channels, got {}", ir::cell_name(path()), num_features_, x.type());
  }
  const auto counts = counts_of(x.shape());
  const bool grouped = settings().batch_norm_groups > 0;
  const bool batch_stats = use_batch_statistics_.value_or(settings().training);
  const DType statistics_dtype = at_least_f32(x.dtype());
  const auto read = [&](const Parameter& parameter) { return ops::cast(parameter, statistics_dtype); };

  Value mean;
  Value variance;
  if (batch_stats) {
    if (std::ranges::find(counts, 0) != counts.end()) {
      throw InvalidArgument("batch_norm \"{}\": {} leaves nothing to average in one of {} groups; give a larger batch",
                            ir::cell_name(path()), x.type(), counts.size());
    }
    const Attributes reduction = {{"counts", counts}, {"grouped", grouped}};
    mean = ops::apply1("batch_norm_mean", {x}, reduction);
    variance = ops::apply1("batch_norm_variance", {x, mean}, reduction);
    if (settings().training) update_moving(mean, variance, counts);
  } else {
    mean = read(*moving_mean_);
    variance = read(*moving_variance_);
  }
  return ops::apply1("batch_norm", {x, mean, variance, read(*gamma_), read(*beta_)},
                     {{"eps", eps_}, {"counts", counts}, {"grouped", grouped}, {"batch_stats", batch_stats}});
}

Value BatchNorm1d::construct(Value x) {
  if (x.ndim() != 2) {
    throw InvalidArgument("batch_norm \"{}\": x must be [n,c], got {}", ir::cell_name(path()), x.type());
  }
  return ops::reshape(BatchNorm2d::construct(ops::expand_dims(x, {2, 3})), x.shape().to_vector());
}

LayerNorm::LayerNorm(const Shape& normalized_shape, const LayerNormOptions& options)
    : normalized_shape_(normalized_shape), eps_(options.eps) {
  if (normalized_shape.ndim() < 1) throw InvalidArgument("LayerNorm: normalized_shape must have at least one dim");
  require_positive("LayerNorm", "eps", eps_);
  const Type type{DType::kF32, normalized_shape};
  gamma_ = &parameter("gamma", type, options.gamma_init);
  beta_ = &parameter("beta", type, options.beta_init);
}

Value LayerNorm::construct(Value x) {
  const int begin = x.ndim() - normalized_shape_.ndim();
  if (begin < 0 || !std::equal(normalized_shape_.begin(), normalized_shape_.end(), x.shape().begin() + begin)) {
    throw InvalidArgument("layer_norm \"{}\": normalises the last dims {}, got {}", ir::cell_name(path()),
                          normalized_shape_, x.type());
  }
  return ops::layer_norm(x, *gamma_, *beta_, begin, eps_);
}

}  // namespace tessera::nn
