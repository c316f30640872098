// Tracing: a network called once with symbols becomes a graph. One graph is the whole step.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/compiler/mixed_precision.h"
#include "tessera/nn/cell.h"
#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/nn/gradients/loss_scale.h"
#include "tessera/nn/optimizers/optimizer.h"
#include "tessera/ops/functions/collective_functions.h"

namespace tessera::session {

struct InputSpec {
  std::string name;
  Type type;  // global shape
};

// The network's forward pass: inputs in order; results named "output", of the dtypes of a network in f32 whatever the
// precision.
ir::Graph trace_forward(nn::Cell& network, std::span<const InputSpec> inputs, const nn::Settings& settings,
                        const compiler::Precision& precision = {});

// The forward pass and the loss, without gradients: results "loss" and "output". The last input goes to the loss.
// Settings with training == false give the evaluation of a model. `ranks`: see TrainStepOptions.
ir::Graph trace_loss(nn::Cell& network, nn::Cell& loss, std::span<const InputSpec> inputs, const nn::Settings& settings,
                     const std::optional<ops::RankGroup>& ranks = std::nullopt,
                     const compiler::Precision& precision = {});

// Ends the trace of a training graph: random operators that it has draw anew in the next step.
void advance_random_step(ir::Graph& graph);

// Gradient accumulation: a step of several micro-batches is so many graphs.
enum class StepPart {
  kWhole,       // one batch, one step
  kAccumulate,  // gradients are added to their accumulators; nothing else changes but what the forward pass assigns
  kUpdate,      // the last micro-batch of a step: the optimizer gets the sums
  kPush         // one batch, of which the gradients are results (nn/gradients/pushed_gradients.h): nothing is updated
};

struct TrainStepOptions {
  // What the gradient of the loss starts with; the gradients are those of sum(sens * loss).
  double sens = 1.0;
  StepPart part = StepPart::kWhole;
  // The graph is one rank's own (hybrid parallel): the loss is the mean of these ranks' losses, of which the gradients
  // are taken: those of parameters that are not layerwise_parallel are summed over the ranks. Absent: the graph is that
  // of all ranks.
  std::optional<ops::RankGroup> ranks = std::nullopt;
  // What the forward pass, and with it backward, computes in; gradients of parameters arrive in the parameters' dtypes.
  compiler::Precision precision = {};
  // The graph of a step that may be skipped has a result ir::kUpdateGuard, bool[]: false where the step is skipped.
  std::optional<nn::LossScale> loss_scale = std::nullopt;
  // Of kAccumulate with a loss scale: whether what a micro-batch assigns holds only where its loss is finite. Off: who
  // runs the step gives all of it back where the step is skipped.
  bool guards_micro_batches = true;
  // Of kAccumulate: gradients that are kept by rows where the optimizer takes them so. Of kPush: those that are pushed
  // by rows.
  nn::RowAccumulation rows = {};
};
// Forward, backward and update. Results: "loss", and every assigned parameter and state. Where there is no loss cell,
// the network's own result is the loss. The parameters are the network's trainable ones, then the loss cell's.
ir::Graph trace_train_step(nn::Cell& network, nn::Cell* loss, nn::Optimizer& optimizer,
                           std::span<const InputSpec> inputs, const nn::Settings& settings,
                           const TrainStepOptions& options = {});

// The update alone, of gradients that StepPart::kAccumulate has added up: accumulators in, parameters and states out.
// They are not cleared. With a loss scale the graph has a result ir::kUpdateGuard, as that of a step. `micro`: the
// graph that adds to the accumulators; null where none of them are of rows or lookups.
ir::Graph trace_update(nn::Cell& network, nn::Cell* loss, nn::Optimizer& optimizer, const nn::Settings& settings,
                       const std::optional<nn::LossScale>& loss_scale = std::nullopt, const ir::Graph* micro = nullptr);

// The update alone, of gradients that the graph `worker`, of StepPart::kPush, has as results.
ir::Graph trace_pushed_update(nn::Cell& network, nn::Cell* loss, nn::Optimizer& optimizer, const nn::Settings& settings,
                              const ir::Graph& worker);

}  // namespace tessera::session
