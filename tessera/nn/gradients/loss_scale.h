// Loss scaling: small gradients of f16 would round to zero, so the loss is multiplied by a scale before it is
// differentiated, and the gradients of the parameters, f32, are divided by it again (Micikevicius et al., 2018).
//
// The scale is a state, `loss_scale`. A step in which a gradient or the loss is not finite is skipped: parameters,
// moments and counters keep their values, on all ranks. A dynamic scale falls in such a step and grows after a number
// of clean steps, which the state `loss_scale_clean_steps` counts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/nn/optimizers/optimizer.h"

namespace tessera::nn {

struct DynamicLossScaleOptions {
  double init_loss_scale = 16777216;  // 2^24
  double scale_factor = 2;
  int64_t scale_window = 2000;  // clean steps before it grows
};

struct LossScale {
  double initial = 1;
  double factor = 1;   // 1: the scale is fixed
  int64_t window = 0;  // clean steps after which a dynamic scale rises
  // false: nothing is checked; a step is made of whatever the gradients are.
  bool drop_overflow_update = true;

  bool is_dynamic() const { return factor > 1; }
};

// "128"; "65536, times 2 after 1000 clean steps" of a dynamic one; ", unchecked" behind it where nothing is checked.
std::string to_string(const LossScale& loss_scale);

// Divided by the factor when a step overflows, though not below 1; multiplied by it after `scale_window` clean steps.
// Throws InvalidArgument unless init_loss_scale >= 1, scale_factor > 1 and scale_window >= 1.
LossScale dynamic_loss_scale(const DynamicLossScaleOptions& options = {});
// Throws InvalidArgument unless loss_scale is finite and positive.
LossScale fixed_loss_scale(double loss_scale = 128, bool drop_overflow_update = true);

inline constexpr const char* kLossScale = "loss_scale";
// loss_scale f32[]; of a dynamic one loss_scale_clean_steps i32[].
std::vector<Parameter> loss_scale_states(const LossScale& loss_scale);
// i32[], with gradient accumulation: 1 when the loss of an earlier micro-batch of the present step was not finite.
Parameter accumulated_overflow_state();

// The scale at this step, f32[].
ir::Value loss_scale_in(ir::Graph& graph, const LossScale& loss_scale);
// The gradients divided by the scale, f32 (f64 for f64).
std::vector<ParameterGradient> unscaled(const LossScale& loss_scale, std::span<const ParameterGradient> gradients);
// Whether all gradients and the loss are finite, bool[].
ir::Value all_finite(std::span<const ParameterGradient> gradients, ir::Value loss);
// Whether all gradients are finite and no micro-batch of the present step was noted, which stays noted.
ir::Value all_finite_and_none_noted(ir::Graph& graph, std::span<const ParameterGradient> gradients);
// Returns whether the loss of a micro-batch whose gradients are accumulated is finite, bool[]. Where it is not, the
// step notes that.
ir::Value note_overflow(ir::Value loss);
// Whether `finite` holds and no micro-batch before was noted, which is forgotten.
ir::Value without_noted_overflow(ir::Value finite);
// Makes everything that the graph assigns so far keep its old value unless `finite`. Accumulators are left alone: they
// start anew after every step. The graph tells its executor by an output, see ir::kUpdateGuard.
void guard_assignments(ir::Graph& graph, ir::Value finite);
// Adds what becomes of a dynamic scale. After guard_assignments().
void update_loss_scale(const LossScale& loss_scale, ir::Value finite);

}  // namespace tessera::nn
