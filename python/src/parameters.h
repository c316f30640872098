// The values of parameters as Python sees them. A parameter's value is its `data`, unless a model holds it: what
// training has changed there is fetched when it is asked for, and at the latest when the model goes.
#pragma once

#include <optional>
#include <set>

#include "python/src/tracing.h"

namespace tessera::python {

// The whole value, made from the initializer where there is none yet. A model's value that is split over ranks is
// gathered: then every rank must ask.
Tensor whole_value(nn::Parameter& parameter);
// What scripts see, outside of traces: the whole, or this rank's slice where the model shows slices.
Tensor parameter_value(nn::Parameter& parameter);
Type parameter_type(const nn::Parameter& parameter);
// Brings `data` up to date where a model holds the value.
void fetch_held(nn::Parameter& parameter);
// The whole, or what parameter_value gives. Throws InvalidArgument unless the type fits.
void set_parameter_value(nn::Parameter& parameter, const Tensor& value);

// Parameters that the trace reads or assigns, whichever cell they belong to: what is compiled of it does so, too.
// Forgotten when the outermost TraceScope ends.
void read_by_trace(std::shared_ptr<nn::Parameter> parameter);
const std::vector<std::shared_ptr<nn::Parameter>>& read_by_trace();
void forget_trace();

// Says that a model holds the values of its cells' parameters.
class HeldParameters {
 public:
  // shows_slices: scripts see this rank's slices of what is split.
  HeldParameters(train::Model& model, std::vector<nn::Parameter*> parameters, bool shows_slices);
  // Takes the values that are whole here back from the model. What is split and has changed since it was fetched is
  // lost: reading it is an error from here on.
  ~HeldParameters();
  HeldParameters(const HeldParameters&) = delete;
  HeldParameters& operator=(const HeldParameters&) = delete;

  // The model's values have changed.
  void invalidate() { stale_ = changed_ = {parameters_.begin(), parameters_.end()}; }
  // Fetches what is split, while all ranks are here to give their pieces.
  void fetch_split();
  void fetch(nn::Parameter& parameter);
  // This rank's, in place, where scripts see slices and the parameter is split.
  std::optional<TensorView> slice(const nn::Parameter& parameter);
  void set_slice(nn::Parameter& parameter, const Tensor& value);
  void set_whole(nn::Parameter& parameter, const Tensor& value);
  train::Model& model() { return model_; }

 private:
  train::Model& model_;
  std::vector<nn::Parameter*> parameters_;
  bool shows_slices_;
  std::set<nn::Parameter*> stale_;    // `data` may not be the model's value
  std::set<nn::Parameter*> changed_;  // it is not
};

}  // namespace tessera::python
