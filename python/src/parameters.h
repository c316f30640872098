// The values of parameters as Python sees them. A parameter's value is its `data`, unless a model holds it: what
// training has changed there is fetched when it is asked for, and at the latest when the model goes. Several models may
// have one network, each with values in a session of its own: the one that was used last holds the newest, and another
// takes them over before it is used. Of a value that has one row per rank, the statistics of the ranks' own batches, a
// parameter is this rank's row (Model::own_value), as on one device: it is read and set without the other ranks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "python/src/tracing.h"

namespace tessera::python {

// The whole value, made from the initializer where there is none yet. A model's value that is split over ranks is
// gathered: then every rank must ask.
Tensor whole_value(nn::Parameter& parameter);
// What scripts see, outside of traces: the whole, or this rank's slice where the model shows slices.
Tensor parameter_value(nn::Parameter& parameter);
Type parameter_type(const nn::Parameter& parameter);
// Whether a model has it, or scripts see a slice that one has left: set_parameter_value only writes it then.
bool is_in_model(const nn::Parameter& parameter);
// Brings `data` up to date where a model holds the value.
void fetch_held(nn::Parameter& parameter);
// The whole, or what parameter_value gives. Throws InvalidArgument unless the type fits.
void set_parameter_value(nn::Parameter& parameter, const Tensor& value);

// Parameters that the trace reads or assigns, whichever cell they belong to: what is compiled of it does so, too.
// Where two have one name, as those of two networks that are parts of no cell, the later one has another name until the
// trace ends; but not in a model's trace. Forgotten when the outermost TraceScope ends.
void read_by_trace(std::shared_ptr<nn::Parameter> parameter);
const std::vector<std::shared_ptr<nn::Parameter>>& read_by_trace();
void forget_trace();
// Gives the parameter that name until the trace ends.
void rename_for_trace(const std::shared_ptr<nn::Parameter>& parameter, const std::string& name);

// A model's part in the parameters of its cells.
class HeldParameters {
 public:
  // The model has the parameters' values of now. shows_slices: scripts see this rank's slices of what is split.
  HeldParameters(train::Model& model, const std::vector<nn::Parameter*>& parameters, bool shows_slices);
  // Takes the values that are whole here back from the model. What is split and has changed since it was fetched is
  // lost: reading the whole is an error from here on. Where scripts see slices, they go on to see those of now, but of
  // what only servers have.
  ~HeldParameters();
  HeldParameters(const HeldParameters&) = delete;
  HeldParameters& operator=(const HeldParameters&) = delete;

  // Before the model is used: what others have changed since comes here. Every rank calls it where values are split.
  void take();
  // The model's values have changed. What was gathered of them is let go of.
  void invalidate();
  // Those of these names have. What is split of them is fetched, as fetch_split() does.
  void renew(const std::set<std::string>& names);
  // Fetches what is split, while all ranks are here to give their pieces; but not what only servers have, which is
  // fetched when all ranks ask.
  void fetch_split();
  void fetch(nn::Parameter& parameter);
  // This rank's, where scripts see slices and the parameter is split: what it is, and a copy of it.
  std::optional<Type> slice_type(const nn::Parameter& parameter);
  Tensor read_slice(const nn::Parameter& parameter);
  void set_slice(nn::Parameter& parameter, const Tensor& value);
  void set_whole(nn::Parameter& parameter, const Tensor& value);

 private:
  friend void set_parameter_value(nn::Parameter& parameter, const Tensor& value);
  struct Known;  // of a parameter, to all models that have it
  static std::map<const nn::Parameter*, Known>& known();
  static HeldParameters* holder(const nn::Parameter& parameter);
  friend void fetch_held(nn::Parameter& parameter);
  friend Tensor parameter_value(nn::Parameter& parameter);
  friend bool is_in_model(const nn::Parameter& parameter);
  friend std::optional<Type> shown_slice_type(const nn::Parameter& parameter);

  // Whether the ranks must give their pieces to whoever reads the value.
  bool is_gathered(const std::string& name) const;
  // Whether servers keep it and workers have none of it, as of a table that is only looked up in.
  bool is_on_servers_only(const std::string& name) const;
  // Which part of a value that is split this rank has; empty: none.
  std::vector<mesh::Range> range_here(const std::string& name) const;
  void become_holder(Known& known);
  void give_back(nn::Parameter& parameter);
  // In the model's session. The parameter itself has another name once the network is part of another cell.
  const std::string& name_of(const nn::Parameter& parameter) const { return names_.at(&parameter); }

  struct Held {
    nn::Parameter* parameter = nullptr;
    Known* known = nullptr;
    int64_t version = 0;  // of the value that the model has
  };
  train::Model& model_;
  std::vector<Held> parameters_;
  void invalidate(Held& held);
  void fetch_split(const std::vector<nn::Parameter*>& parameters);

  std::map<const nn::Parameter*, std::string> names_;
  bool holds_all_ = false;
  bool shows_slices_;
  std::set<nn::Parameter*> stale_;    // `data` may not be the model's value
  std::set<nn::Parameter*> changed_;  // it is not
};

}  // namespace tessera::python
