// Claims about steps that run: what a non-finite loss leaves behind, profiles, values that are split over ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>

#include "tessera/base/error.h"
#include "tessera/executor/profile_table.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/testing/ticking_clock.h"
#include "tessera/testing/wrapped_context.h"

namespace tessera::session {
namespace {

using ir::InputKind;
using ir::Value;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing::ThrowsMessage;

// loss = sum(log(w * (x - 1))), w moves on by 1. What log reads is worked out in place, behind a change of shape.
ir::Graph logarithms() {
  ir::Graph graph("step");
  const Value x = graph.add_input(InputKind::kInput, "x", {DType::kF32, {2, 2}});
  const Value w = graph.add_input(InputKind::kParameter, "w", {DType::kF32, {4}});
  Value v;
  {
    const ir::SourceScope scope(graph, "shift");
    v = ops::reshape(x, {4}) - 1.0;
  }
  {
    const ir::SourceScope scope(graph, "scale");
    v = v * w;
  }
  {
    const ir::SourceScope scope(graph, "logarithm");
    v = ops::log(v);
  }
  graph.add_output("loss", ops::reduce_sum(v, {0}));
  graph.assign("w", w + 1.0);
  graph.finish_assignments();
  return graph;
}

void set(Executable& executable, const std::string& name, const Tensor& value) {
  copy_elements(value.view(), executable.input(name));
}

class NonFiniteLoss : public testing::TestWithParam<bool> {};

TEST_P(NonFiniteLoss, NamesTheFirstOperatorAndLeavesTheParameters) {
  const auto context = cluster::single_context(1);
  Session session(*context, {.reference_kernels = GetParam(), .fusions = compiler::Fusions::none()});
  session.declare("w", {DType::kF32, {4}});
  session.set_value("w", Tensor::full({DType::kF32, {4}}, 1));
  const auto step = session.compile_local(logarithms());
  set(*step, "x", Tensor::of<float>({2, 2}, {2, 3, 4, 5}));
  step->run();
  EXPECT_THAT(session.value("w").to_doubles(), ElementsAre(2, 2, 2, 2));
  set(*step, "x", Tensor::of<float>({2, 2}, {2, 3, 0.5F, 5}));
  EXPECT_THAT([&] { step->run(); },
              ThrowsMessage<executor::NonFiniteLoss>(AllOf(StartsWith("loss is nan"), HasSubstr("log \"logarithm\""))));
  EXPECT_THAT(session.value("w").to_doubles(), ElementsAre(2, 2, 2, 2));
  // The step can be repeated with other data.
  set(*step, "x", Tensor::of<float>({2, 2}, {2, 3, 4, 5}));
  step->run();
  EXPECT_THAT(session.value("w").to_doubles(), ElementsAre(3, 3, 3, 3));
}

TEST_P(NonFiniteLoss, NamesTheRowOfTheDataThatIsNotFinite) {
  const auto context = cluster::single_context(1);
  Session session(*context, {.reference_kernels = GetParam(), .fusions = compiler::Fusions::none()});
  session.declare("w", {DType::kF32, {4}});
  session.set_value("w", Tensor::full({DType::kF32, {4}}, 1));
  const auto step = session.compile_local(logarithms());
  set(*step, "x", Tensor::of<float>({2, 2}, {2, 3, 4, INFINITY}));
  EXPECT_THAT([&] { step->run("column"); },
              ThrowsMessage<executor::NonFiniteLoss>(AllOf(HasSubstr("; first non-finite result: "),
                                                           HasSubstr("; column \"x\": row 1 holds inf at [1, 1]"))));
  // One whose data is finite says nothing of it.
  set(*step, "x", Tensor::of<float>({2, 2}, {2, 3, 0.5F, 5}));
  EXPECT_THAT([&] { step->run("column"); }, ThrowsMessage<executor::NonFiniteLoss>(Not(HasSubstr("column"))));
}

TEST_P(NonFiniteLoss, ABadParameterIsSeenInWhatFirstReadsIt) {
  const auto context = cluster::single_context(1);
  Session session(*context, {.reference_kernels = GetParam(), .fusions = compiler::Fusions::none()});
  session.declare("w", {DType::kF32, {4}});
  session.set_value("w", Tensor::of<float>({4}, {1, 1, INFINITY, 1}));
  const auto step = session.compile_local(logarithms());
  set(*step, "x", Tensor::full({DType::kF32, {2, 2}}, 3));
  EXPECT_THAT([&] { step->run(); },
              ThrowsMessage<executor::NonFiniteLoss>(AllOf(StartsWith("loss is inf"), HasSubstr("mul \"scale\""))));
}

INSTANTIATE_TEST_SUITE_P(Kernels, NonFiniteLoss, testing::Bool(),
                         [](const auto& info) { return info.param ? "reference" : "fast"; });

TEST(NonFiniteLossOnRanks, StopsAllOfThemAndIsNamedWhereItIs) {
  run_ranks(2, [](cluster::Context& context) {
    Session session(context, {.fusions = compiler::Fusions::none()});
    session.declare("w", {DType::kF32, {4}});
    session.set_value("w", Tensor::full({DType::kF32, {4}}, 1));
    // Each rank has two of the four elements.
    ir::Graph graph("step");
    const Value x = graph.add_input(InputKind::kInput, "x", {DType::kF32, {4}});
    const Value w = graph.add_input(InputKind::kParameter, "w", {DType::kF32, {4}});
    {
      const ir::SourceScope scope(graph, "logarithm");
      graph.add_output("loss", ops::reduce_sum(ops::log(x * w), {0}));
    }
    graph.assign("w", w + 1.0);
    graph.finish_assignments();
    const mesh::Mesh mesh({{"data", 2}});
    const auto step = session.compile(graph, mesh, {{"x", {mesh, {.dims = {{0}}, .partial = {}}}}});
    const bool is_bad = context.rank() == 1;
    set(*step, "x", Tensor::of<float>({2}, {1, is_bad ? -1.0F : 1.0F}));
    EXPECT_THAT([&] { step->run(); },
                ThrowsMessage<executor::NonFiniteLoss>(
                    AllOf(StartsWith("loss is nan"), HasSubstr(is_bad ? "log \"logarithm\"" : "of all_reduce"))));
    EXPECT_THAT(session.value("w").to_doubles(), ElementsAre(1, 1, 1, 1));
    // A row of the data is counted in the whole batch.
    set(*step, "x", Tensor::of<float>({2}, {1, is_bad ? NAN : 1.0F}));
    const auto* const word = is_bad ? "; input \"x\": row 3 holds nan at [3]" : "of all_reduce";
    EXPECT_THAT([&] { step->run(); },
                ThrowsMessage<executor::NonFiniteLoss>(AllOf(StartsWith("loss is nan"), HasSubstr(word))));
  });
}

// A step whose loss stops it while what it has summed up over the ranks is not awaited yet.
ir::Graph step_with_a_late_sum(const Type& type) {
  ir::Graph graph("step");
  const Value x = graph.add_input(InputKind::kInput, "x", type);
  const Value w = graph.add_input(InputKind::kParameter, "w", type);
  const Value sum = ops::all_reduce(x, {.name = "alone", .ranks = {0}, .own = 0});
  graph.add_output("loss", ops::reduce_sum(ops::log(x), {0}));
  graph.assign("w", w + sum);
  graph.finish_assignments();
  return graph;
}

TEST(NonFiniteLoss, LeavesNoCollectiveUnderWay) {
  const auto context = cluster::single_context(1);
  Session session(*context, {.fusions = compiler::Fusions::none()});
  const Type type{DType::kF32, {4}};
  session.declare("w", type);
  const auto step = session.compile_local(step_with_a_late_sum(type));
  executor::Arena arena(1 << 20);
  executor::CommLanes lanes(0);
  executor::Executor executor(
      step->compiled().schedule, arena, session.kernels(),
      &lanes, [&](const Attributes&) -> auto& { return context->world(); });
  copy_elements(Tensor::full(type, -1).view(), executor.input("x"));
  const auto make_task = [](std::function<void()> run) {
    return std::make_shared<const std::function<void()>>(std::move(run));
  };
  // What holds up the collective ends when somebody asks for what is under way in the other lane: nobody does but a
  // run that ends.
  const auto ends_all = [&](const std::function<void()>& run) {
    std::promise<void> released;
    bool has_ended = false;
    const int64_t ticket = lanes[ir::kAwaitedLane].start(make_task([&] { released.set_value(); }), /*wakes=*/false);
    const int64_t held_up = lanes[ir::kGradientLane].start(make_task([&] {
      released.get_future().wait();
      has_ended = true;
    }));
    run();
    const bool ended = has_ended;
    lanes[ir::kAwaitedLane].wait(ticket);
    lanes[ir::kGradientLane].wait(held_up);
    return ended;
  };
  EXPECT_TRUE(ends_all([&] { EXPECT_THROW(executor.run(), executor::NonFiniteLoss); }));
  EXPECT_TRUE(ends_all([&] { EXPECT_THAT(executor.find_non_finite(), HasSubstr("of log")); }));
}

TEST(NonFiniteLossOnRanks, HasSummedUpTheGradientsAndMayEndTheStepsLife) {
  run_ranks(2, [](cluster::Context& context) {
    Session session(context, {.fusions = compiler::Fusions::none()});
    const Type type{DType::kF32, {1 << 20}};
    session.declare("w", type);
    ir::Graph graph("step");
    const Value x = graph.add_input(InputKind::kInput, "x", {DType::kF32, {4, 1 << 20}});
    const Value w = graph.add_input(InputKind::kParameter, "w", type);
    const Value sum = ops::reduce_sum(x, {0});
    graph.add_output("loss", ops::log(ops::reduce_sum(ops::slice(x, {0, 0}, {4, 1}), {0, 1})));
    graph.add_output("sum", sum);
    graph.assign("w", w + sum);
    graph.finish_assignments();
    const mesh::Mesh mesh({{"data", 2}});
    auto step = session.compile(graph, mesh, {{"x", {mesh, {.dims = {{0}, {}}, .partial = {}}}}});
    set(*step, "x", Tensor::full({DType::kF32, {2, 1 << 20}}, -1.0 - context.rank()));
    EXPECT_THROW(step->run(), executor::NonFiniteLoss);
    const auto sums = Tensor::copy_of(step->output("sum")).to_doubles();
    EXPECT_EQ(std::count(sums.begin(), sums.end(), -6), std::ssize(sums));
    step.reset();
  });
}

TEST(Profile, TellsTheTimeOfEachStepOnceAskedFor) {
  const auto one_rank = cluster::single_context(1);
  TickingClock clock(1000);
  ContextWithClock context(*one_rank, clock);
  Session session(context, {.fusions = compiler::Fusions::none()});
  session.declare("w", {DType::kF32, {4}});
  session.set_value("w", Tensor::full({DType::kF32, {4}}, 1));
  const auto step = session.compile_local(logarithms());
  const auto run = [&] {
    set(*step, "x", Tensor::full({DType::kF32, {2, 2}}, 3));
    step->run();
  };
  run();
  for (const auto& time : step->executor().profile()) EXPECT_EQ(time.microseconds, 0) << time.kernel;
  step->executor().set_profiling(true);
  run();
  const auto once = step->executor().profile();
  ASSERT_EQ(once.size(), step->compiled().schedule.steps.size());
  for (const auto& time : once) EXPECT_EQ(time.microseconds, 1) << time.kernel;
  EXPECT_TRUE(std::any_of(once.begin(), once.end(), [](const executor::StepTime& time) {
    return time.source == "logarithm" && time.kernel.find("log") != std::string::npos;
  }));
  run();
  const auto twice = step->executor().profile();
  for (size_t s = 0; s < once.size(); ++s) EXPECT_EQ(twice[s].microseconds, 2);
}

TEST(Arena, IsLargeEnoughForEverySignature) {
  const auto context = cluster::single_context(1);
  Session session(*context, {.fusions = compiler::Fusions::none()});
  session.declare("w", {DType::kF32, {4}});
  session.set_value("w", Tensor::full({DType::kF32, {4}}, 1));
  const auto step = session.compile_local(logarithms());
  EXPECT_GE(session.arena_bytes(), step->compiled().schedule.arena_bytes);
  for (const auto& value : step->compiled().schedule.values) {
    EXPECT_LE(value.offset + value.type.size_bytes(), step->compiled().schedule.arena_bytes) << value.name;
  }
}

TEST(Values, ThatAreSplitAreGatheredWholeAndSetByPiece) {
  run_ranks(3, [](cluster::Context& context) {
    const mesh::Mesh mesh({{"data", 3}});
    const mesh::Sharding rows{.dims = {{0}, {}}, .partial = {}};
    Session session(context);
    session.declare("w", {DType::kF32, {4, 2}}, &rows, &mesh);
    const Tensor whole = Tensor::of<float>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    session.set_value("w", whole);
    EXPECT_EQ(session.values().type("w").shape[0], context.rank() == 0 ? 2 : 1);
    EXPECT_TRUE(bit_equal(session.value("w"), whole));
  });
}

TEST(Sessions, ShareAContextOneAfterAnotherAndAtOnce) {
  run_ranks(2, [](cluster::Context& context) {
    ir::Graph graph("sum");
    const Value x = graph.add_input(InputKind::kInput, "x", {DType::kF32, {4}});
    graph.add_output("y", ops::reduce_sum(x, {0}));
    const mesh::Mesh mesh({{"data", 2}});
    const auto run = [&](Session& session) {
      const auto step = session.compile(graph, mesh, {{"x", {mesh, {.dims = {{0}}, .partial = {}}}}});
      set(*step, "x", Tensor::full({DType::kF32, {2}}, context.rank() + 1));
      step->run();
      EXPECT_EQ(Tensor::copy_of(step->output("y")).item(), 6);
    };
    for (int i = 0; i < 2; ++i) {
      Session first(context);
      Session second(context);
      run(first);
      run(second);
    }
  });
}

TEST(Values, OfAnotherTypeOrNameAreRefused) {
  const auto context = cluster::single_context(1);
  Session session(*context);
  session.declare("w", {DType::kF32, {4}});
  EXPECT_THAT(
      [&] {
        session.set_value("w", Tensor::zeros({DType::kF32, {5}}));
      },
      ThrowsMessage<InvalidArgument>("\"w\" is f32[4], it cannot be set to f32[5]"));
  EXPECT_THAT([&] { session.value("v"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("no parameter or state is named \"v\"")));
  EXPECT_THAT(
      [&] {
        session.declare("w", {DType::kF32, {4}});
      },
      ThrowsMessage<InvalidArgument>("\"w\" is declared twice"));
}

TEST(SplitValue, IsGatheredByWhatWasCompiledOnce) {
  run_ranks(2, [](cluster::Context& context) {
    Session session(context);
    const mesh::Mesh mesh({{"data", 2}});
    const mesh::Sharding rows{.dims = {{0}}, .partial = {}};
    session.declare("w", {DType::kF32, {3}}, &rows, &mesh);
    session.set_value("w", Tensor::of<float>({3}, {1, 2, 3}));
    EXPECT_THAT(session.value("w").to_doubles(), ElementsAre(1, 2, 3));
    const auto compiled = session.num_compiled();
    session.set_value("w", Tensor::of<float>({3}, {4, 5, 6}));
    EXPECT_THAT(session.value("w").to_doubles(), ElementsAre(4, 5, 6));
    EXPECT_EQ(session.num_compiled(), compiled);
  });
}

}  // namespace
}  // namespace tessera::session
