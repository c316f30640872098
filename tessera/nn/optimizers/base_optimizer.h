// BaseOptimizer: what all optimizers share: learning rate (fixed or scheduled), parameter groups, weight decay, loss
// scale, step counter. An optimizer adds its own states and the node that updates one parameter.
//
// States, in the order of a checkpoint: global_step i32[1], counted up after each step has read it; learning_rate,
// f32[] if fixed, the table f32[steps], none for a schedule; learning_rate_group_<i> of the groups with a rate of their
// own; then what the optimizer adds. A network with f64 parameters gets f64 rates.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/nn/optimizers/learning_rate.h"
#include "tessera/nn/optimizers/optimizer.h"

namespace tessera::nn {

// Parameters that are treated alike: those listed and those whose full name satisfies `matches`.
struct ParameterGroup {
  std::vector<const Parameter*> parameters = {};
  std::function<bool(const std::string& full_name)> matches = {};
  std::optional<LearningRate> learning_rate = std::nullopt;  // absent: the optimizer's
  std::optional<double> weight_decay = std::nullopt;         // absent: the optimizer's
};

struct OptimizerSettings {
  LearningRate learning_rate;
  // Added to the gradient as weight_decay * parameter. Parameters in no group are exempt if the last name of their
  // path is `beta` or `gamma`; those of a group are not.
  double weight_decay = 0;
  // Gradients are divided by it first.
  double loss_scale = 1;
  std::vector<ParameterGroup> groups = {};
};

class BaseOptimizer : public Optimizer {
 public:
  // Throws InvalidArgument naming the optimizer for a negative weight decay or a loss scale that is not positive.
  BaseOptimizer(std::string name, OptimizerSettings settings);

  // Throws InvalidArgument when a parameter is in two groups. A parameter without gradient gets one of zeros.
  void update(ir::Graph& graph, std::span<const ParameterGradient> gradients) final;
  // Throws InvalidArgument when a group matches none of the parameters, too.
  std::vector<Parameter> states(std::span<Parameter* const> parameters) const final;
  void set_state_prefix(const std::string& prefix) final { state_prefix_ = prefix; }
  std::string name() const final { return name_; }
  RowUpdates row_updates(const Parameter& parameter) const final;

 protected:
  // All that the update of one parameter needs.
  struct Update {
    const Parameter& parameter;
    ir::Value value;
    ir::Value gradient;                    // has the parameter's dtype; null where `rows` stand for it
    std::optional<RowGradient> rows;       // only where row_updates() takes them
    ir::Value lookups;                     // as ParameterGradient has them
    ir::Value learning_rate;               // scalars are f32, or f64 for an f64 parameter
    const std::vector<ir::Value>& shared;  // what begin_step() returned
    double weight_decay;
    double loss_scale;
  };
  // States beside those of the parameters: momentum, powers of beta. `scalar` is the dtype of scalars.
  virtual std::vector<Parameter> shared_states(DType scalar) const = 0;
  // States of each parameter, of its type (f32 for half types): "moments" for moments.<parameter>.
  virtual std::vector<std::string> slots() const = 0;
  // States of each parameter that are one number: "mu_" for mu_<parameter>.
  struct NumberSlot {
    std::string prefix;
    double initial_value = 0;
  };
  virtual std::vector<NumberSlot> number_slots() const { return {}; }
  // What every element of that slot is at first.
  virtual double initial_value(const std::string& /*slot*/) const { return 0; }
  // Reads and advances the shared states; returns the scalars that every update reads. Called once per step.
  virtual std::vector<ir::Value> begin_step(ir::Graph& graph, DType scalar) const = 0;
  // Adds the node and assigns its results.
  virtual void add_update(const Update& update) const = 0;
  // Of a parameter that has that weight decay, and a learning rate that is one number or changes.
  virtual RowUpdates kind_of_row_updates(const Parameter&, double /*weight_decay*/, bool /*is_rate_fixed*/) const {
    return RowUpdates::kNever;
  }
  // Adds the operator `op`: to all of the parameter, or to the rows that were looked up. Its operands are parameter,
  // states, gradient, learning rate and the other scalars; its results the new parameter and states. `whole`: a number
  // that is not 0 in steps that change other rows, too; null where there are none. `keeps_states`: in the other steps
  // the states of no row change.
  static void apply_operator(const std::string& op, const Update& update, std::span<const Parameter> states,
                             std::span<const ir::Value> more_scalars, const Attributes& attributes,
                             const ir::Value& whole = {}, bool keeps_states = false);

  // gradient / loss_scale + weight_decay * parameter, in the dtype of the parameter's slots.
  static ir::Value decayed_gradient(const Update& update);
  // The state "<slot>.<parameter>" of a parameter, behind the prefix.
  Parameter slot_of(const Parameter& parameter, const std::string& slot) const;
  // The state "<prefix><parameter>", a scalar of the parameter's arithmetic, behind the optimizer's prefix.
  Parameter number_of(const Parameter& parameter, const std::string& prefix) const;
  // A state of that name behind the prefix, and of that type, in which every element is `value` at first.
  Parameter state(const std::string& name, const Type& type, double value) const;
  // The value of global_step at this step, i32[1].
  ir::Value global_step(ir::Graph& graph) const;

 private:
  // Gives the update the gradient's rows, or which of them were looked up, where it is made of lookups and the
  // parameter is updated so.
  void find_rows(const ir::Value& gradient, Update& update) const;
  // Index of the group that the parameter is in; nullopt for none.
  std::optional<size_t> group_of(const Parameter& parameter) const;
  double weight_decay_of(const Parameter& parameter, std::optional<size_t> group) const;
  bool has_own_rate(std::optional<size_t> group) const;
  // The state that holds this group's rate, the optimizer's own for nullopt or a group without.
  std::string rate_name(std::optional<size_t> group) const;
  const LearningRate& rate_of(std::optional<size_t> group) const;
  Parameter rate_state(std::optional<size_t> group, DType scalar) const;
  ir::Value read_rate(ir::Graph& graph, std::optional<size_t> group, DType scalar) const;

  std::string name_;
  std::string state_prefix_;
  OptimizerSettings settings_;
};

// Whether a state of an optimizer is a table of learning rates, one for each step.
bool is_rate_table(const Parameter& state);

// A scalar of the parameter's arithmetic: cast from the optimizer's scalar dtype where they differ.
ir::Value scalar_for(const Parameter& parameter, ir::Value scalar);

}  // namespace tessera::nn
