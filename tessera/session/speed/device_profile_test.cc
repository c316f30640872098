// Claims about whose clock tells what a device does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/executor/profile_table.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/testing/devices/fake_device.h"
#include "tessera/testing/ticking_clock.h"
#include "tessera/testing/wrapped_context.h"

namespace tessera::session {
namespace {

using testing::HasSubstr;

TEST(Profile, TellsWhatADeviceDoesByTheDevicesClock) {
  FakeDevice device(3);
  const auto backend = fake_backend(device, /*plain_loops=*/true);
  const auto one_rank = cluster::single_context(1);
  TickingClock clock(1000);
  ContextWithClock context(*one_rank, clock);
  Session session(context, {.backend = &backend, .fusions = compiler::Fusions::none()});
  ir::Graph graph("sum");
  const ir::Value x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {2, 2}});
  graph.add_output("loss", ops::reduce_sum(ops::exp(x) - 1.0, {0, 1}));
  const auto step = session.compile_local(graph);
  executor::Executor& executor = step->executor();
  executor.set_profiling(true);
  for (int run = 0; run < 3; ++run) {  // the third would replay what the second has recorded
    copy_elements(Tensor::full({DType::kF32, {2, 2}}, 3).view(), step->input("x"));
    step->run();
  }
  const auto times = executor.profile();
  ASSERT_EQ(times.size(), executor.schedule().steps.size());
  for (size_t s = 0; s < times.size(); ++s) {
    const auto kind = executor.schedule().steps[s].kind;
    const bool is_given = kind == ir::StepKind::kCompute || kind == ir::StepKind::kCopy;
    EXPECT_EQ(times[s].is_of_device, is_given) << times[s].kernel;
    if (is_given) {
      EXPECT_GT(times[s].microseconds, 0) << times[s].kernel;
    } else {
      EXPECT_EQ(times[s].microseconds, 3) << times[s].kernel;  // of the host's clock, which ticks at each look
    }
  }
  EXPECT_THAT(executor::profile_table(executor, 3),
              HasSubstr("\nkernels and copies by the clock of fake, each by itself"));
}

}  // namespace
}  // namespace tessera::session
