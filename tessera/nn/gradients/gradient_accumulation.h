// Gradient accumulation: a step of training is several micro-batches, whose gradients are added up in states before the
// optimizer sees them. The states are named accu_grads.<parameter>, have the parameter's shape, f32 for half types, and
// are zero between steps.
#pragma once

#include <span>
#include <vector>

#include "tessera/nn/optimizers/optimizer.h"

namespace tessera::nn {

// How many micro-batches the accumulators hold, a state i64[]. Who runs the graphs counts it.
inline constexpr const char* kAccumulatedSteps = "accu_step";
// Whether a micro-batch of the present step has overflowed, see nn/gradients/loss_scale.h.
inline constexpr const char* kAccumulatedOverflow = "accu_overflow";
// Whether a state is part of the accumulation: it says nothing between two steps.
bool is_accumulation_state(const std::string& name);

bool is_accumulated_gradient(const std::string& name);

std::vector<Parameter> gradient_accumulators(std::span<Parameter* const> parameters);

// Adds the gradients to the accumulators.
void accumulate(ir::Graph& graph, std::span<const ParameterGradient> gradients);
// The sums: what the accumulators hold and these gradients. The accumulators become zero.
std::vector<ParameterGradient> accumulated(ir::Graph& graph, std::span<const ParameterGradient> gradients);

// What the accumulators hold; they stay as they are.
std::vector<ParameterGradient> held_gradients(ir::Graph& graph, std::span<Parameter* const> parameters);

}  // namespace tessera::nn
