// Optimizers and learning rates.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind.h"

namespace tessera::python {
namespace {

nn::LearningRate to_rate(nb::handle object) {
  if (is_number(object)) return nb::cast<double>(nb::float_(object));
  std::vector<double> table;
  for (const nb::handle item : nb::iter(object)) table.push_back(nb::cast<double>(nb::float_(item)));
  return table;
}

// Dictionaries with the keys params, lr, weight_decay.
std::vector<nn::ParameterGroup> to_groups(nb::handle object) {
  std::vector<nn::ParameterGroup> groups;
  if (object.is_none()) return groups;
  for (const nb::handle item : nb::iter(object)) {
    nn::ParameterGroup group;
    for (const auto& [key, value] : nb::borrow<nb::dict>(item)) {
      const auto name = nb::cast<std::string>(key);
      if (name == "params") {
        for (const nb::handle parameter : nb::iter(value))
          group.parameters.push_back(nb::cast<nn::Parameter*>(parameter));
      } else if (name == "lr") {
        group.learning_rate = to_rate(value);
      } else if (name == "weight_decay") {
        group.weight_decay = nb::cast<double>(nb::float_(value));
      } else {
        throw nb::key_error(
            fmt::format("a parameter group has the keys params, lr, weight_decay, not \"{}\"", name).c_str());
      }
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

// Leaves the parameters that are not in its list as they are.
class ChosenParameters : public nn::Optimizer {
 public:
  ChosenParameters(nn::Optimizer& inner, std::vector<const nn::Parameter*> chosen)
      : inner_(inner), chosen_(chosen.begin(), chosen.end()) {}
  void update(ir::Graph& graph, std::span<const nn::ParameterGradient> gradients) override {
    std::vector<nn::ParameterGradient> kept;
    for (const auto& gradient : gradients) {
      if (chosen_.contains(gradient.parameter)) kept.push_back(gradient);
    }
    inner_.update(graph, kept);
  }
  std::vector<nn::Parameter> states(std::span<nn::Parameter* const> parameters) const override {
    std::vector<nn::Parameter*> kept;
    for (nn::Parameter* parameter : parameters) {
      if (chosen_.contains(parameter)) kept.push_back(parameter);
    }
    return inner_.states(kept);
  }

 private:
  nn::Optimizer& inner_;
  std::set<const nn::Parameter*> chosen_;
};

}  // namespace

void bind_optimizers(nb::module_& m) {
  nb::class_<nn::Optimizer>(m, "Optimizer", "Updates a network's trainable parameters from their gradients.",
                            nb::dynamic_attr());
  nb::class_<ChosenParameters, nn::Optimizer>(m, "ChosenParameters",
                                              "Another optimizer for some of the parameters only.")
      .def(nb::init<nn::Optimizer&, std::vector<const nn::Parameter*>>(), "optimizer"_a, "parameters"_a,
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>());
  nb::class_<nn::Momentum, nn::Optimizer>(m, "Momentum", R"(v = momentum * v + g; p -= lr * v. Sutskever et al., 2013.

learning_rate: a number, or one per step. groups: dicts with params, lr, weight_decay.)")
      .def(
          "__init__",
          [](nn::Momentum* self, nb::handle rate, double momentum, double decay, double scale, bool nesterov,
             nb::handle groups) {
            new (self) nn::Momentum({to_rate(rate), momentum, decay, scale, nesterov, to_groups(groups)});
          },
          "learning_rate"_a, "momentum"_a = 0.9, "weight_decay"_a = 0.0, "loss_scale"_a = 1.0, "use_nesterov"_a = false,
          "groups"_a = nb::none());
  nb::class_<nn::SGD, nn::Optimizer>(m, "SGD",
                                     "Stochastic gradient descent with momentum and dampening, in PyTorch's form.")
      .def(
          "__init__",
          [](nn::SGD* self, nb::handle rate, double momentum, double dampening, double decay, double scale,
             bool nesterov, nb::handle groups) {
            new (self) nn::SGD({to_rate(rate), momentum, dampening, decay, scale, nesterov, to_groups(groups)});
          },
          "learning_rate"_a = 0.1, "momentum"_a = 0.0, "dampening"_a = 0.0, "weight_decay"_a = 0.0,
          "loss_scale"_a = 1.0, "nesterov"_a = false, "groups"_a = nb::none());
  nb::class_<nn::Adam, nn::Optimizer>(m, "Adam", "Kingma and Ba, ICLR 2015.")
      .def(
          "__init__",
          [](nn::Adam* self, nb::handle rate, double beta1, double beta2, double eps, double decay, double scale,
             bool nesterov, nb::handle groups) {
            new (self) nn::Adam({to_rate(rate), beta1, beta2, eps, decay, scale, nesterov, to_groups(groups)});
          },
          "learning_rate"_a = 1e-3, "beta1"_a = 0.9, "beta2"_a = 0.999, "eps"_a = 1e-8, "weight_decay"_a = 0.0,
          "loss_scale"_a = 1.0, "use_nesterov"_a = false, "groups"_a = nb::none());
  nb::class_<nn::AdamWeightDecay, nn::Optimizer>(m, "AdamWeightDecay",
                                                 "Adam without bias correction, with decay beside the moments.")
      .def(
          "__init__",
          [](nn::AdamWeightDecay* self, nb::handle rate, double beta1, double beta2, double eps, double decay,
             nb::handle groups) {
            new (self) nn::AdamWeightDecay({.learning_rate = to_rate(rate),
                                            .beta1 = beta1,
                                            .beta2 = beta2,
                                            .eps = eps,
                                            .weight_decay = decay,
                                            .groups = to_groups(groups)});
          },
          "learning_rate"_a = 1e-3, "beta1"_a = 0.9, "beta2"_a = 0.999, "eps"_a = 1e-6, "weight_decay"_a = 0.0,
          "groups"_a = nb::none());
  m.def(
      "cosine_decay_lr",
      [](double min_lr, double max_lr, int64_t total, int64_t per_epoch, int64_t epochs) {
        return nn::cosine_decay_lr({min_lr, max_lr, total, per_epoch, epochs});
      },
      "min_lr"_a, "max_lr"_a, "total_steps"_a, "steps_per_epoch"_a, "decay_epochs"_a,
      "From max_lr to min_lr along half a cosine over decay_epochs, then min_lr.");
  m.def("piecewise_constant_lr", &nn::piecewise_constant_lr, "milestones"_a, "rates"_a,
        "rates[i] up to milestones[i] steps.");
  m.def("with_warmup", &nn::with_warmup, "table"_a, "steps"_a,
        "The table with its first entries multiplied by 1/steps, 2/steps, ..., 1.");
}

}  // namespace tessera::python
