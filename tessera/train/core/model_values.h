// ModelValues: the parameters and states of a model, in a session of its own: what they start with, and whether anyone
// has changed them since. Where they lie is the mode's business.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/cluster/ranks/context.h"
#include "tessera/session/session.h"
#include "tessera/train/modes/mode.h"
#include "tessera/train/modes/trained_cells.h"
#include "tessera/train/options/model_options.h"

namespace tessera::train {

class ModelValues {
 public:
  // Declares them and gives them their first values; takes the options' initial_states. Throws InvalidArgument for a
  // parameter that the mode has no place for, and for an initial state of another type. Collective.
  ModelValues(cluster::Context& context, const TrainedCells& cells, ModelOptions& options, const Mode& mode);

  // The session with all values made.
  session::Session& session() {
    draw();
    return session_;
  }
  // The session for what needs no values: where and how they lie, and what is compiled. Where the job goes on after a
  // loss, those that initializers make are made when session() is asked for: what was kept mostly takes their place.
  session::Session& bare_session() { return session_; }
  // Notes that these values were written, so that nobody makes them.
  void set_taken(std::span<const std::string> names);
  std::span<const nn::Parameter> states() const { return states_; }
  // A value without dims, with the digits that its dtype has.
  std::string number_text(const std::string& name);
  // Micro-batches of the present step that are done: the state of that name.
  int64_t accumulated_batches() const;
  void set_accumulated_batches(int64_t done);

  // Makes the values again as they were at first. Where the user gave data, each rank takes its own.
  void initialize() { initialize({}); }
  // Whether nobody has trained, set or loaded any since.
  bool are_initial() const { return are_initial_; }
  void set_changed() { are_initial_ = false; }
  // What a prediction or an evaluation of this graph assigns has changed.
  void set_assigned(const ir::Graph& graph);
  // The names of what set_assigned() was told of since this was asked last.
  std::set<std::string> take_assigned() { return std::exchange(assigned_, {}); }
  // Whether the value has one row per rank, of which each rank has its own: moving statistics of batches that the ranks
  // normalise by themselves. On one device the row is the value, without the first dim.
  bool has_row_per_rank(const std::string& name) const { return rows_.contains(name); }
  // The value as a network on one device has it: this rank's row where it has_row_per_rank(), else the whole value,
  // collective where it is split. To set it is this rank's matter alone. Throws InvalidArgument for another type.
  Tensor own_value(const std::string& name);
  void set_own_value(const std::string& name, const Tensor& value);
  // Whether every rank is to have this value as it is here.
  bool is_copy(const std::string& name) const { return !session_.is_split(name) && !own_.contains(name); }
  // Notes that values of this rank were set by hand.
  void set_by_hand() {
    set_changed();
    has_new_ = true;
  }
  // Warn where values differ between ranks that should have them alike: compare_replicas() before the first step,
  // compare_new() in each call for which a rank has values that were set by hand. Collective.
  void compare_replicas();
  void compare_new();
  void compare_again() { is_compared_ = false; }

 private:
  // States that count steps.
  std::vector<std::string> counters() const;
  // While ranks wait for each other's values, `after_piece` is called whenever this rank has made more of its own.
  void initialize(const std::function<void()>& after_piece);
  void initialize_together();
  // Whether what initializers make is made when it is asked for.
  bool draws_late() const;
  void draw();
  void make_states();
  void take_initial_states();
  void declare();
  // Of a value that has_row_per_rank(), on one device.
  Type type_of_row(const std::string& name) const;
  void spill();
  void agree();
  void broadcast();
  void take_from_first(const std::string& name, const std::string& who);
  const Tensor* given_value(const std::string& name) const;
  void take_given_of_first(const std::string& name, const Tensor* given);
  void warn_of_other_values(size_t odd_rank);
  bool is_state(const std::string& name) const;
  // The names of the values that all ranks are to have alike.
  std::vector<std::string> replicated_names() const;

  cluster::Context& context_;
  TrainedCells cells_;
  ModelOptions& options_;
  const Mode& mode_;
  session::Session session_;
  std::vector<nn::Parameter> states_;
  std::vector<nn::Parameter> undrawn_;  // parameters and states that have no value yet
  std::set<std::string> rows_;          // the names of what has_row_per_rank()
  std::set<std::string> own_;           // the names of values that differ between ranks by intention
  std::set<std::string> assigned_;
  bool are_initial_ = false;
  bool is_compared_ = false;
  bool has_new_ = false;  // set by hand since they were compared
};

}  // namespace tessera::train
