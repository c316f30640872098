#include "tessera/train/options/precision.h"

#include "tessera/base/error.h"

namespace tessera::train {
namespace {

compiler::Precision precision_of_level(const std::string& level) {
  // There is no GPU yet: auto is that of a CPU.
  if (level == "O0" || level == "auto") return {};
  if (level == "O2") return {.compute = DType::kF16};
  if (level == "O3") return {.compute = DType::kF16, .keep_norms_f32 = false, .keep_sums_f32 = false};
  throw InvalidArgument("unknown amp_level \"{}\"; available: O0, O2, O3, auto, or precision = bf16", level);
}

}  // namespace

compiler::Precision precision_of(const ModelOptions& options) {
  compiler::Precision precision = precision_of_level(options.amp_level);
  if (options.precision) {
    const DType dtype = *options.precision;
    if (options.amp_level != "O0") {
      throw InvalidArgument("give a precision ({}) or an amp_level ({}), not both", dtype, options.amp_level);
    }
    if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
      throw InvalidArgument("precision must be f32, bf16 or f16, is {}", dtype);
    }
    precision.compute = dtype;
  }
  precision.keep_norms_f32 = options.keep_batchnorm_fp32.value_or(precision.keep_norms_f32);
  return precision;
}

std::optional<nn::LossScale> loss_scale_of(const ModelOptions& options) {
  if (options.loss_scale) return options.loss_scale;
  if (options.precision == DType::kF16 || options.amp_level == "O2") return nn::dynamic_loss_scale();
  return std::nullopt;
}

}  // namespace tessera::train
