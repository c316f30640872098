// How parameters start.
#include <nanobind/stl/string.h>

#include "python/src/bind.h"
#include "python/src/cells.h"
#include "python/src/helped_module.h"

namespace tessera::python {
namespace {

struct NamedInitializer {
  nn::Initializer make;
};

}  // namespace

bool is_initializer(nb::handle object) {
  return nb::isinstance<NamedInitializer>(object) || nb::isinstance<nb::str>(object);
}

nn::Init to_init(nb::handle object) {
  if (nb::isinstance<NamedInitializer>(object)) return nb::cast<NamedInitializer&>(object).make;
  if (nb::isinstance<nb::str>(object)) return nb::cast<std::string>(object);
  if (is_number(object) && !PyBool_Check(object.ptr())) return nn::constant(nb::cast<double>(nb::float_(object)));
  throw nb::type_error(fmt::format("an initializer, its name or a number is needed, got {} of type {}",
                                   nb::cast<std::string>(nb::repr(object)),
                                   nb::cast<std::string>(object.type().attr("__name__")))
                           .c_str());
}

void bind_initializers(nb::module_& m) {
  auto sub = m.def_submodule("initializers", "How parameters start.");
  nb::class_<NamedInitializer>(sub, "Initializer", "What makes a parameter's first value.");
  const auto made = [](nn::Initializer make) { return NamedInitializer{std::move(make)}; };
  helped(sub).def("zeros", [made] { return made(nn::zeros()); });
  helped(sub).def("ones", [made] { return made(nn::ones()); });
  helped(sub).def(
      "constant", [made](double value) { return made(nn::constant(value)); }, "value"_a);
  helped(sub).def(
      "normal", [made](double sigma, double mean) { return made(nn::normal(sigma, mean)); }, "sigma"_a = 0.01,
      "mean"_a = 0.0, "Gaussian of standard deviation sigma around mean.");
  helped(sub).def(
      "uniform", [made](double scale) { return made(nn::uniform(scale)); }, "scale"_a = 0.07,
      "Even in [-scale, scale).");
  helped(sub).def(
      "truncated_normal", [made](double sigma) { return made(nn::truncated_normal(sigma)); }, "sigma"_a = 0.01,
      "Gaussian around 0, cut at 2 sigma on both sides.");
  helped(sub).def(
      "xavier_uniform", [made](double gain) { return made(nn::xavier_uniform(gain)); }, "gain"_a = 1.0,
      "Even in +-gain * sqrt(6 / (fan_in + fan_out)): Glorot and Bengio, 2010.");
  helped(sub).def(
      "xavier_normal", [made](double gain) { return made(nn::xavier_normal(gain)); }, "gain"_a = 1.0,
      "Gaussian of standard deviation gain * sqrt(2 / (fan_in + fan_out)): Glorot and Bengio, 2010.");
  helped(sub).def(
      "he_uniform", [made] { return made(nn::he_uniform()); }, "Even in +-sqrt(6 / fan_in): He et al., 2015.");
  helped(sub).def(
      "he_normal", [made] { return made(nn::he_normal()); },
      "Gaussian of standard deviation sqrt(2 / fan_out): He et al., 2015.");
  helped(sub).def(
      "initializer", [made](const std::string& name) { return made(nn::initializer(name)); }, "name"_a,
      "By name, upper or lower case. Raises InvalidArgument listing the known ones.");
}

}  // namespace tessera::python
