// How parameters start: functions that return an Initializer, and the same by name. Random values are a function of
// (seed, full name of the parameter, position of the element), so they depend on no layout and on no order of creation.
// Defaults are the reference's.
#pragma once

#include <concepts>
#include <string>
#include <utility>

#include "tessera/nn/parameter.h"

namespace tessera::nn {

Initializer zeros();
Initializer ones();
Initializer constant(double value);
// Gaussian of standard deviation `sigma` around `mean`.
Initializer normal(double sigma = 0.01, double mean = 0);
// Even in [-scale, scale).
Initializer uniform(double scale = 0.07);
// Gaussian of standard deviation `sigma` around 0, cut at 2 sigma on both sides.
Initializer truncated_normal(double sigma = 0.01);

// The initializers below look at the parameter's fans and refuse a parameter of fewer than two dims: [out,in] has
// fan_in = in and fan_out = out; [out,in,kh,kw] has in * kh * kw and out * kh * kw.

// Even in +-gain * sqrt(6 / (fan_in + fan_out)): Glorot and Bengio, "Understanding the difficulty of training deep
// feedforward neural networks", 2010.
Initializer xavier_uniform(double gain = 1);
// Gaussian of standard deviation gain * sqrt(2 / (fan_in + fan_out)): the same paper.
Initializer xavier_normal(double gain = 1);
// Even in +-sqrt(6 / fan_in): He et al., "Delving deep into rectifiers", 2015.
Initializer he_uniform();
// Gaussian of standard deviation sqrt(2 / fan_out): the same paper, as image networks use it.
Initializer he_normal();

// Returns the initializer of that name, in upper or lower case, with or without underscores: zeros, ones, normal,
// uniform, truncated_normal, xavier_uniform, xavier_normal, he_uniform, he_normal, each with its defaults. Throws
// InvalidArgument listing them.
Initializer initializer(const std::string& name);

// What layers take: an initializer or the name of one.
//   Dense(64, 10, {.weight_init = "xavier_uniform", .bias_init = constant(0.1)})
class Init {
 public:
  Init(const char* name) : make_(initializer(name)) {}         // NOLINT: implicit, see above
  Init(const std::string& name) : make_(initializer(name)) {}  // NOLINT
  template <typename F>
  requires std::invocable<const F&, const InitContext&> Init(F make) : make_(std::move(make)) {}  // NOLINT
  operator const Initializer&() const { return make_; }                                           // NOLINT

 private:
  Initializer make_;
};

struct Fans {
  double in = 0;
  double out = 0;
};
// Throws InvalidArgument for fewer than two dims.
Fans fans_of(const Shape& shape);

}  // namespace tessera::nn
