#include "tessera/kernels/cuda/optimizers/update_program.h"

#include "tessera/kernels/cuda/core/writer.h"

// As reference/optimizers.cc states them. Statements name the operands; C is the type that is computed in.

namespace tessera::cuda {
namespace {

// The settings of an update as literals of the type that it is computed in.
struct Settings {
  const Attributes& attributes;
  DType computed;

  std::string number(double value) const { return literal(value, computed); }
  std::string number(const char* name) const { return number(attributes.get_double(name)); }
  bool is(const char* name) const { return attributes.get_bool(name); }
  double value(const char* name) const { return attributes.get_double(name); }
};

// "g": the gradient of the loss that was not scaled; with `decay` the parameter's share is added.
std::string gradient_text(const Settings& settings, const char* grad, bool decay) {
  std::string text = settings.value("loss_scale") == 1
                         ? fmt::format("const C unscaled = {};\n", grad)
                         : fmt::format("const C unscaled = {} / {};\n", grad, settings.number("loss_scale"));
  return text + (decay ? fmt::format("const C g = unscaled + {} * param;\n", settings.number("weight_decay"))
                       : "const C g = unscaled;\n");
}

// The new moments of Adam and its like.
std::string moments_text(const Settings& settings) {
  return fmt::format("const C new_m = {} * m + {} * g;\nconst C new_v = {} * v + {} * g * g;\n",
                     settings.number("beta1"), settings.number(1 - settings.value("beta1")), settings.number("beta2"),
                     settings.number(1 - settings.value("beta2")));
}

ElementProgram momentum(const Settings& settings) {
  ElementProgram program;
  program.statements = "const C param = a0, moment = a1, rate = a3, kept = a4;\n" +
                       gradient_text(settings, "a2", true) + "const C new_moment = kept * moment + g;\n";
  program.results = {
      settings.is("nesterov") ? "param - (g * rate + new_moment * kept * rate)" : "param - rate * new_moment",
      "new_moment"};
  return program;
}

ElementProgram sgd(const Settings& settings) {
  ElementProgram program;
  program.statements = "const C param = a0, accum = a1, rate = a3, kept = a4;\n" + gradient_text(settings, "a2", true) +
                       fmt::format("const C moved = a5 != 0 ? g : kept * accum + {} * g;\n",
                                   settings.number(1 - settings.value("dampening")));
  program.results = {
      fmt::format("param - rate * (kept == 0 ? g : {})", settings.is("nesterov") ? "g + kept * moved" : "moved"),
      "kept == 0 ? accum : moved"};
  return program;
}

ElementProgram adam(const Settings& settings) {
  ElementProgram program;
  program.statements = "const C param = a0, m = a1, v = a2;\nconst C rate = a4 * std::sqrt(1 - a6) / (1 - a5);\n" +
                       gradient_text(settings, "a3", true) + moments_text(settings);
  const std::string direction = settings.is("nesterov") ? fmt::format("({} * new_m + {} * g)", settings.number("beta1"),
                                                                      settings.number(1 - settings.value("beta1")))
                                                        : "new_m";
  program.results = {fmt::format("param - rate * {} / (std::sqrt(new_v) + {})", direction, settings.number("eps")),
                     "new_m", "new_v"};
  return program;
}

ElementProgram adam_weight_decay(const Settings& settings) {
  ElementProgram program;
  program.statements = "const C param = a0, m = a1, v = a2, rate = a4;\n" + gradient_text(settings, "a3", false) +
                       moments_text(settings);
  program.results = {fmt::format("param - rate * (new_m / (std::sqrt(new_v) + {}) + {} * param)",
                                 settings.number("eps"), settings.number("weight_decay")),
                     "new_m", "new_v"};
  return program;
}

ElementProgram adamw(const Settings& settings) {
  ElementProgram program;
  program.statements = fmt::format(
      "const C param = a0, m = a1, v = a2, kept = 1 - a4 * {}, rate = a4 / (1 - a5), correction = 1 - a6;\n",
      settings.number("weight_decay"));
  program.statements += gradient_text(settings, "a3", false) + moments_text(settings);
  program.results = {
      fmt::format("kept * param - rate * new_m / (std::sqrt(new_v / correction) + {})", settings.number("eps")),
      "new_m", "new_v"};
  return program;
}

ElementProgram adagrad(const Settings& settings) {
  ElementProgram program;
  program.statements = "const C param = a0, accum = a1, rate = a3;\n" + gradient_text(settings, "a2", true) +
                       fmt::format("const C new_accum = accum{};\n", settings.is("update_slots") ? " + g * g" : "");
  program.results = {"param - rate * g / std::sqrt(new_accum)", "new_accum"};
  return program;
}

ElementProgram ftrl(const Settings& settings) {
  const double exponent = -settings.value("lr_power");
  const auto power = [&](const char* x) {
    return exponent == 0.5 ? fmt::format("std::sqrt({})", x)
                           : fmt::format("std::pow({}, {})", x, settings.number(exponent));
  };
  ElementProgram program;
  program.statements =
      "const C param = a0, moments = a1, linear = a2, rate = a4;\n" + gradient_text(settings, "a3", true) +
      "const C next = moments + g * g;\n" +
      fmt::format("const C root = {};\nconst C new_linear = linear + g - (root - {}) / rate * param;\n", power("next"),
                  power("moments")) +
      fmt::format("const C l1 = {};\nconst C towards = new_linear > 0 ? l1 : new_linear < 0 ? -l1 : C(0);\n",
                  settings.number("l1"));
  // A rate of 0, by which was divided, leaves all as it is.
  program.results = {
      fmt::format("rate == 0 ? param : std::abs(new_linear) > l1 ? (towards - new_linear) / (root / rate + {}) : C(0)",
                  settings.number(2 * settings.value("l2"))),
      "rate == 0 ? moments : next", "rate == 0 ? linear : new_linear"};
  return program;
}

}  // namespace

std::optional<ElementProgram> update_program(const std::string& optimizer, const Attributes& attributes,
                                             DType computed) {
  struct Optimizer {
    const char* name;
    ElementProgram (*write)(const Settings& settings);
  };
  static constexpr Optimizer kOptimizers[] = {
      {"momentum", momentum}, {"sgd", sgd},         {"adam", adam}, {"adam_weight_decay", adam_weight_decay},
      {"adamw", adamw},       {"adagrad", adagrad}, {"ftrl", ftrl}};
  for (const Optimizer& known : kOptimizers) {
    if (known.name != optimizer) continue;
    ElementProgram program = known.write({attributes, computed});
    program.computed = computed;
    program.statements = fmt::format("using C = {};\n", to_string(computed)) + program.statements;
    return program;
  }
  return std::nullopt;
}

}  // namespace tessera::cuda
