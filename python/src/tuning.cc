// Schedules of learning rates, and parameters chosen by pattern.
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <utility>

#include "python/src/bind.h"
#include "python/src/cells.h"
#include "python/src/helped_module.h"

namespace tessera::python {
namespace {

void bind_schedules(nb::module_& nn_module) {
  auto m = nn_module.def_submodule("schedules", R"(Learning rates as functions of the step, from 0.

An optimizer takes one as its learning_rate: nn.AdamW(nn.schedules.warmup(500, nn.schedules.cosine(1e-3, 20000))). Those
that change without end are given as schedule.table(num_steps). Steps behind the last one have its rate.)");
  nb::class_<nn::RateSchedule>(m, "RateSchedule", "A learning rate as a function of the step: schedule(step), from 0.")
      .def(
          "__init__",
          [](nn::RateSchedule* self, nn::RateSchedule::Function rate, std::optional<int64_t> end) {
            new (self) nn::RateSchedule("RateSchedule", std::move(rate), end);
          },
          "rate"_a, "end"_a = nb::none(),
          "rate: a function of the step. end: the step from which on it stays as it is; None where it changes without "
          "end.")
      .def("__call__", &nn::RateSchedule::operator(), "step"_a, "The rate of that step.")
      .def_prop_ro("end", &nn::RateSchedule::end,
                   "The step from which on the rate stays as it is; None where it changes without end.")
      .def_prop_ro("name", &nn::RateSchedule::name)
      .def("table", &nn::RateSchedule::table, "num_steps"_a, "The rates of the steps 0 to num_steps - 1.")
      .def("whole_table", &nn::RateSchedule::whole_table,
           "The rates up to the schedule's end, the last one twice. Raises InvalidArgument where there is none.")
      .def("per_epoch", &nn::RateSchedule::per_epoch, "steps_per_epoch"_a,
           "The same, counted in epochs: all steps of an epoch have the rate that a step has here.");
  helped(m).def("constant", &nn::schedules::constant, "rate"_a, "rate, at every step.");
  helped(m).def("linear", &nn::schedules::linear, "rate"_a, "end_rate"_a, "num_steps"_a,
                "rate + (end_rate - rate) * step / num_steps.");
  helped(m).def("cosine", &nn::schedules::cosine, "rate"_a, "num_steps"_a, "end_rate"_a = 0.0,
                "From rate to end_rate along half a cosine. Loshchilov and Hutter, SGDR, 2017.");
  helped(m).def(
      "cosine_restarts",
      [](double rate, int64_t num_steps, int64_t period_factor, double end_rate) {
        return nn::schedules::cosine_restarts({rate, num_steps, period_factor, end_rate});
      },
      "rate"_a, "num_steps"_a, "period_factor"_a = 1, "end_rate"_a = 0.0,
      "cosine() that begins again after each fall, without end; each fall is period_factor times as long as the one "
      "before.");
  helped(m).def("polynomial", &nn::schedules::polynomial, "rate"_a, "num_steps"_a, "power"_a = 1.0, "end_rate"_a = 0.0,
                "end_rate + (rate - end_rate) * (1 - step / num_steps) ** power.");
  helped(m).def("exponential", &nn::schedules::exponential, "rate"_a, "gamma"_a, "num_steps"_a = 1,
                "is_stair"_a = false,
                "rate * gamma ** (step / num_steps), without end; is_stair: by the whole part of step / num_steps.");
  helped(m).def("multi_step", &nn::schedules::multi_step, "rate"_a, "milestones"_a, "gamma"_a = 0.1,
                "rate * gamma ** (the number of milestones that the step has reached).");
  helped(m).def(
      "inverse_square_root", &nn::schedules::inverse_square_root, "rate"_a, "num_steps"_a,
      "rate / sqrt(1 + step / num_steps), without end; behind warmup(num_steps, ...) that of Vaswani et al., 2017.");
  helped(m).def(
      "one_cycle",
      [](double max_rate, int64_t num_steps, double rising_part, double div_factor, double final_div_factor,
         bool is_linear, bool has_three_phases) {
        return nn::schedules::one_cycle(
            {max_rate, num_steps, rising_part, div_factor, final_div_factor, is_linear, has_three_phases});
      },
      "max_rate"_a, "num_steps"_a, "rising_part"_a = 0.3, "div_factor"_a = 25.0, "final_div_factor"_a = 1e4,
      "is_linear"_a = false, "has_three_phases"_a = false,
      R"(From max_rate / div_factor up to max_rate, then down to the first rate / final_div_factor. Smith and Topin, 2018.

It is PyTorch's OneCycleLR(max_lr, total_steps), whose pct_start is rising_part.)");
  helped(m).def("warmup", &nn::schedules::warmup, "num_steps"_a, "then"_a, "start_rate"_a = 0.0,
                "From start_rate in equal steps to then(0) at step num_steps, from where `then` counts its own steps.");
  helped(m).def("sequence", &nn::schedules::sequence, "schedules"_a, "milestones"_a,
                "Each schedule in turn, counting from 0 where it begins: the next one from each milestone on.");
}

}  // namespace

void bind_tuning(nb::module_& m) {
  bind_schedules(m);
  helped(m).def(
      "_divide_parameters",
      [](nn::Cell& network, const std::vector<std::string>& patterns) {
        std::map<const nn::Parameter*, std::shared_ptr<nn::Parameter>> owned;
        for (const auto& parameter : parameters_of(network, /*trainable=*/true)) owned[parameter.get()] = parameter;
        std::vector<OwnParameters> divided;
        for (const auto& own : nn::divide_parameters(network, patterns)) {
          auto& shared = divided.emplace_back();
          for (const nn::Parameter* parameter : own) shared.push_back(owned.at(parameter));
        }
        return divided;
      },
      "network"_a, "patterns"_a, "For each pattern the trainable parameters that it is the first one to match.");
}

}  // namespace tessera::python
