// PythonModel: a model with the values that Python's parameters have in it, for Python's threads.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/src/bind.h"
#include "python/src/called_cells.h"
#include "python/src/cells.h"
#include "python/src/parameters.h"
#include "python/src/threads.h"

namespace tessera::python {

// Calls f, which may trace the network. Where that fails and a cell was called that is no part of the network, it says
// so.
template <typename F>
auto with_unowned_cells(train::Model& model, const F& f) {
  {
    const nb::gil_scoped_acquire gil;
    unowned_cells().clear();
  }
  const auto refuse_unowned = [&](const std::string& said) {
    for (const auto& [parameter, of_class] : unowned_cells()) {
      if (model.bare_session().holds(parameter)) continue;
      throw InvalidArgument(
          "\"{}\" of a {} is no parameter of the network: a layer is trained as an attribute that __init__() sets, or "
          "in a CellList or Sequential that is one; not in a list, tuple or dict, nor where construct() makes it ({})",
          parameter, of_class, said);
    }
  };
  try {
    return f();
  } catch (const InvalidArgument& error) {
    if (typeid(error) != typeid(InvalidArgument)) throw;
    const nb::gil_scoped_acquire gil;
    refuse_unowned(error.what());
    throw;
  } catch (nb::python_error& error) {
    // Of construct() itself: layers of equal parameters' names, of which the network knows none, share values.
    const nb::gil_scoped_acquire gil;
    if (nb::module_::import_("tessera._tessera").attr("InvalidArgument").is(error.type())) {
      refuse_unowned(nb::cast<std::string>(nb::str(error.value())));
    }
    throw;
  }
}

class Observers;

// Several threads may call it: one is in the model at a time.
class PythonModel {
 public:
  // states: the optimizer's, where Python has parameters of them.
  PythonModel(nn::Cell& network, nn::Cell* loss, nn::Optimizer* optimizer, train::ModelOptions options,
              bool shows_slices, const std::vector<nn::Parameter*>& states);
  ~PythonModel();
  PythonModel(const PythonModel&) = delete;
  PythonModel& operator=(const PythonModel&) = delete;

  // Of a call of this thread.
  Turn turn() { return Turn(turns_); }
  // Between two steps: threads that wait for the model have their turns.
  void let_others_in();

  // With the newest values of its parameters, which another model may have changed.
  train::Model& model();
  // With whatever values it has.
  train::Model& as_it_is() { return *model_; }
  // False in a child of fork(), of a model of its parent's.
  bool is_of_this_process() const { return home_.is_here(); }
  void changed() { held_->invalidate(); }
  // The newest values of its parameters, and what has been changed of its cells.
  void take();

  void train(int64_t num_epochs, const data::Dataset& dataset,
             const std::vector<std::shared_ptr<train::Callback>>& list, const train::TrainOptions& options);
  double train_step(const std::vector<Tensor>& batch, int64_t global_rows);
  Tensor predict(const std::vector<Tensor>& inputs);
  std::vector<train::Decoded> translate(const Tensor& rows, const train::TranslateOptions& options);
  std::map<std::string, double> eval(const data::Dataset& dataset, int num_workers, std::vector<nb::object> objects);

 private:
  // Calls f without the GIL. What it has the network assign, Python's parameters have then.
  template <typename F>
  auto renewing(const F& f) -> decltype(f());
  void warn_if_alone_among_ranks() const;

  Home home_;
  Turns turns_;
  std::vector<std::shared_ptr<nn::Parameter>> kept_;  // those that held_ names
  std::shared_ptr<Observers> observers_;
  size_t num_metrics_ = 0;
  std::unique_ptr<train::Model> model_;
  std::unique_ptr<HeldParameters> held_;
  uint64_t changes_ = num_changes();  // of cells, when what is compiled was traced
};

// The living models in the order in which they were made, each with the Python object that callbacks see. Guarded by
// the GIL.
std::vector<std::pair<const train::Model*, nb::handle>>& python_models();
// The Python object of a living model.
nb::handle python_model(const train::Model& model);
// Of all models, in the order in which they were made. Throws the first error; further ones are logged.
void finish_all_saves();
// Of all models: Model::leave().
void leave_with_all_models();

}  // namespace tessera::python
