// Optimizers and learning rates.
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <numeric>

#include "python/src/bind.h"
#include "python/src/helped_module.h"
#include "python/src/keywords.h"

namespace tessera::python {
namespace {

// Of an optimizer's Python object.
constexpr const char* kStatePrefix = "state_prefix";

// A number, one per step, a schedule, or a cell that makes it of the step.
// By full name: of which tables rows that were not looked up stay; None where the optimizer decides.
using IsLazy = std::optional<std::function<bool(const std::string&)>>;

nn::LearningRate to_rate(nb::handle object) {
  if (nb::isinstance<nn::Cell>(object)) {
    const auto cell = nb::cast<std::shared_ptr<nn::Cell>>(object);
    return nn::LearningRate::Schedule([cell](ir::Value step) { return (*cell)(step); });
  }
  if (nb::isinstance<nn::RateSchedule>(object)) return nb::cast<const nn::RateSchedule&>(object);
  if (is_number(object)) return nb::cast<double>(nb::float_(object));
  // A text would be a list of its letters.
  if (nb::isinstance<nb::str>(object) || nb::isinstance<nb::bytes>(object)) {
    throw InvalidArgument("learning_rate is a number, a list of one per step, a schedule, or a cell; got the text {}",
                          nb::cast<std::string>(nb::repr(object)));
  }
  std::vector<double> table;
  for (const nb::handle item : nb::iter(object)) {
    if (nb::isinstance<nn::Parameter>(item)) {
      throw nb::type_error(
          "an optimizer takes no parameters: the Model gives it those of its network. learning_rate is a number, a "
          "list "
          "of one per step, a schedule, or a cell; got parameters. Those that learn otherwise, or alone, stand in "
          "groups=[{\"params\": ..., \"lr\": ...}]");
    }
    table.push_back(nb::cast<double>(nb::float_(item)));
  }
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
        for (const nb::handle parameter : nb::iter(value)) {
          if (!nb::isinstance<nn::Parameter>(parameter)) {
            throw nb::type_error(
                fmt::format("a group's params are parameters of the network, as network.parameters() gives them, "
                            "got {}",
                            nb::cast<std::string>(nb::repr(parameter)))
                    .c_str());
          }
          group.parameters.push_back(nb::cast<nn::Parameter*>(parameter));
        }
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
  void set_state_prefix(const std::string& prefix) override { inner_.set_state_prefix(prefix); }
  nn::RowUpdates row_updates(const nn::Parameter& parameter) const override {
    return chosen_.contains(&parameter) ? inner_.row_updates(parameter) : nn::RowUpdates::kNever;
  }

 private:
  nn::Optimizer& inner_;
  std::set<const nn::Parameter*> chosen_;
};

// Multiplies the gradients of some parameters.
class ScaledGradients : public nn::Optimizer {
 public:
  ScaledGradients(nn::Optimizer& inner, std::map<const nn::Parameter*, double> factors)
      : inner_(inner), factors_(std::move(factors)) {}
  void update(ir::Graph& graph, std::span<const nn::ParameterGradient> gradients) override {
    std::vector<nn::ParameterGradient> scaled(gradients.begin(), gradients.end());
    for (auto& pair : scaled) {
      const auto factor = factors_.find(pair.parameter);
      if (factor == factors_.end()) continue;
      ir::Value& gradient = pair.rows ? pair.rows->rows : pair.gradient;
      gradient = gradient * factor->second;
    }
    inner_.update(graph, scaled);
  }
  std::vector<nn::Parameter> states(std::span<nn::Parameter* const> parameters) const override {
    return inner_.states(parameters);
  }
  void set_state_prefix(const std::string& prefix) override { inner_.set_state_prefix(prefix); }
  nn::RowUpdates row_updates(const nn::Parameter& parameter) const override { return inner_.row_updates(parameter); }

 private:
  nn::Optimizer& inner_;
  std::map<const nn::Parameter*, double> factors_;
};

// Takes from the gradients of some parameters their mean over all dims but the first. Yong et al., ECCV 2020.
class CentralizedGradients : public nn::Optimizer {
 public:
  CentralizedGradients(nn::Optimizer& inner, std::vector<const nn::Parameter*> chosen)
      : inner_(inner), chosen_(chosen.begin(), chosen.end()) {}
  void update(ir::Graph& graph, std::span<const nn::ParameterGradient> gradients) override {
    std::vector<nn::ParameterGradient> central(gradients.begin(), gradients.end());
    for (auto& pair : central) {
      ir::Value& gradient = pair.gradient;
      if (!is_centralized(*pair.parameter) || !gradient) continue;
      Ints dims(static_cast<size_t>(gradient.ndim()) - 1);
      std::iota(dims.begin(), dims.end(), 1);
      gradient = gradient - ops::reduce_mean(gradient, dims, /*keep_dims=*/true);
    }
    inner_.update(graph, central);
  }
  std::vector<nn::Parameter> states(std::span<nn::Parameter* const> parameters) const override {
    return inner_.states(parameters);
  }
  void set_state_prefix(const std::string& prefix) override { inner_.set_state_prefix(prefix); }
  nn::RowUpdates row_updates(const nn::Parameter& parameter) const override {
    return is_centralized(parameter) ? nn::RowUpdates::kNever : inner_.row_updates(parameter);
  }

 private:
  bool is_centralized(const nn::Parameter& parameter) const {
    return chosen_.contains(&parameter) && parameter.type.shape.ndim() >= 2;
  }

  nn::Optimizer& inner_;
  std::set<const nn::Parameter*> chosen_;
};

void bind_loss_scale(nb::module_& m) {
  nb::class_<nn::LossScale>(m, "LossScale", R"(What the loss is multiplied by before it is differentiated.

The gradients of the parameters are divided by it again. A step whose gradients or loss are not finite is skipped on all ranks,
unless drop_overflow_update is False. Micikevicius et al., 2018. Made by dynamic_loss_scale and fixed_loss_scale.)")
      .def_ro("initial", &nn::LossScale::initial)
      .def_ro("factor", &nn::LossScale::factor, "1: the scale is fixed.")
      .def_ro("window", &nn::LossScale::window)
      .def_ro("drop_overflow_update", &nn::LossScale::drop_overflow_update);
  helped(m).def(
      "dynamic_loss_scale",
      [](double initial, double factor, int64_t window) {
        return nn::dynamic_loss_scale({initial, factor, window});
      },
      "init_loss_scale"_a = 16777216.0, "scale_factor"_a = 2.0, "scale_window"_a = 2000,
      "Divided by the factor when a step overflows, not below 1; multiplied by it after scale_window clean steps.");
  helped(m).def("fixed_loss_scale", &nn::fixed_loss_scale, "loss_scale"_a = 128.0, "drop_overflow_update"_a = true);
}

// What all of them are.
void bind_optimizer(nb::module_& m) {
  nb::class_<nn::Optimizer>(m, "Optimizer", "Updates a network's trainable parameters from their gradients.",
                            nb::dynamic_attr())
      .def("__setattr__", &set_unless_option, "name"_a, "value"_a.none())
      .def(
          "set_state_prefix",
          [](nb::handle self, const std::string& prefix) {
            nb::cast<nn::Optimizer&>(self).set_state_prefix(prefix);
            nb::borrow<nb::dict>(self.attr("__dict__"))[kStatePrefix] = nb::cast(prefix);
          },
          "prefix"_a, R"(What the names of the states begin with from here on, "" unless it is set.

Two optimizers of one step need states of their own. Where update() finds that a state has the name of another one's, it names
its own "optimizer_2.", or by the next number that is free.)");
}

// Optimizers that hand what they are given to another one.
void bind_optimizers_of_others(nb::module_& m) {
  nb::class_<ChosenParameters, nn::Optimizer>(m, "ChosenParameters",
                                              "Another optimizer for some of the parameters only.")
      .def(nb::init<nn::Optimizer&, std::vector<const nn::Parameter*>>(), "optimizer"_a, "parameters"_a,
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>());
  nb::class_<ScaledGradients, nn::Optimizer>(
      m, "ScaledGradients", "Another optimizer, given the gradients of some parameters times a factor.")
      .def(
          "__init__",
          [](ScaledGradients* self, nn::Optimizer& inner, const nb::dict& factors) {
            std::map<const nn::Parameter*, double> by_parameter;
            for (const auto& [parameter, factor] : factors)
              by_parameter[nb::cast<nn::Parameter*>(parameter)] = nb::cast<double>(nb::float_(factor));
            new (self) ScaledGradients(inner, std::move(by_parameter));
          },
          "optimizer"_a, "factors"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>());
  nb::class_<CentralizedGradients, nn::Optimizer>(m, "CentralizedGradients",
                                                  "Another optimizer, given the gradients of some parameters less "
                                                  "their mean over all dims but the first. Yong et al., ECCV 2020.")
      .def(nb::init<nn::Optimizer&, std::vector<const nn::Parameter*>>(), "optimizer"_a, "parameters"_a,
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>());
  nb::class_<nn::ExponentialMovingAverage, nn::Optimizer>(
      m, "ExponentialMovingAverage",
      R"(Another optimizer, with an average of each parameter that is trained.

After each update, with the parameter as it is then: average += (1 - decay) * (parameter - average). The averages are states of the
optimizer, ema.<parameter>, float32 for half types. start_step: so many updates are copied before the first that is averaged; the
first of all always is. warms_up: the decay of the n-th is at most (1 + n) / (10 + n). overwrite_steps: after each so many updates the
parameters take their averages' values. Model.averages() evaluates with them.)")
      .def(
          "__init__",
          [](nn::ExponentialMovingAverage* self, nn::Optimizer& inner, double decay, int64_t start_step, bool warms_up,
             int64_t overwrite_steps) {
            new (self) nn::ExponentialMovingAverage(inner, {decay, start_step, warms_up, overwrite_steps});
          },
          "optimizer"_a, "decay"_a = 0.999, "start_step"_a = 0, "warms_up"_a = false, "overwrite_steps"_a = 0,
          nb::keep_alive<1, 2>());
}

// Steps down the gradient, or by its signs.
void bind_descent(nb::module_& m) {
  nb::class_<nn::Momentum, nn::Optimizer>(m, "Momentum", R"(v = momentum * v + g; p -= lr * v. Sutskever et al., 2013.

learning_rate: a number, one per step, or a cell that makes it of the step, i32[]. groups: dicts with params, lr, weight_decay.
is_strict=False: a momentum above 1, and use_nesterov without momentum, are taken, as MindSpore takes them.)")
      .def(
          "__init__",
          [](nn::Momentum* self, nb::handle rate, double momentum, double decay, double scale, bool nesterov,
             nb::handle groups, bool is_strict) {
            new (self) nn::Momentum({to_rate(rate), momentum, decay, scale, nesterov, to_groups(groups), is_strict});
          },
          "learning_rate"_a, "momentum"_a = 0.9, "weight_decay"_a = 0.0, "loss_scale"_a = 1.0, "use_nesterov"_a = false,
          "groups"_a = nb::none(), "is_strict"_a = true);
  nb::class_<nn::SGD, nn::Optimizer>(m, "SGD",
                                     R"(Stochastic gradient descent with momentum and dampening, in PyTorch's form.

is_strict=False: a momentum above 1, and dampening without momentum, are taken, as MindSpore takes them.)")
      .def(
          "__init__",
          [](nn::SGD* self, nb::handle rate, double momentum, double dampening, double decay, double scale,
             bool nesterov, nb::handle groups, bool is_strict) {
            new (self)
                nn::SGD({to_rate(rate), momentum, dampening, decay, scale, nesterov, to_groups(groups), is_strict});
          },
          "learning_rate"_a = 0.1, "momentum"_a = 0.0, "dampening"_a = 0.0, "weight_decay"_a = 0.0,
          "loss_scale"_a = 1.0, "nesterov"_a = false, "groups"_a = nb::none(), "is_strict"_a = true);
  nb::class_<nn::Rprop, nn::Optimizer>(
      m, "Rprop", "Steps whose lengths follow the signs of gradients. Riedmiller and Braun, ICNN 1993.")
      .def(
          "__init__",
          [](nn::Rprop* self, nb::handle rate, double smaller, double larger, double least, double longest,
             double decay, nb::handle groups) {
            new (self) nn::Rprop({to_rate(rate), smaller, larger, least, longest, decay, to_groups(groups)});
          },
          "learning_rate"_a = 0.1, "smaller"_a = 0.5, "larger"_a = 1.2, "least_step"_a = 1e-6, "longest_step"_a = 50.0,
          "weight_decay"_a = 0.0, "groups"_a = nb::none());
  nb::class_<nn::ASGD, nn::Optimizer>(
      m, "ASGD", "Steps down the gradient, and the mean of what they reach. Polyak and Juditsky, 1992.")
      .def(
          "__init__",
          [](nn::ASGD* self, nb::handle rate, double lambd, double alpha, double t0, double decay, nb::handle groups) {
            new (self) nn::ASGD({to_rate(rate), lambd, alpha, t0, decay, to_groups(groups)});
          },
          "learning_rate"_a = 0.1, "lambd"_a = 1e-4, "alpha"_a = 0.75, "t0"_a = 1e6, "weight_decay"_a = 0.0,
          "groups"_a = nb::none());
}

// Adam and what was made of it.
void bind_adam(nb::module_& m) {
  nb::class_<nn::Adam, nn::Optimizer>(m, "Adam", "Kingma and Ba, ICLR 2015.")
      .def(
          "__init__",
          [](nn::Adam* self, nb::handle rate, double beta1, double beta2, double eps, double decay, double scale,
             bool nesterov, nb::handle groups) {
            new (self) nn::Adam({to_rate(rate), beta1, beta2, eps, decay, scale, nesterov, to_groups(groups)});
          },
          "learning_rate"_a = 1e-3, "beta1"_a = 0.9, "beta2"_a = 0.999, "eps"_a = 1e-8, "weight_decay"_a = 0.0,
          "loss_scale"_a = 1.0, "use_nesterov"_a = false, "groups"_a = nb::none());
  nb::class_<nn::LazyAdam, nn::Optimizer>(m, "LazyAdam",
                                          R"(Adam that spares rows of tables that a step has not looked up.

Rows that it has looked up, in an Embedding or by gather along axis 0, are updated as Adam updates them; all others, and their
moments, stay. is_lazy: a function of a parameter's full name, True for tables that are updated so; without it all are.)")
      .def(
          "__init__",
          [](nn::LazyAdam* self, nb::handle rate, double beta1, double beta2, double eps, double decay, double scale,
             bool nesterov, nb::handle groups, IsLazy is_lazy) {
            new (self) nn::LazyAdam({to_rate(rate), beta1, beta2, eps, decay, scale, nesterov, to_groups(groups),
                                     is_lazy.value_or(IsLazy::value_type())});
          },
          "learning_rate"_a = 1e-3, "beta1"_a = 0.9, "beta2"_a = 0.999, "eps"_a = 1e-8, "weight_decay"_a = 0.0,
          "loss_scale"_a = 1.0, "use_nesterov"_a = false, "groups"_a = nb::none(), "is_lazy"_a = nb::none());
  nb::class_<nn::AdamW, nn::Optimizer>(
      m, "AdamW", "Adam whose decay does not pass through the moments: Loshchilov and Hutter, ICLR 2019.")
      .def(
          "__init__",
          [](nn::AdamW* self, nb::handle rate, double beta1, double beta2, double eps, double decay, double scale,
             nb::handle groups) {
            new (self) nn::AdamW({to_rate(rate), beta1, beta2, eps, decay, scale, to_groups(groups)});
          },
          "learning_rate"_a = 1e-3, "beta1"_a = 0.9, "beta2"_a = 0.999, "eps"_a = 1e-8, "weight_decay"_a = 0.01,
          "loss_scale"_a = 1.0, "groups"_a = nb::none());
  nb::class_<nn::Lamb, nn::Optimizer>(
      m, "Lamb",
      "Adam whose step is as long, for each parameter, as the parameter times the rate. You et al., ICLR 2020.")
      .def(
          "__init__",
          [](nn::Lamb* self, nb::handle rate, double beta1, double beta2, double eps, double decay, double scale,
             nb::handle groups) {
            new (self) nn::Lamb({to_rate(rate), beta1, beta2, eps, decay, scale, to_groups(groups)});
          },
          "learning_rate"_a = 1e-3, "beta1"_a = 0.9, "beta2"_a = 0.999, "eps"_a = 1e-6, "weight_decay"_a = 0.0,
          "loss_scale"_a = 1.0, "groups"_a = nb::none());
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
  nb::class_<nn::AdaMax, nn::Optimizer>(m, "AdaMax",
                                        "Adam with the largest decayed gradient. Kingma and Ba, ICLR 2015.")
      .def(
          "__init__",
          [](nn::AdaMax* self, nb::handle rate, double beta1, double beta2, double eps, double decay, double scale,
             nb::handle groups) {
            new (self) nn::AdaMax({to_rate(rate), beta1, beta2, eps, decay, scale, to_groups(groups)});
          },
          "learning_rate"_a = 1e-3, "beta1"_a = 0.9, "beta2"_a = 0.999, "eps"_a = 1e-8, "weight_decay"_a = 0.0,
          "loss_scale"_a = 1.0, "groups"_a = nb::none());
  nb::class_<nn::AMSGrad, nn::Optimizer>(
      m, "AMSGrad", "Adam that divides by the largest second moment that there was. Reddi et al., ICLR 2018.")
      .def(
          "__init__",
          [](nn::AMSGrad* self, nb::handle rate, double beta1, double beta2, double eps, double decay, double scale,
             nb::handle groups) {
            new (self) nn::AMSGrad({to_rate(rate), beta1, beta2, eps, decay, scale, to_groups(groups)});
          },
          "learning_rate"_a = 1e-3, "beta1"_a = 0.9, "beta2"_a = 0.999, "eps"_a = 1e-8, "weight_decay"_a = 0.0,
          "loss_scale"_a = 1.0, "groups"_a = nb::none());
}

// Steps over sums or means of squares of gradients.
void bind_squares(nb::module_& m) {
  nb::class_<nn::Adagrad, nn::Optimizer>(m, "Adagrad",
                                         "accum += g^2; p -= lr * g / sqrt(accum). Duchi et al., JMLR 2011.")
      .def(
          "__init__",
          [](nn::Adagrad* self, nb::handle rate, double accum, bool update_slots, double decay, double scale,
             nb::handle groups) {
            new (self) nn::Adagrad({accum, to_rate(rate), update_slots, decay, scale, to_groups(groups)});
          },
          "learning_rate"_a = 1e-3, "accum"_a = 0.1, "update_slots"_a = true, "weight_decay"_a = 0.0,
          "loss_scale"_a = 1.0, "groups"_a = nb::none());
  nb::class_<nn::RMSProp, nn::Optimizer>(
      m, "RMSProp", R"(Gradients divided by the root of their mean square: Tieleman and Hinton, 2012.

is_strict=False: a decay or momentum above 1 is taken, as MindSpore takes it.)")
      .def(
          "__init__",
          [](nn::RMSProp* self, nb::handle rate, double decay_rate, double momentum, double epsilon, bool centered,
             double decay, double scale, nb::handle groups, bool is_strict) {
            new (self) nn::RMSProp(
                {to_rate(rate), decay_rate, momentum, epsilon, centered, decay, scale, to_groups(groups), is_strict});
          },
          "learning_rate"_a = 0.1, "decay"_a = 0.9, "momentum"_a = 0.0, "epsilon"_a = 1e-10, "centered"_a = false,
          "weight_decay"_a = 0.0, "loss_scale"_a = 1.0, "groups"_a = nb::none(), "is_strict"_a = true);
  nb::class_<nn::FTRL, nn::Optimizer>(m, "FTRL", R"(Follow the regularised leader: McMahan et al., KDD 2013.

is_lazy: a function of a parameter's full name, True for tables of which rows that a step has not looked up stay; without it the first
step moves all rows.)")
      .def(
          "__init__",
          [](nn::FTRL* self, nb::handle rate, double accum, double power, double l1, double l2, double decay,
             double scale, nb::handle groups, IsLazy is_lazy) {
            new (self) nn::FTRL({accum, to_rate(rate), power, l1, l2, decay, scale, to_groups(groups),
                                 is_lazy.value_or(IsLazy::value_type())});
          },
          "learning_rate"_a = 1e-3, "initial_accum"_a = 0.1, "lr_power"_a = -0.5, "l1"_a = 0.0, "l2"_a = 0.0,
          "weight_decay"_a = 0.0, "loss_scale"_a = 1.0, "groups"_a = nb::none(), "is_lazy"_a = nb::none());
  nb::class_<nn::Adadelta, nn::Optimizer>(
      m, "Adadelta", "Steps as long as earlier ones were, over the gradients' mean square. Zeiler, 2012.")
      .def(
          "__init__",
          [](nn::Adadelta* self, nb::handle rate, double rho, double epsilon, double decay, double scale,
             nb::handle groups) {
            new (self) nn::Adadelta({to_rate(rate), rho, epsilon, decay, scale, to_groups(groups)});
          },
          "learning_rate"_a = 1.0, "rho"_a = 0.9, "epsilon"_a = 1e-6, "weight_decay"_a = 0.0, "loss_scale"_a = 1.0,
          "groups"_a = nb::none());
}

// Tables of learning rates.
void bind_rates(nb::module_& m) {
  helped(m).def(
      "cosine_decay_lr",
      [](double min_lr, double max_lr, int64_t total, int64_t per_epoch, int64_t epochs) {
        return nn::cosine_decay_lr({min_lr, max_lr, total, per_epoch, epochs});
      },
      "min_lr"_a, "max_lr"_a, "total_steps"_a, "steps_per_epoch"_a, "decay_epochs"_a,
      "From max_lr to min_lr along half a cosine over decay_epochs, then min_lr.");
  helped(m).def("piecewise_constant_lr", &nn::piecewise_constant_lr, "milestones"_a, "rates"_a,
                "rates[i] up to milestones[i] steps.");
  helped(m).def("with_warmup", &nn::with_warmup, "table"_a, "steps"_a,
                "The table with its first entries multiplied by 1/steps, 2/steps, ..., 1.");
}

}  // namespace

std::string state_prefix_of(nb::handle optimizer) {
  const nb::dict own = nb::borrow<nb::dict>(optimizer.attr("__dict__"));
  return own.contains(kStatePrefix) ? nb::cast<std::string>(own[kStatePrefix]) : "";
}

void bind_optimizers(nb::module_& m) {
  bind_optimizer(m);
  bind_optimizers_of_others(m);
  bind_loss_scale(m);
  bind_descent(m);
  bind_adam(m);
  bind_squares(m);
  bind_rates(m);
}

}  // namespace tessera::python
