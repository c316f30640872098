#include "python/src/callbacks.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <nanobind/trampoline.h>

#include "python/src/keywords.h"
#include "python/src/python_model.h"

namespace tessera::python {
namespace {

class PythonCallback : public train::Callback {
 public:
  NB_TRAMPOLINE(train::Callback, 6);
  void begin(train::RunContext& run) override { call("begin", run); }
  void epoch_begin(train::RunContext& run) override { call("epoch_begin", run); }
  void step_begin(train::RunContext& run) override { call("step_begin", run); }
  void step_end(train::RunContext& run) override { call("step_end", run); }
  void epoch_end(train::RunContext& run) override { call("epoch_end", run); }
  void end(train::RunContext& run) override { call("end", run); }

 private:
  void call(const char* name, train::RunContext& run);
};

void PythonCallback::call(const char* name, train::RunContext& run) {
  const nb::gil_scoped_acquire gil;
  auto& model = nb::cast<PythonModel&>(python_model(run.model));
  model.changed();  // what a callback reads is of this step
  const nb::object self = nb::find(static_cast<train::Callback&>(*this));
  self.attr(name)(nb::cast(&run, nb::rv_policy::reference));
  model.take();  // it may have trained another model of the network, or changed a cell
}

// What EarlyStopping, BestCheckpoint and ReduceLROnPlateau have in common.
constexpr const char* kMonitorDoc = R"(

monitor: a metric of the model, or "train_loss", the mean of the losses that the epoch's steps reported. valid: the data set
whose metrics count, evaluated after each epoch; None: what a callback before this one has evaluated, as EpochSummary does.
mode: "min", "max", or "auto" for Tessera's metrics. min_delta: by which a value must be better than the best to count.)";

train::MonitorOptions monitor_options(const std::string& monitor, const std::optional<data::Dataset>& valid,
                                      const std::string& mode, double min_delta, int num_workers) {
  return {.monitor = monitor, .valid = valid, .num_workers = num_workers, .mode = mode, .min_delta = min_delta};
}

void bind_monitors(nb::module_& m) {
  const std::string doc = kMonitorDoc;
  static const std::string stopping = R"(Ends the training when a number has not been better for `patience` epochs.

restore_best: in the end the parameters are those of the best epoch, stopped or not.)" +
                                      doc;
  nb::class_<train::EarlyStopping, train::Callback>(m, "EarlyStopping", stopping.c_str())
      .def(
          "__init__",
          [](train::EarlyStopping* self, const std::string& monitor, const std::optional<data::Dataset>& valid,
             int64_t patience, double min_delta, const std::string& mode, bool restore_best, int num_workers) {
            new (self) train::EarlyStopping(monitor_options(monitor, valid, mode, min_delta, num_workers), patience,
                                            restore_best);
          },
          "monitor"_a = "loss", "valid"_a = nb::none(), "patience"_a = 1, "min_delta"_a = 0.0, "mode"_a = "auto",
          "restore_best"_a = false, "num_workers"_a = 1)
      .def_prop_ro("stopped_epoch", &train::EarlyStopping::stopped_epoch,
                   "After which epoch it ended the training; 0: it did not.")
      .def_prop_ro("best_epoch", &train::EarlyStopping::best_epoch, "0 before the first one.")
      .def_prop_ro("best", &train::EarlyStopping::best, "The best value.");
  static const std::string best =
      R"(Saves a checkpoint after each epoch that is the best so far, or among the save_top_k best so far.

One is `path` itself, in place of the one before. Several are PATH-EPOCH_STEP.ckpt, or PATH_1-... where the directory has those
already; one that is not among the best any more goes when the better one is there. Of equal ones the earlier stay, and a number
that is not finite is never among them. A training that goes on from a checkpoint does not replace a better one that it has saved
earlier. restore_best: in the end the parameters are those of the best one, stopped or not. integrated_save=False: each rank
writes the slices that it holds.)" +
      doc;
  nb::class_<train::BestCheckpoint, train::Callback>(m, "BestCheckpoint", best.c_str())
      .def(
          "__init__",
          [](train::BestCheckpoint* self, const Path& path, const std::string& monitor,
             const std::optional<data::Dataset>& valid, double min_delta, const std::string& mode, int num_workers,
             int64_t save_top_k, bool restore_best, bool integrated_save) {
            new (self) train::BestCheckpoint(
                path.bytes, monitor_options(monitor, valid, mode, min_delta, num_workers),
                {.save_top_k = save_top_k, .restore_best = restore_best, .integrated_save = integrated_save});
          },
          "path"_a = "best", "monitor"_a = "loss", "valid"_a = nb::none(), "min_delta"_a = 0.0, "mode"_a = "auto",
          "num_workers"_a = 1, "save_top_k"_a = 1, "restore_best"_a = false, "integrated_save"_a = true)
      .def_prop_ro(
          "path", [](const train::BestCheckpoint& self) { return Path{self.path()}; },
          "The best file; of several an empty text before the first.")
      .def_prop_ro(
          "paths", [](const train::BestCheckpoint& self) { return to_paths(self.paths()); },
          "The files that are kept, the best first.")
      .def_prop_ro("scores", &train::BestCheckpoint::scores, "The number of each of the paths.")
      .def_prop_ro("best", &train::BestCheckpoint::best, "The value of the best file; infinite before the first one.");
  static const std::string plateau =
      R"(Multiplies learning rates by `factor` when a number has not been better for `patience` epochs.

Those of groups, too, and none below min_rate; cooldown: epochs after a change that are not counted. It wants rates that are
numbers: a table or a cell is refused.)" +
      doc;
  nb::class_<train::ReduceLROnPlateau, train::Callback>(m, "ReduceLROnPlateau", plateau.c_str())
      .def(
          "__init__",
          [](train::ReduceLROnPlateau* self, const std::string& monitor, const std::optional<data::Dataset>& valid,
             double factor, int64_t patience, double min_delta, int64_t cooldown, double min_rate,
             const std::string& mode, int num_workers) {
            new (self) train::ReduceLROnPlateau(
                monitor_options(monitor, valid, mode, min_delta, num_workers),
                {.factor = factor, .patience = patience, .cooldown = cooldown, .min_rate = min_rate}, print_in_python);
          },
          "monitor"_a = "loss", "valid"_a = nb::none(), "factor"_a = 0.1, "patience"_a = 10, "min_delta"_a = 0.0,
          "cooldown"_a = 0, "min_rate"_a = 0.0, "mode"_a = "auto", "num_workers"_a = 1);
  nb::class_<train::RecordValues, train::Callback>(
      m, "RecordValues",
      R"(Records hashes and statistics of the values of a training's steps, for tessera bisect; docs/bisect.md.

directory: where; steps: "5", "10-20", "100-", "*/50", separated by commas, "": all. compare_with: the folder of an earlier training's
records; at the first value that is not that training's the training stops with an error, or warns, stops=False.)")
      .def(
          "__init__",
          [](train::RecordValues* self, const Path& directory, const std::string& steps, const Path& compare_with,
             bool stops) {
            new (self) train::RecordValues(
                {.directory = directory.bytes, .compare_with = compare_with.bytes, .steps = steps, .stops = stops});
          },
          "directory"_a = "", "steps"_a = "", "compare_with"_a = "", "stops"_a = true);
}

}  // namespace

void print_in_python(const std::string& line) {
  const nb::gil_scoped_acquire gil;
  const nb::object out = nb::module_::import_("sys").attr("stdout");
  out.attr("write")(line + "\n");
  out.attr("flush")();
}

void bind_callbacks(nb::module_& m) {
  nb::class_<train::RunContext>(m, "RunContext",
                                "Where training stands. Epochs and steps count from 1; a step is one global batch.")
      .def_prop_ro("model", [](const train::RunContext& self) { return nb::borrow(python_model(self.model)); })
      .def_rw("epoch", &train::RunContext::epoch, "The first callback may set it in epoch_begin; the others count on.")
      .def_ro("num_epochs", &train::RunContext::num_epochs)
      .def_ro("step_in_epoch", &train::RunContext::step_in_epoch)
      .def_ro("steps_per_epoch", &train::RunContext::steps_per_epoch)
      .def_ro("step", &train::RunContext::step, "Since the beginning of training, resumed steps included.")
      .def_ro("first_step", &train::RunContext::first_step,
              "The step before the first one of this call of train(), whichever process of the job has begun it.")
      .def_ro("number", &train::RunContext::number,
              "Of that call in its process, from 1; 0 where the job does not recover.")
      .def_ro("loss", &train::RunContext::loss, "Of the last step; the mean where the loss is a vector.")
      .def_ro("rows_of_epoch", &train::RunContext::rows_of_epoch, "Trained on in this epoch so far.")
      .def_ro("has_failed", &train::RunContext::has_failed, "An exception ends the training.")
      .def("request_stop", &train::RunContext::request_stop);
  auto callback = nb::class_<train::Callback, PythonCallback>(
      m, "Callback",
      R"(What happens around training: override some of begin, epoch_begin, step_begin, step_end, epoch_end, end.

Each is called with a RunContext, on every rank. With dataset_sink_mode the step calls stand around each sink loop. Where an
exception ends the training, end is called of each whose begin has returned, with run.has_failed: it must then do nothing
that ranks do together.)",
      nb::dynamic_attr());
  callback.def(nb::init<>());
  callback.def("__setattr__", &set_unless_option, "name"_a, "value"_a.none());
  for (const char* name : {"begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "end"}) {
    callback.def(
        name, [](train::Callback&, train::RunContext&) {}, "run"_a);
  }
  nb::class_<train::LossMonitor, train::Callback>(
      m, "LossMonitor", "Prints `epoch: 1 step: 20, loss is 2.3025851` every per_print_times steps; 0: never.")
      .def(
          "__init__",
          [](train::LossMonitor* self, int64_t times) { new (self) train::LossMonitor(times, print_in_python); },
          "per_print_times"_a = 1);
  nb::class_<train::TimeMonitor, train::Callback>(
      m, "TimeMonitor", "Prints `epoch time: 1234.567 ms, per step time: 12.345 ms` after each epoch.")
      .def(
          "__init__",
          [](train::TimeMonitor* self, int64_t size) { new (self) train::TimeMonitor(size, print_in_python); },
          "data_size"_a = 0);
  bind_logs(m);
  nb::class_<train::EpochSummary, train::Callback>(m, "EpochSummary",
                                                   R"(Prints a line after each epoch, on rank 0.

`epoch 3/10: loss 0.4213, accuracy 0.8712, 1234.5 images/s, 12.3 s`: the mean of the losses that the epoch's steps reported, the
model's metrics over the data set `valid`, the rows that were trained on in a second, and the epoch's time without the
evaluation. row_name: what a row of the data is, in the plural.)")
      .def(
          "__init__",
          [](train::EpochSummary* self, const std::optional<data::Dataset>& valid, const std::string& row_name,
             int num_workers) {
            new (self) train::EpochSummary({.row_name = row_name, .valid = valid, .num_workers = num_workers},
                                           print_in_python);
          },
          "valid"_a = nb::none(), "row_name"_a = "rows", "num_workers"_a = 1);
  nb::class_<train::ModelCheckpoint, train::Callback>(m, "ModelCheckpoint",
                                                      R"(Saves checkpoints as DIRECTORY/PREFIX-EPOCH_STEP.ckpt.

save_checkpoint_steps: after so many steps; save_checkpoint_seconds: after so many seconds, where no steps are given; neither: after
each step. keep_checkpoint_max: so many stay; keep_checkpoint_per_n_minutes: one of each so many minutes stays, and the newest, where
no number is given; neither: 5. Ranks that name one directory write one checkpoint together. integrated_save=False: each rank writes the slices that it
holds. async_save: a thread writes a copy of the values while training goes on. append_info: "epoch_num", "step_num".
append_values: further tensors and texts by name. enc_key: 16, 24 or 32 bytes, encrypts as
checkpoint.save does.)")
      .def(
          "__init__",
          [](train::ModelCheckpoint* self, const Path& prefix, const Path& directory, std::optional<int64_t> steps,
             int64_t seconds, std::optional<int64_t> keep, int64_t minutes, bool integrated, bool async,
             const std::vector<std::string>& append_info, const nb::dict& append_values,
             const std::optional<nb::bytes>& key, const std::string& mode) {
            const auto encryption = to_encryption(key, mode);
            new (self) train::ModelCheckpoint(prefix.bytes, directory.bytes,
                                              {.save_checkpoint_steps = steps,
                                               .save_checkpoint_seconds = seconds,
                                               .keep_checkpoint_max = keep,
                                               .keep_checkpoint_per_n_minutes = minutes,
                                               .integrated_save = integrated,
                                               .async_save = async,
                                               .append_info = append_info,
                                               .append_values = to_entries(append_values),
                                               .enc_key = encryption.key,
                                               .enc_mode = encryption.mode});
          },
          "prefix"_a = "CKP", "directory"_a = ".", "save_checkpoint_steps"_a = nb::none(),
          "save_checkpoint_seconds"_a = 0, "keep_checkpoint_max"_a = nb::none(), "keep_checkpoint_per_n_minutes"_a = 0,
          "integrated_save"_a = true, "async_save"_a = false, "append_info"_a = nb::make_tuple(),
          "append_values"_a = nb::dict(), "enc_key"_a = nb::none(), "enc_mode"_a = "AES-GCM")
      .def_prop_ro("latest", [](const train::ModelCheckpoint& self) { return Path{self.latest()}; });
  bind_monitors(m);
}

std::vector<std::shared_ptr<train::Callback>> to_callbacks(nb::handle sequence) {
  std::vector<std::shared_ptr<train::Callback>> callbacks;
  for (const nb::handle item : nb::iter(sequence)) {
    const auto of_class = nb::cast<std::string>(item.type().attr("__name__"));
    const bool is_one =
        nb::cast<bool>(nb::module_::import_("builtins").attr("isinstance")(item, nb::type<train::Callback>()));
    if (!is_one) {
      const bool is_class = PyType_Check(item.ptr()) != 0;
      const std::string found =
          is_class ? fmt::format("the class {0}: an instance is wanted, which is made by a call, {0}()",
                                 nb::cast<std::string>(item.attr("__name__")))
                   : fmt::format("{} of type {}", nb::cast<std::string>(nb::repr(item)), of_class);
      throw nb::type_error(fmt::format("Model.train(): callbacks must be tessera.Callbacks, one is {}", found).c_str());
    }
    if (!nb::inst_ready(item)) {
      throw nb::type_error(
          fmt::format("{0}: super().__init__() must be called in its __init__() before it is used", of_class).c_str());
    }
    callbacks.push_back(nb::cast<std::shared_ptr<train::Callback>>(item));
  }
  return callbacks;
}

}  // namespace tessera::python
