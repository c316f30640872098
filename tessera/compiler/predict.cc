#include "tessera/compiler/predict.h"

#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/ops/kernel_catalogue.h"

namespace tessera::compiler {
namespace {

// Operators that are compiled for one simulation, of all classes together: a second's work or two.
constexpr int kMostCompiled = 25'000;
constexpr int kMostClasses = 32;
constexpr int kLeastClasses = 4;
// A price is never nothing: of plans that hide all they send, the one that sends less.
constexpr double kLeastPrice = 0.05;

// How much of each lane's time is exposed, on the rank that takes longest.
LanePrices exposed_shares(const SimulatedPlan& simulated) {
  const auto& steps = simulated.slowest_schedule->steps;
  std::array<double, ir::kNumCommLanes> running = {};
  std::array<double, ir::kNumCommLanes> exposed = {};
  for (const TimedStep& timed : simulated.slowest().timeline) {
    const ir::Step& step = steps[static_cast<size_t>(timed.step)];
    const double seconds = timed.end_seconds - timed.begin_seconds;
    if (step.kind == ir::StepKind::kStart) {
      running[static_cast<size_t>(ir::lane_of(step.attributes))] += seconds;
    } else if (step.kind == ir::StepKind::kWait) {
      const ir::Step& start = steps[static_cast<size_t>(step.joins)];
      exposed[static_cast<size_t>(ir::lane_of(start.attributes))] += seconds;
    }
  }
  const auto share = [&](int64_t lane) {
    const auto at = static_cast<size_t>(lane);
    return running[at] > 0 ? std::clamp(exposed[at] / running[at], kLeastPrice, 1.0) : 1.0;
  };
  return {.awaited = share(ir::kAwaitedLane), .gradient = share(ir::kGradientLane)};
}

// The index of the class that takes longest.
size_t slowest_of(const Simulation& simulation) {
  const auto& classes = simulation.classes;
  const auto it = std::max_element(classes.begin(), classes.end(),
                                   [](const auto& a, const auto& b) { return a.step_seconds() < b.step_seconds(); });
  return static_cast<size_t>(it - classes.begin());
}

}  // namespace

const ClassSimulation& SimulatedPlan::slowest() const { return simulation.classes[slowest_of(simulation)]; }

size_t most_classes(int num_operators) {
  return static_cast<size_t>(std::clamp(kMostCompiled / std::max(num_operators, 1), kLeastClasses, kMostClasses));
}

SimulatedPlan simulate_plan(const ir::Graph& graph, const Plan& plan, const MachineProfile& profile,
                            int64_t memory_limit_bytes, const PartitionOptions& partition, const SimulationTime& time) {
  Compiled planned;
  planned.logical = graph;
  planned.plan = plan;
  static const ops::FakeKernelCatalogue catalogue;
  SimulatedPlan result;
  const auto simulate_within = [&](int64_t limit, const Deadline& deadline) {
    // The job that takes the plan verifies what it compiles; among a thousand ranks that takes longer than compiling.
    auto sample =
        sample_classes(planned, profile, catalogue,
                       {.verification = Verification::kNone,
                        .partition = partition,
                        .memory_limit_bytes = limit,
                        .deadline = deadline},
                       {.most_classes = most_classes(graph.num_nodes()), .on_class_done = time.on_class_done});
    result.is_coarse = sample.is_coarse;
    result.simulation = simulate_with_data(sample.classes, profile, deadline);
    result.slowest_schedule =
        std::make_shared<ir::Schedule>(std::move(sample.classes[slowest_of(result.simulation)].schedule));
    result.peak_memory_bytes = 0;
    for (const auto& ranks : result.simulation.classes) {
      result.peak_memory_bytes = std::max(result.peak_memory_bytes, ranks.peak_memory_bytes);
    }
  };
  simulate_within(0, time.first);
  result.peak_unlimited_bytes = result.peak_memory_bytes;
  if (memory_limit_bytes == 0 || result.peak_memory_bytes <= memory_limit_bytes) return result;
  try {
    simulate_within(memory_limit_bytes, time.fitting);
  } catch (const InvalidArgument&) {
    result.fits = false;  // whatever is computed again
  } catch (const DeadlineOver&) {
    result.fits = false;
    result.is_cut_short = true;
  }
  return result;
}

PlanPrediction predict(const ir::Graph& graph, const PlanChoices& choices, const MachineProfile& profile,
                       const SearchOptions& options, const SimulationTime& time) {
  const auto simulated =
      std::make_shared<SimulatedPlan>(simulate_plan(graph, plan_of(graph, choices, options.whole_results), profile,
                                                    options.memory_limit_bytes, options.partition, time));
  const Simulation& simulation = simulated->simulation;
  PlanPrediction predicted{.step_seconds = simulated->fits ? simulation.step_seconds : solver::kForbidden,
                           .peak_memory_bytes = simulated->peak_memory_bytes,
                           .peak_unlimited_bytes = simulated->peak_unlimited_bytes,
                           .exposed = exposed_shares(*simulated),
                           .simulated = simulated};
  for (const auto& ranks : simulation.classes) {
    predicted.communication_seconds = std::max(predicted.communication_seconds, ranks.communication_seconds);
  }
  return predicted;
}

}  // namespace tessera::compiler
