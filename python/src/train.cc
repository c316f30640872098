// Model, callbacks and metrics.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <nanobind/trampoline.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "python/src/bind.h"
#include "python/src/called_cells.h"
#include "python/src/cells.h"
#include "python/src/keywords.h"
#include "python/src/model_options.h"
#include "python/src/parameters.h"
#include "python/src/threads.h"

namespace tessera::python {
namespace {

class PythonModel;

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

// Lines go where Python's print() goes, each in one write: those of several ranks do not mix.
void print_in_python(const std::string& line) {
  const nb::gil_scoped_acquire gil;
  const nb::object out = nb::module_::import_("sys").attr("stdout");
  out.attr("write")(line + "\n");
  out.attr("flush")();
}

std::vector<nn::Parameter*> parameters_of(nn::Cell& network, nn::Cell* loss) {
  auto all = network.parameters();
  if (loss != nullptr) {
    for (nn::Parameter* parameter : loss->parameters()) all.push_back(parameter);
  }
  return all;
}

// Of the cell and of all below it, to be kept: a part of a network may be replaced while a model has its values.
void collect_parameters(const nn::Cell& cell, std::vector<std::shared_ptr<nn::Parameter>>& found) {
  for (const auto& [name, parameter] : cell.own_parameters()) found.push_back(parameter);
  for (const auto& [name, child] : cell.children()) collect_parameters(*child, found);
}

// The rows of all ranks, one rank's after the other's.
Tensor all_rows(const Tensor& own) {
  if (own.ndim() == 0) return own;
  comm::Communicator& world = context().world();
  const auto ranks = static_cast<size_t>(context().size());
  const int64_t rows = own.shape()[0];
  std::vector<int64_t> counts(ranks);
  world.all_gather(&rows, counts.data(), std::vector<int64_t>(ranks, 1), DType::kI64, "rows for metrics");
  Ints shape = own.shape().to_vector();
  shape[0] = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  Tensor all(own.dtype(), Shape(shape));
  for (int64_t& count : counts) count *= Shape(Ints(shape.begin() + 1, shape.end())).num_elements();
  world.all_gather(own.view().data, all.view().data, counts, own.dtype(), "metrics");
  return all;
}

// Shows each batch of an evaluation to objects of Python: update(output, label, loss).
class Observers : public train::Metric {
 public:
  Observers() : Metric("") {}
  bool is_global() const override { return true; }
  void update(const Tensor& output, const Tensor& label, double loss, int64_t) override {
    if (objects_.empty()) return;
    const Tensor outputs = rows_are_own_ ? all_rows(output) : output;
    const Tensor labels = rows_are_own_ ? all_rows(label) : label;
    const nb::gil_scoped_acquire gil;
    for (const auto& object : objects_) object.attr("update")(outputs, labels, loss);
  }
  // From here on these are shown; with the GIL held. rows_are_own: of each rank, which only together are the batch.
  void set(std::vector<nb::object> objects, bool rows_are_own) {
    objects_ = std::move(objects);
    rows_are_own_ = rows_are_own;
  }

 private:
  bool rows_are_own_ = false;
  std::vector<nb::object> objects_;
};

// Calls f, which may trace the network. Where that fails and a cell was called that is no part of the network, it says
// so.
template <typename F>
auto with_unowned_cells(train::Model& model, const F& f) {
  {
    const nb::gil_scoped_acquire gil;
    unowned_cells().clear();
  }
  try {
    return f();
  } catch (const InvalidArgument& error) {
    if (typeid(error) != typeid(InvalidArgument)) throw;
    const nb::gil_scoped_acquire gil;
    for (const auto& [parameter, of_class] : unowned_cells()) {
      if (std::as_const(model).session().holds(parameter)) continue;
      throw InvalidArgument(
          "\"{}\" of a {} is no parameter of the network: a layer is trained as an attribute that __init__() sets, or "
          "in a CellList or Sequential that is one; not in a list, tuple or dict, nor where construct() makes it ({})",
          parameter, of_class, error.what());
    }
    throw;
  }
}

// The living models in the order in which they were made, each with the Python object that callbacks see.
std::vector<std::pair<const train::Model*, nb::handle>>& python_models() {
  // Never destroyed: a model may go after what is static here. Guarded by the GIL.
  static auto& models = *new std::vector<std::pair<const train::Model*, nb::handle>>();
  return models;
}

nb::handle python_model(const train::Model& model) {
  const auto& models = python_models();
  const auto found = std::ranges::find(models, &model, &std::pair<const train::Model*, nb::handle>::first);
  check(found != models.end(), "a model without its Python object");
  return found->second;
}

// At the end of each step threads that wait for the model come in, as a callback might.
class LetOthersIn : public train::Callback {
 public:
  explicit LetOthersIn(PythonModel& model) : model_(model) {}
  void step_end(train::RunContext&) override;

 private:
  PythonModel& model_;
};

// A model, and the values that Python's parameters have in it. Several threads may call it: one is in it at a time.
class PythonModel {
 public:
  // Of a call of this thread.
  Turn turn() { return Turn(turns_); }
  void let_others_in() {
    if (!turns_.is_awaited()) return;
    {
      const nb::gil_scoped_acquire gil;
      changed();  // what they read is of this step
    }
    turns_.give();
    const nb::gil_scoped_acquire gil;
    take();
  }
  ~PythonModel() {
    std::erase_if(python_models(), [&](const auto& entry) { return entry.first == model_.get(); });
  }
  PythonModel(const PythonModel&) = delete;
  PythonModel& operator=(const PythonModel&) = delete;
  // states: the optimizer's, where Python has parameters of them.
  PythonModel(nn::Cell& network, nn::Cell* loss, nn::Optimizer* optimizer, train::ModelOptions options,
              bool shows_slices, const std::vector<nn::Parameter*>& states) {
    num_metrics_ = options.metrics.size();
    options.metrics.push_back(observers_ = std::make_shared<Observers>());
    auto parameters = parameters_of(network, loss);
    collect_parameters(network, kept_);
    if (loss != nullptr) collect_parameters(*loss, kept_);
    for (nn::Parameter* parameter : parameters) fetch_held(*parameter);  // another model may have trained it
    for (nn::Parameter* state : states) {
      fetch_held(*state);
      if (state->data) options.initial_states.emplace(state->full_name(), *state->data);
    }
    cluster::Context& own = !train::needs_ranks(options.parallel_mode) && !has_context() ? alone() : context();
    {
      const WithoutGil computing;
      model_ = std::make_unique<train::Model>(own, network, loss, optimizer, options);
    }
    for (nn::Parameter* state : states) {
      if (model_->session().holds(state->full_name())) parameters.push_back(state);
    }
    held_ = std::make_unique<HeldParameters>(*model_, parameters, shows_slices);
  }

  // With the newest values of its parameters, which another model may have changed.
  train::Model& model() {
    const nb::gil_scoped_acquire gil;
    take();
    return *model_;
  }
  // With whatever values it has.
  train::Model& as_it_is() { return *model_; }

  void train(int64_t num_epochs, const data::Dataset& dataset,
             const std::vector<std::shared_ptr<train::Callback>>& list, const train::TrainOptions& options) {
    const Turn turn(turns_);
    train::Callbacks callbacks(list.begin(), list.end());
    callbacks.emplace_back(LetOthersIn(*this));
    warn_if_alone_among_ranks();
    take();
    held_->invalidate();
    {
      const WithoutGil computing;
      with_unowned_cells(*model_, [&] { model_->train(num_epochs, dataset, callbacks, options); });
    }
    held_->invalidate();
    held_->fetch_split();
  }
  double train_step(const std::vector<Tensor>& batch, int64_t global_rows) {
    std::vector<TensorView> views;
    for (const auto& tensor : batch) views.push_back(tensor.view());
    const Turn turn(turns_);
    take();
    held_->invalidate();
    const WithoutGil computing;
    return with_unowned_cells(*model_, [&] { return model_->train_step(views, global_rows); });
  }
  Tensor predict(const std::vector<Tensor>& inputs) {
    const Turn turn(turns_);
    take();
    return renewing([&] { return model_->predict(inputs); });
  }
  std::vector<train::Decoded> translate(const Tensor& rows, const train::TranslateOptions& options) {
    const Turn turn(turns_);
    take();
    return renewing([&] { return train::translate(*model_, rows, options); });
  }
  void changed() { held_->invalidate(); }
  // The newest values of its parameters, and what has been changed of its cells.
  void take() {
    held_->take();
    if (std::exchange(changes_, num_changes()) != num_changes()) model_->network_changed();
  }

  std::map<std::string, double> eval(const data::Dataset& dataset, int num_workers, std::vector<nb::object> objects) {
    if (num_metrics_ == 0 && objects.empty()) throw InvalidArgument("eval: the model has no metrics");
    const Turn turn(turns_);
    struct Shown {
      Shown(Observers& observers, std::vector<nb::object> objects, bool rows_are_own) : observers(observers) {
        observers.set(std::move(objects), rows_are_own);
      }
      ~Shown() { observers.set({}, false); }
      Observers& observers;
    } shown(*observers_, std::move(objects), model_->evaluates_own_rows());
    take();
    auto results =
        renewing([&] { return model_->eval(dataset, {.num_workers = num_workers, .before_batch = raise_signals}); });
    results.erase(observers_->name());
    return results;
  }

 private:
  // Calls f without the GIL. What it has the network assign, Python's parameters have then.
  template <typename F>
  auto renewing(const F& f) -> decltype(f()) {
    auto result = [&] {
      const WithoutGil computing;
      return with_unowned_cells(*model_, f);
    }();
    held_->renew(model_->take_assigned());
    return result;
  }
  // A script that is started on ranks and does not say how they share the work.
  void warn_if_alone_among_ranks() const {
    if (train::needs_ranks(model_->options().parallel_mode)) return;
    const int ranks = has_context() ? context().size() : cluster::num_processes_from_environment();
    static bool is_said = false;
    if (ranks == 1 || std::exchange(is_said, true)) return;
    log_warning(
        "parallel_mode is stand_alone: each of the {} ranks trains a network of its own on all rows; with "
        "data_parallel they train one",
        ranks);
  }
  static cluster::Context& alone() {
    static const auto context = cluster::single_context();
    return *context;
  }

  Turns turns_;
  std::vector<std::shared_ptr<nn::Parameter>> kept_;  // those that held_ names
  std::shared_ptr<Observers> observers_;
  size_t num_metrics_ = 0;
  std::unique_ptr<train::Model> model_;
  std::unique_ptr<HeldParameters> held_;
  uint64_t changes_ = num_changes();  // of cells, when what is compiled was traced
};

void LetOthersIn::step_end(train::RunContext&) { model_.let_others_in(); }

void PythonCallback::call(const char* name, train::RunContext& run) {
  const nb::gil_scoped_acquire gil;
  auto& model = nb::cast<PythonModel&>(python_model(run.model));
  model.changed();  // what a callback reads is of this step
  const nb::object self = nb::find(static_cast<train::Callback&>(*this));
  self.attr(name)(nb::cast(&run, nb::rv_policy::reference));
  model.take();  // it may have trained another model of the network, or changed a cell
}

// Of all models, in the order in which they were made. Throws the first error; further ones are logged.
void finish_all_saves() {
  std::vector<nb::object> models;
  for (const auto& [model, object] : python_models()) models.push_back(nb::borrow(object));
  std::exception_ptr first;
  for (const auto& object : models) {
    train::Model& model = nb::cast<PythonModel&>(object).as_it_is();
    const nb::gil_scoped_release release;
    try {
      model.finish_saves();
    } catch (const std::exception& error) {
      if (first) log_error("a checkpoint was not saved: {}", error.what());
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
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
  nb::class_<train::ProgressBar, train::Callback>(m, "ProgressBar", "One line that is drawn over, on rank 0.")
      .def(nb::init<int64_t>(), "rows_per_step"_a);
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

Ranks that name one directory write one checkpoint together. integrated_save=False: each rank writes the slices that it
holds. async_save: a thread writes a copy of the values while training goes on. append_info: "epoch_num", "step_num".
append_values: further tensors and texts by name. enc_key: 16, 24 or 32 bytes, encrypts as
checkpoint.save does.)")
      .def(
          "__init__",
          [](train::ModelCheckpoint* self, const Path& prefix, const Path& directory, int64_t steps, int64_t seconds,
             int64_t keep, int64_t minutes, bool integrated, bool async, const std::vector<std::string>& append_info,
             const nb::dict& append_values, const std::optional<nb::bytes>& key, const std::string& mode) {
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
          "prefix"_a = "CKP", "directory"_a = ".", "save_checkpoint_steps"_a = 1, "save_checkpoint_seconds"_a = 0,
          "keep_checkpoint_max"_a = 5, "keep_checkpoint_per_n_minutes"_a = 0, "integrated_save"_a = true,
          "async_save"_a = false, "append_info"_a = nb::make_tuple(), "append_values"_a = nb::dict(),
          "enc_key"_a = nb::none(), "enc_mode"_a = "AES-GCM")
      .def_prop_ro("latest", [](const train::ModelCheckpoint& self) { return Path{self.latest()}; });
}

}  // namespace

namespace {

// Each with its own word for what it is not: one whose __init__() has not called Callback's has nothing in C++ yet.
std::vector<std::shared_ptr<train::Callback>> to_callbacks(nb::handle sequence) {
  std::vector<std::shared_ptr<train::Callback>> callbacks;
  for (const nb::handle item : nb::iter(sequence)) {
    const auto of_class = nb::cast<std::string>(item.type().attr("__name__"));
    const bool is_one =
        nb::cast<bool>(nb::module_::import_("builtins").attr("isinstance")(item, nb::type<train::Callback>()));
    if (!is_one) {
      throw nb::type_error(fmt::format("Model.train(): callbacks must be tessera.Callbacks, one is {} of type {}{}",
                                       nb::cast<std::string>(nb::repr(item)), of_class,
                                       PyType_Check(item.ptr()) ? ": it needs its arguments, Name(...)" : "")
                               .c_str());
    }
    if (!nb::inst_ready(item)) {
      throw nb::type_error(
          fmt::format("{0}: super().__init__() must be called in its __init__() before it is used", of_class).c_str());
    }
    callbacks.push_back(nb::cast<std::shared_ptr<train::Callback>>(item));
  }
  return callbacks;
}

// Scores that Python computes of prefixes.
std::vector<train::Decoded> search(int64_t num_sequences, const nb::object& next, int64_t max_length, int64_t beam_size,
                                   double length_penalty, int32_t begin, int32_t end, int32_t padding) {
  return train::beam_search(num_sequences,
                            [&](const Tensor& prefixes, int64_t length) {
                              return to_tensor(next(nb::cast(Tensor::copy_of(prefixes.view())), length));
                            },
                            {beam_size, max_length, begin, end, padding, length_penalty});
}

// As a stub has it.
std::string model_signature() {
  const auto name = [](nb::handle type) { return nb::cast<std::string>(nb::type_name(type)); };
  const std::string cell = name(nb::type<nn::Cell>());
  return fmt::format(
      "def __init__(self, network: {0}, loss: {0} | None = None, optimizer: {1} | None = None, metrics: "
      "collections.abc.Sequence[str] = (), *, {2}, sliced_parameters: bool = False, states: "
      "collections.abc.Sequence[{3}] = ()) -> None",
      cell, name(nb::type<nn::Optimizer>()), option_signature(), name(nb::type<nn::Parameter>()));
}

void bind_search(nb::module_& m) {
  nb::class_<train::Decoded>(m, "Decoded", "What a search has found for a sequence.")
      .def_ro("tokens", &train::Decoded::tokens, "without begin and end")
      .def_ro("log_probability", &train::Decoded::log_probability)
      .def_ro("score", &train::Decoded::score, "the log probability with the length penalty")
      .def_ro("is_whole", &train::Decoded::is_whole, "whether it ends by itself, not at max_length");
  m.def("beam_search", &search, "num_sequences"_a, "next"_a, "max_length"_a, "beam_size"_a = 4,
        "length_penalty"_a = 0.6, "begin"_a = data::Vocabulary::kBegin, "end"_a = data::Vocabulary::kEnd,
        "padding"_a = data::Vocabulary::kPadding,
        R"(The best sequence of tokens for each of num_sequences, a list of Decoded.

next(prefixes int32[num_sequences * beam_size, max_length], length) gives the logits float32[..., vocabulary] of the token that
follows the first `length` ones. Candidates are compared by log probability / ((5 + n) / 6) ** length_penalty.)");
}

}  // namespace

void bind_train(nb::module_& m) {
  m.def("_model_options", &options_as_dict, "What each option of a Model does, and the parallel modes that read it.");
  m.def("_end_threads", &end_threads, "timeout_ms"_a,
        "As the process ends: stops other threads that compute. False where one does not stop in time.");
  m.def("_finish_all_saves", &finish_all_saves, "As the process ends, before Python's objects go.");
  bind_search(m);
  bind_callbacks(m);
  static const std::string doc = R"(Trains a network on one device or on many.

Model(network, loss, optimizer): the last column of a data set is the label, which goes to the loss with what the network
makes of the others. Without a loss the network's own result is the loss. metrics: accuracy, top_1_accuracy,
top_5_accuracy, loss, mae, mse. sliced_parameters=True: once compiled, a parameter that is split over ranks has shape and
value of this rank's slice; set_data takes a slice or the whole. states: those that optimizer.state_parameters() gives; they
start as they are, and follow what is trained. See help(Model.train). Further options:

)" + option_help();
  auto model = nb::class_<PythonModel>(m, "Model", doc.c_str(), nb::dynamic_attr(), nb::is_weak_referenceable());
  model.def("__setattr__", &set_unless_option, "name"_a, "value"_a.none());
  // The options of C++ have no arguments of their own here: the list of them gives the signature, too.
  static const std::string signature = model_signature();
  model.def(
      "__init__",
      [](nb::handle self, nn::Cell& network, nn::Cell* loss, nn::Optimizer* optimizer,
         const std::vector<std::string>& metrics, bool sliced_parameters, const std::vector<nn::Parameter*>& states,
         const nb::kwargs& given) {
        train::ModelOptions options = model_options(given);
        for (const auto& name : metrics) options.metrics.push_back(train::make_metric(name));
        auto* made = new (nb::inst_ptr<PythonModel>(self))
            PythonModel(network, loss, optimizer, options, sliced_parameters, states);
        nb::inst_mark_ready(self);
        python_models().emplace_back(&made->as_it_is(), self);
      },
      "network"_a, "loss"_a = nb::none(), "optimizer"_a = nb::none(), "metrics"_a = nb::make_tuple(), nb::kw_only(),
      "sliced_parameters"_a = false, "states"_a = nb::make_tuple(), "options"_a, nb::sig(signature.c_str()),
      nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>());
  model.def(
      "train",
      [](PythonModel& self, int64_t epochs, const data::Dataset& dataset,
         const nb::typed<nb::sequence, train::Callback>& callbacks, bool sink, int64_t sink_size, int num_workers) {
        self.train(epochs, dataset, to_callbacks(callbacks),
                   {.dataset_sink_mode = sink,
                    .sink_size = sink_size,
                    .num_workers = num_workers,
                    .before_batch = raise_signals});
      },
      "num_epochs"_a, "dataset"_a, "callbacks"_a = nb::make_tuple(), "dataset_sink_mode"_a = false, "sink_size"_a = -1,
      "num_workers"_a = 1,
      R"(Trains until num_epochs epochs are done, those of a loaded checkpoint included.

dataset_sink_mode: callbacks run once per sink_size steps, -1: once an epoch. num_workers: threads that make batches
ahead. Raises InvalidArgument for data that does not fit, NonFiniteLoss for a loss that is not finite, IoError when a rank
is lost. After an exception the values are those of the last whole step, and the next train() is a new training, unless a
checkpoint is loaded before.)");
  model.def(
      "train_step",
      [](PythonModel& self, const nb::args& batch, std::optional<int64_t> global_rows) {
        std::vector<Tensor> tensors;
        for (const nb::handle item : batch) tensors.push_back(to_tensor(item));
        if (tensors.empty() || tensors[0].ndim() == 0) throw InvalidArgument("train_step: the batch has no rows");
        return self.train_step(tensors, global_rows.value_or(tensors[0].shape()[0]));
      },
      "batch"_a, "global_rows"_a = nb::none(),
      "One step on one global batch, of which each rank gives its rows; global_rows: of all ranks. Returns the loss.");
  model.def(
      "eval",
      [](PythonModel& self, const data::Dataset& dataset, int num_workers, std::vector<nb::object> metrics) {
        return self.eval(dataset, num_workers, std::move(metrics));
      },
      "dataset"_a, "num_workers"_a = 1, "metrics"_a = nb::make_tuple(),
      R"(The model's metrics over the data set, by name; the same on every rank.

metrics: objects of one's own, whose update(output, label, loss) is called after each batch with the rows of all ranks.)");
  model.def(
      "predict",
      [](PythonModel& self, const nb::args& inputs) {
        std::vector<Tensor> tensors;
        for (const nb::handle item : inputs) tensors.push_back(to_tensor(item));
        return self.predict(tensors);
      },
      "inputs"_a, "The network's result for these inputs.");
  model.def(
      "translate",
      [](PythonModel& self, nb::handle sources, int64_t max_length, int64_t beam_size, double length_penalty,
         int64_t batch_size, int32_t begin, int32_t end, int32_t padding) {
        const Tensor rows = to_tensor(sources);
        const train::TranslateOptions options{{beam_size, max_length, begin, end, padding, length_penalty}, batch_size};
        return self.translate(rows, options);
      },
      "sources"_a, "max_length"_a, "beam_size"_a = 4, "length_penalty"_a = 0.6, "batch_size"_a = 32,
      "begin"_a = data::Vocabulary::kBegin, "end"_a = data::Vocabulary::kEnd, "padding"_a = data::Vocabulary::kPadding,
      R"(A list of Decoded, one for each row of sources int32[n,s]: what the network, called with (source, target), finds best.

beam_size: beginnings that the search keeps, 1: greedy. Each step computes the network again for all of max_length tokens.
Every rank calls it.)");
  model.def(
      "build",
      [](PythonModel& self, const data::Dataset& train, const data::Dataset* valid) {
        const Turn turn = self.turn();
        const WithoutGil computing;
        with_unowned_cells(self.as_it_is(), [&] { self.model().build(train, valid); });
      },
      "train"_a, "valid"_a = nb::none(), "Compiles without running.");
  model.def(
      "build_predict",
      [](PythonModel& self, const nb::args& inputs) {
        const Turn turn = self.turn();
        std::vector<Type> types;
        for (const nb::handle item : inputs) types.push_back(to_tensor(item).type());
        const WithoutGil computing;
        with_unowned_cells(self.as_it_is(), [&] { self.model().build_predict(types); });
      },
      "inputs"_a,
      "Compiles the prediction for inputs like these; in semi-automatic parallelism parameters then lie as strategies "
      "say.");
  model.def_prop_ro(
      "layouts", [](PythonModel& self) { return self.as_it_is().layouts(); },
      "How parameters and states lie on the ranks: a list of checkpoint.ParameterLayout, empty before compiling.");
  model.def(
      "names", [](PythonModel& self) { return self.as_it_is().names(); }, "Of parameters, then of states.");
  model.def(
      "value",
      [](PythonModel& self, const std::string& name) {
        const Turn turn = self.turn();
        const WithoutGil computing;
        return self.model().value(name);
      },
      "name"_a, "A parameter or state. Every rank must ask where it is split.");
  model.def(
      "local_value",
      [](PythonModel& self, const std::string& name) {
        const Turn turn = self.turn();
        return self.model().session().values().read(name);
      },
      "name"_a, "This rank's piece of a parameter or state.");
  model.def(
      "set_local_value",
      [](PythonModel& self, const std::string& name, nb::handle value) {
        const Turn turn = self.turn();
        const Tensor piece = to_tensor(value);
        session::Session& session = self.model().session();
        if (!(piece.type() == session.values().type(name))) {
          throw InvalidArgument("this rank's piece of \"{}\" is {}, it cannot be set to {}", name,
                                session.values().type(name), piece.type());
        }
        session.set_piece(name, piece.view());
        self.changed();
      },
      "name"_a, "value"_a, "Sets this rank's piece. Every rank sets its own.");
  model.def(
      "set_value",
      [](PythonModel& self, const std::string& name, nb::handle value) {
        const Turn turn = self.turn();
        self.model().set_value(name, to_tensor(value));
        self.changed();
      },
      "name"_a, "value"_a);
  model.def(
      "save_checkpoint",
      [](PythonModel& self, const Path& path, const nb::dict& append_info, bool integrated, bool async,
         const std::optional<nb::bytes>& key, const std::string& mode) {
        const Turn turn = self.turn();
        const train::SaveCheckpointOptions options{.append_info = to_entries(append_info),
                                                   .integrated = integrated,
                                                   .async = async,
                                                   .encryption = to_encryption(key, mode)};
        const WithoutGil computing;
        return Path{self.model().save_checkpoint(path.bytes, options)};
      },
      "path"_a, "append_info"_a = nb::dict(), "integrated"_a = true, "async_save"_a = false, "enc_key"_a = nb::none(),
      "enc_mode"_a = "AES-GCM",
      R"(Parameters, states, step, data position: training resumes exactly, on any number of ranks. Returns the path.

integrated: one file of whole values; else each rank writes the slices that it holds, those that name one directory into one
checkpoint. async_save: a thread writes a copy; the next save, and finish_saves(), wait for it and raise its error.)");
  model.def(
      "finish_saves",
      [](PythonModel& self) {
        const Turn turn = self.turn();
        const WithoutGil computing;
        self.as_it_is().finish_saves();
      },
      "Waits for a save that a thread is writing, and raises its error.");
  model.def(
      "load_checkpoint",
      [](PythonModel& self, const Path& path, const std::optional<nb::bytes>& key, const std::string& mode,
         bool accept_other_jobs) {
        const Turn turn = self.turn();
        {
          const train::LoadCheckpointOptions options{.decryption = to_encryption(key, mode),
                                                     .accept_other_jobs = accept_other_jobs};
          const WithoutGil computing;
          self.model().load_checkpoint(path.bytes, options);
        }
        self.changed();
      },
      "path"_a, "dec_key"_a = nb::none(), "dec_mode"_a = "AES-GCM", "accept_other_jobs"_a = false,
      R"(Takes all values of a checkpoint that any number of ranks saved, whole or in slices, and where training stood.

path: a checkpoint, or a directory, whose newest one is taken. After build() each rank reads only what it holds. Raises
InvalidArgument listing missing, unexpected and mis-shaped names, or where the checkpoint is of a training with another
job_name, optimizer or network, unless accept_other_jobs; then nothing has changed. A table of learning rates stays the model's
own, so that a training can be made longer.)");
  model.def(
      "load_parameters",
      [](PythonModel& self, const Path& path, const std::optional<nb::bytes>& key, const std::string& mode) {
        const Turn turn = self.turn();
        {
          const auto decryption = to_encryption(key, mode);
          const WithoutGil computing;
          self.model().load_parameters(path.bytes, decryption);
        }
        self.changed();
      },
      "path"_a, "dec_key"_a = nb::none(), "dec_mode"_a = "AES-GCM", "The network's parameters only, of any training.");
  model.def_prop_ro(
      "was_skipped", [](PythonModel& self) { return self.as_it_is().was_skipped(); },
      "Whether the latest step was skipped because a gradient or the loss was not finite.");
  model.def_prop_ro(
      "arena_bytes", [](PythonModel& self) { return self.as_it_is().session().arena_bytes(); },
      "Of this rank: parameters, states and what a step needs; once compiled.");
  model.def(
      "num_replicas",
      [](PythonModel& self, const std::string& name) {
        const Turn turn = self.turn();
        session::Session& session = self.as_it_is().session();
        const mesh::Layout* layout = session.layout(name);
        if (layout == nullptr) return session.context().size();
        // Not by the sizes of the pieces: rows may be dealt unevenly, and there may be none.
        int replicas = 1;
        for (int axis = 0; axis < layout->mesh.num_axes(); ++axis) {
          if (!layout->sharding.splits(axis)) replicas *= layout->mesh.axis(axis).size;
        }
        return replicas;
      },
      "name"_a, "How many ranks hold the same piece of a parameter; once compiled.");
  model.def_prop_ro(
      "step", [](PythonModel& self) { return self.as_it_is().step(); }, "Steps since training began.");
  model.def(
      "graph_text",
      [](PythonModel& self, const data::Dataset& dataset) {
        const Turn turn = self.turn();
        std::vector<session::InputSpec> inputs;
        for (const auto& column : dataset.columns()) inputs.push_back({column.name, column.type});
        return ir::print(self.as_it_is().trace_train(inputs));
      },
      "dataset"_a, "The logical graph of the training step.");
}

}  // namespace tessera::python
