// Rank 0 searches for a plan while the others wait: what each of them sees when a rank is lost meanwhile, or the search
// fails.
#include "tessera/train/modes/automatic_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <latch>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/comm/job_state.h"
#include "tessera/compiler/autodiff.h"
#include "tessera/compiler/choose_plan.h"
#include "tessera/compiler/compile.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/testing/test_folder.h"

namespace tessera::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// A step of gradient descent of layers that are wider and wider.
ir::Graph training_step(int layers) {
  ir::Graph graph("step");
  auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {64, 128}});
  std::vector<ir::Value> weights;
  for (int i = 0; i < layers; ++i) {
    const Shape shape{128 + 32 * i, 128 + 32 * (i + 1)};
    weights.push_back(graph.add_input(ir::InputKind::kParameter, fmt::format("weight{}", i), {DType::kF32, shape}));
    x = ops::relu(ops::matmul(x, weights.back()));
  }
  const auto loss = ops::reduce_mean(ops::mul(x, x));
  const auto gradients = compiler::gradients(loss, weights);
  for (size_t i = 0; i < weights.size(); ++i) {
    graph.assign(fmt::format("weight{}", i), ops::sub(weights[i], gradients[i]));
  }
  graph.add_output("loss", loss);
  graph.finish_assignments();
  return graph;
}

AutomaticPlanOptions with_profile() {
  AutomaticPlanOptions options;
  options.profile = compiler::example_profile();
  return options;
}

TEST(AutomaticPlan, ARankThatIsLostEndsTheSearch) {
  const ir::Graph graph = training_step(12);
  AutomaticPlanOptions options = with_profile();
  int num_simulated = 0;
  options.search.on_simulation = [&](const compiler::SimulationProgress&) { ++num_simulated; };
  compiler::choose_plan(compiler::simplify(graph), {0, 1}, *options.profile, options.search);
  ASSERT_GE(num_simulated, 2);  // a search that goes on is seen to

  num_simulated = 0;
  std::latch searches(1);
  std::atomic<const comm::JobState*> state_of_job = nullptr;
  options.search.on_simulation = [&](const compiler::SimulationProgress&) {
    if (++num_simulated > 1) return;
    searches.count_down();
    while (!state_of_job.load()->failed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // Time for rank 0 to hear of that, fifteen times as long as it is from one look to the next.
    std::this_thread::sleep_for(std::chrono::seconds(3));
  };
  const auto job = [&](cluster::Context& context) {
    if (context.rank() == 1) {
      searches.wait();
      throw IoError("lost");
    }
    state_of_job = context.world().job();
    EXPECT_THROW(plan_automatically(context, graph, options), comm::PeerFailure);
  };
  EXPECT_THAT([&] { run_ranks(2, job); }, ThrowsMessage<IoError>(HasSubstr("rank 1: lost")));
  EXPECT_EQ(num_simulated, 1);
}

TEST(AutomaticPlan, AnErrorOfRank0IsOfItsKindOnAllRanks) {
  const ir::Graph graph = training_step(1);
  const TestFolder folder("automatic-plan-test");
  const std::string file = folder.in("file");
  std::ofstream(file) << "no plan";
  run_ranks(2, [&](cluster::Context& context) {
    AutomaticPlanOptions unwritable = with_profile();
    unwritable.save_file = file + "/plan.json";  // where there is no folder
    EXPECT_THAT([&] { plan_automatically(context, graph, unwritable); },
                ThrowsMessage<IoError>(testing::AllOf(HasSubstr("auto_parallel: "), HasSubstr(file))));
    AutomaticPlanOptions unreadable = with_profile();
    unreadable.load_file = file;
    EXPECT_THAT([&] { plan_automatically(context, graph, unreadable); },
                ThrowsMessage<InvalidArgument>(testing::AllOf(HasSubstr("auto_parallel: "), HasSubstr(file))));
  });
}

}  // namespace
}  // namespace tessera::train
