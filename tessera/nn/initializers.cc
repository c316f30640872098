#include "tessera/nn/initializers.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/ops/functions/creation_functions.h"

namespace tessera::nn {
namespace {

// Who draws the values of this parameter.
ops::RandomSource source_of(const InitContext& context) {
  if (!is_floating(context.type.dtype)) {
    throw InvalidArgument("parameter \"{}\" is {}: random initial values need a floating dtype", context.name,
                          context.type);
  }
  return {.seed = context.seed, .stream = hash_name(context.name)};
}

// Initial values are drawn at step 0: the steps of training belong to dropout and the like, whose streams have other
// names.
ir::Value step_zero(const InitContext& context) { return ops::fill(context.graph, {}, 0, DType::kI64); }

ir::Value draw_uniform(const InitContext& context, double bound) {
  const auto source = source_of(context);
  return ops::random_uniform(step_zero(context), context.type.shape, source, -bound, bound, context.type.dtype);
}

ir::Value draw_normal(const InitContext& context, double mean, double sigma) {
  const auto source = source_of(context);
  return ops::random_normal(step_zero(context), context.type.shape, source, mean, sigma, context.type.dtype);
}

Fans fans_for(const InitContext& context, const char* who) {
  if (context.type.shape.ndim() < 2) {
    throw InvalidArgument("parameter \"{}\" {}: {} needs at least two dims to know the fans; use uniform or normal",
                          context.name, context.type, who);
  }
  return fans_of(context.type.shape);
}

void check_positive(const char* what, double value) {
  if (!(value >= 0) || !std::isfinite(value)) {
    throw InvalidArgument("initializer: {} must be finite and not negative, got {}", what, value);
  }
}

const std::map<std::string, Initializer>& known_initializers() {
  static const std::map<std::string, Initializer> by_name = {
      {"zeros", zeros()},
      {"ones", ones()},
      {"normal", normal()},
      {"uniform", uniform()},
      {"truncated_normal", truncated_normal()},
      {"xavier_uniform", xavier_uniform()},
      {"xavier_normal", xavier_normal()},
      {"he_uniform", he_uniform()},
      {"he_normal", he_normal()},
  };
  return by_name;
}

std::string simplified(const std::string& name) {
  std::string result;
  for (const char c : name) {
    if (c != '_') result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

}  // namespace

Initializer constant(double value) {
  return [value](const InitContext& context) {
    return ops::fill(context.graph, context.type.shape, value, context.type.dtype);
  };
}
Initializer zeros() { return constant(0); }
Initializer ones() { return constant(1); }

Initializer normal(double sigma, double mean) {
  check_positive("sigma", sigma);
  return [=](const InitContext& context) { return draw_normal(context, mean, sigma); };
}

Initializer uniform(double scale) {
  check_positive("scale", scale);
  return [=](const InitContext& context) { return draw_uniform(context, scale); };
}

Initializer truncated_normal(double sigma) {
  check_positive("sigma", sigma);
  return [=](const InitContext& context) {
    const auto source = source_of(context);
    return ops::random_truncated_normal(step_zero(context), context.type.shape, source, sigma, context.type.dtype);
  };
}

Initializer xavier_uniform(double gain) {
  check_positive("gain", gain);
  return [=](const InitContext& context) {
    const Fans fans = fans_for(context, "xavier_uniform");
    return draw_uniform(context, gain * std::sqrt(6 / (fans.in + fans.out)));
  };
}

Initializer xavier_normal(double gain) {
  check_positive("gain", gain);
  return [=](const InitContext& context) {
    const Fans fans = fans_for(context, "xavier_normal");
    return draw_normal(context, 0, gain * std::sqrt(2 / (fans.in + fans.out)));
  };
}

Initializer he_uniform() {
  return [](const InitContext& context) {
    return draw_uniform(context, std::sqrt(6 / fans_for(context, "he_uniform").in));
  };
}

Initializer he_normal() {
  return [](const InitContext& context) {
    return draw_normal(context, 0, std::sqrt(2 / fans_for(context, "he_normal").out));
  };
}

Initializer initializer(const std::string& name) {
  std::string names;
  for (const auto& [known_name, make] : known_initializers()) {
    if (simplified(known_name) == simplified(name)) return make;
    names += (names.empty() ? "" : ", ") + known_name;
  }
  throw InvalidArgument("initializer \"{}\" is not known; there are: {}", name, names);
}

Fans fans_of(const Shape& shape) {
  if (shape.ndim() < 2) throw InvalidArgument("fans need at least two dims, got shape {}", shape);
  double window = 1;
  for (int dim = 2; dim < shape.ndim(); ++dim) window *= static_cast<double>(shape[dim]);
  return {static_cast<double>(shape[1]) * window, static_cast<double>(shape[0]) * window};
}

}  // namespace tessera::nn
