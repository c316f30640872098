#include "python/src/python_model.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <numeric>

namespace tessera::python {
namespace {

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

}  // namespace

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

namespace {

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

// At the end of each step threads that wait for the model come in, as a callback might.
class LetOthersIn : public train::Callback {
 public:
  explicit LetOthersIn(PythonModel& model) : model_(model) {}
  void step_end(train::RunContext&) override { model_.let_others_in(); }

 private:
  PythonModel& model_;
};

cluster::Context& alone() {
  cluster::check_variables();
  static const auto context = cluster::single_context();
  cluster::warn_of_unknown_variables();
  cluster::warn_if_alone_among_tasks();
  return *context;
}

}  // namespace

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

PythonModel::PythonModel(nn::Cell& network, nn::Cell* loss, nn::Optimizer* optimizer, train::ModelOptions options,
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
  const bool is_alone = !train::needs_ranks(options.parallel_mode) && !belongs_to_job();
  cluster::Context& own = is_alone ? alone() : context();
  {
    const WithoutGil computing;
    model_ = std::make_unique<train::Model>(own, network, loss, optimizer, options);
  }
  for (nn::Parameter* state : states) {
    if (model_->bare_session().holds(state->full_name())) parameters.push_back(state);
  }
  held_ = std::make_unique<HeldParameters>(*model_, parameters, shows_slices);
}

PythonModel::~PythonModel() {
  std::erase_if(python_models(), [&](const auto& entry) { return entry.first == model_.get(); });
  if (home_.is_here()) return;
  static_cast<void>(held_.release());
  static_cast<void>(model_.release());
}

void PythonModel::let_others_in() {
  if (!turns_.is_awaited()) return;
  {
    const nb::gil_scoped_acquire gil;
    changed();  // what they read is of this step
  }
  turns_.give();
  const nb::gil_scoped_acquire gil;
  take();
}

train::Model& PythonModel::model() {
  const nb::gil_scoped_acquire gil;
  take();
  return *model_;
}

void PythonModel::take() {
  held_->take();
  if (std::exchange(changes_, num_changes()) != num_changes()) model_->network_changed();
}

template <typename F>
auto PythonModel::renewing(const F& f) -> decltype(f()) {
  auto result = [&] {
    const WithoutGil computing;
    return with_unowned_cells(*model_, f);
  }();
  held_->renew(model_->take_assigned());
  return result;
}

void PythonModel::train(int64_t num_epochs, const data::Dataset& dataset,
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

double PythonModel::train_step(const std::vector<Tensor>& batch, int64_t global_rows) {
  std::vector<TensorView> views;
  for (const auto& tensor : batch) views.push_back(tensor.view());
  const Turn turn(turns_);
  warn_if_alone_among_ranks();
  take();
  held_->invalidate();
  const WithoutGil computing;
  return with_unowned_cells(*model_, [&] { return model_->train_step(views, global_rows); });
}

Tensor PythonModel::predict(const std::vector<Tensor>& inputs) {
  const Turn turn(turns_);
  take();
  return renewing([&] { return model_->predict(inputs); });
}

std::vector<train::Decoded> PythonModel::translate(const Tensor& rows, const train::TranslateOptions& options) {
  const Turn turn(turns_);
  take();
  return renewing([&] { return train::translate(*model_, rows, options); });
}

std::map<std::string, double> PythonModel::eval(const data::Dataset& dataset, int num_workers,
                                                std::vector<nb::object> objects) {
  if (num_metrics_ == 0 && objects.empty()) {
    throw InvalidArgument("eval: the model has no metrics: name them where it is made, as metrics=[\"accuracy\"]");
  }
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

// A script that mpirun or srun has started and that does not say how ranks share the work: no rank knows of the others.
void PythonModel::warn_if_alone_among_ranks() const {
  static bool is_looked_at = false;
  if (has_context() || std::exchange(is_looked_at, true)) return;
  const int ranks = cluster::num_processes_from_environment();
  if (ranks > 1) log_warning("{}", train::ranks_apart_text(ranks));
}

namespace {

std::vector<nb::object> models_of_this_process() {
  std::vector<nb::object> models;
  for (const auto& [model, object] : python_models()) {
    if (nb::cast<PythonModel&>(object).is_of_this_process()) models.push_back(nb::borrow(object));
  }
  return models;
}

}  // namespace

void finish_all_saves() {
  std::exception_ptr first;
  for (const auto& object : models_of_this_process()) {
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

void leave_with_all_models() {
  for (const auto& object : models_of_this_process()) {
    train::Model& model = nb::cast<PythonModel&>(object).as_it_is();
    const nb::gil_scoped_release release;
    model.leave();
  }
}

}  // namespace tessera::python
