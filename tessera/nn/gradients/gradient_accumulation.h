// Gradient accumulation: a step of training is several micro-batches, whose gradients are added up in states before the
// optimizer sees them. The states are named accu_grads.<parameter>, have the parameter's shape, f32 for half types, and
// are zero between steps. Where an optimizer asks which rows were looked up, accu_lookups.<parameter>, f32 [rows],
// counts that.
//
// Of a parameter that is updated by rows, a step that has memory of its own for its accumulators may keep the rows that
// its micro-batches look up, one after the other: accu_ids.<parameter> and accu_rows.<parameter> have room for all of
// them, accu_count.<parameter>, i32[], says how many are there. A step of one micro-batch counts and adds nothing: they
// are what it looks up, and gradients as they come.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tessera/nn/optimizers/optimizer.h"

namespace tessera::nn {

// How many micro-batches the accumulators hold, a state i64[]. Who runs the graphs counts it.
inline constexpr const char* kAccumulatedSteps = "accu_step";
// Whether a micro-batch of the present step has overflowed, see nn/gradients/loss_scale.h.
inline constexpr const char* kAccumulatedOverflow = "accu_overflow";
// Whether a state is part of the accumulation: it says nothing between two steps.
bool is_accumulation_state(const std::string& name);

// Whether a state is an accumulator of a parameter.
bool is_accumulated_gradient(const std::string& name);

std::vector<Parameter> gradient_accumulators(std::span<Parameter* const> parameters);
// accu_lookups of those parameters of which the optimizer updates looked up rows only.
std::vector<Parameter> lookup_accumulators(std::span<Parameter* const> parameters, const Optimizer& optimizer);
// All accumulators that a graph may have, by name, with the parameters that they belong to.
std::map<std::string, std::string> accumulators_by_name(std::span<Parameter* const> parameters);

// Whose gradients are kept by rows, by full name, and of how many micro-batches: those that are made of rows that the
// batch alone names.
struct RowAccumulation {
  std::set<std::string> parameters = {};
  int64_t micro_batches = 1;
};
// Gives each gradient the rows, or the lookups, that the optimizer asks for: rows where it is used at once, or is kept
// by rows.
void find_rows(std::vector<ParameterGradient>& gradients, const Optimizer& optimizer, const RowAccumulation* kept);

// Adds the gradients to the accumulators. `kept`: as find_rows() was told.
void accumulate(ir::Graph& graph, std::span<const ParameterGradient> gradients, const RowAccumulation& kept = {});
// The sums: what the accumulators hold and these gradients. The accumulators become zero.
std::vector<ParameterGradient> accumulated(ir::Graph& graph, std::span<const ParameterGradient> gradients);

// What the accumulators hold; they stay as they are. `micro`: the graph that adds to them; null where none of them are
// of rows or lookups.
std::vector<ParameterGradient> held_gradients(ir::Graph& graph, std::span<Parameter* const> parameters,
                                              const ir::Graph* micro = nullptr);

}  // namespace tessera::nn
