// Random numbers that a network draws.
#include <nanobind/stl/string.h>

#include <cmath>

#include "python/src/bind.h"
#include "python/src/helped_module.h"

namespace tessera::python {
namespace {

using Function = ir::Value (*)(ir::Value step, const Shape& shape, const ops::RandomSource& source, double a, double b,
                               DType dtype);

// What `function`, of the operator `op`, draws: inside construct() anew in each step, outside anew at each call.
nb::object draw(Function function, const char* op, nb::handle shape, double a, double b, nb::handle dtype) {
  Operation operation;
  ops::RandomSource source{.seed = global_seed()};
  ir::Value step;
  if (ir::Graph* graph = current_graph()) {
    step = nn::random_step(*graph);
    source.stream = nn::random_stream(*graph, op);
  } else {
    step = operation.value(nb::cast(Tensor::scalar(draws_of_script()++)));
  }
  return operation.finish(function(step, Shape(to_ints(shape)), source, a, b, to_dtype(dtype)));
}

int mantissa_bits(DType dtype) {
  return dtype == DType::kF16 ? 10 : dtype == DType::kBF16 ? 7 : dtype == DType::kF32 ? 23 : 52;
}

// The largest number of the dtype that is below `high`, which is not 0.
double next_below(double high, DType dtype) {
  int exponent = 0;
  const bool is_power_of_two = std::frexp(high, &exponent) == 0.5;
  const double spacing = std::ldexp(1, exponent - 1 - mantissa_bits(dtype) - (is_power_of_two ? 1 : 0));
  return (std::ceil(high / spacing) - 1) * spacing;
}

// As ops::random_uniform, but never `high`, to which rounding to the dtype may take a draw.
ir::Value uniform_below(ir::Value step, const Shape& shape, const ops::RandomSource& source, double low, double high,
                        DType dtype) {
  const auto drawn = ops::random_uniform(step, shape, source, low, high, dtype);
  if (high == 0 || !(low < high) || next_below(high, dtype) < low) return drawn;
  return ops::minimum(drawn, next_below(high, dtype));
}

}  // namespace

void bind_random(nb::module_& m) {
  helped(m).def(
      "random_uniform",
      [](nb::handle shape, double low, double high, nb::handle dtype) {
        if (low > high) throw InvalidArgument("random_uniform: low {} is above high {}", low, high);
        return draw(&uniform_below, "random_uniform", shape, low, high, dtype);
      },
      "shape"_a, "low"_a = 0.0, "high"_a = 1.0, "dtype"_a = "float32",
      R"(Numbers even in [low, high), of a floating dtype. Raises InvalidArgument where low is above high.

Inside construct() they are drawn anew in each training step, and are the same however the network is split: element i is a
function of set_seed()'s number, the cell's path, the step and i. A Model's eval() and predict() draw those of its last
training step. Outside they are drawn anew at each call.)");
  helped(m).def(
      "random_normal",
      [](nb::handle shape, double mean, double sigma, nb::handle dtype) {
        if (sigma < 0) throw InvalidArgument("random_normal: sigma must be at least 0, got {}", sigma);
        return draw(&ops::random_normal, "random_normal", shape, mean, sigma, dtype);
      },
      "shape"_a, "mean"_a = 0.0, "sigma"_a = 1.0, "dtype"_a = "float32",
      "Gaussian numbers of standard deviation sigma around mean; drawn as random_uniform() says. Raises "
      "InvalidArgument for "
      "a negative sigma.");
}

}  // namespace tessera::python
