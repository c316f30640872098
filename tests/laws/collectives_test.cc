// Collectives that a user writes into a graph which sees one rank's own shapes: what they compute, and that their
// gradients are those of the sum of the ranks' losses, by finite differences in float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/compiler/autodiff.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/session/session.h"
#include "tessera/testing/lockstep.h"
#include "tessera/testing/run_ranks.h"

namespace tessera::laws {
namespace {

using ir::Graph;
using ir::Value;
using mesh::Reduction;
using ops::RankGroup;
using testing::HasSubstr;
using testing::ThrowsMessage;

struct Program {
  std::string name;
  std::function<Shape(int rank)> input;
  std::function<Value(Value x, const RankGroup& group)> body;
  int ranks = 3;
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest finds it by this name
void PrintTo(const Program& program, std::ostream* out) { *out << program.name; }

RankGroup group_of(const cluster::Context& context, const std::string& name) {
  RankGroup group{.name = name, .ranks = {}, .own = context.rank()};
  for (int rank = 0; rank < context.size(); ++rank) group.ranks.push_back(rank);
  return group;
}

Shape whole(int) { return {3, 6}; }

Tensor own_values(const Shape& shape, int rank) {
  Tensor x(DType::kF64, shape);
  const auto values = x.values<double>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal({.seed = 9, .stream = 4 + uint64_t(rank)}, i);
  return x;
}

Value sum(Value v) {
  Ints axes;
  for (int axis = 0; axis < v.ndim(); ++axis) axes.push_back(axis);
  return ops::reduce_sum(v, axes);
}

class UserCollectives : public testing::TestWithParam<Program> {};

TEST_P(UserCollectives, HaveTheGradientOfTheSumOfAllLosses) {
  const Program& program = GetParam();
  run_ranks(program.ranks, [&](cluster::Context& context) {
    const int rank = context.rank();
    Graph graph("program");
    const Value x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF64, program.input(rank)});
    // Each rank's loss is another function, so that a cotangent of the wrong rank shows.
    const Value loss = sum(ops::sin(program.body(x, group_of(context, "all"))) * (rank + 1.0));
    const Value gradient = compiler::gradients(loss, std::vector{x})[0];
    graph.add_output("loss", loss);
    graph.add_output("gradient", gradient);
    session::Session session(context, {.reference_kernels = true});
    const auto executable = session.compile_local(graph);

    const Tensor values = own_values(program.input(rank), rank);
    const auto total = [&] {
      copy_elements(values.view(), executable->input("x"));
      executable->run();
      double loss_sum = Tensor::copy_of(executable->output("loss")).item();
      context.world().all_reduce(&loss_sum, 1, DType::kF64, comm::ReduceOp::kSum, "sum of losses");
      return loss_sum;
    };
    total();
    const auto gradients = Tensor::copy_of(executable->output("gradient")).to_doubles();
    constexpr double kStep = 1e-5;
    for (int moving = 0; moving < context.size(); ++moving) {
      const auto count = static_cast<size_t>(program.input(moving).num_elements());
      for (size_t e = 0; e < count; ++e) {
        const auto move = [&](double by) {
          if (rank == moving) values.values<double>()[e] += by;
        };
        move(kStep);
        const double above = total();
        move(-2 * kStep);
        const double below = total();
        move(kStep);
        if (rank == moving) {
          EXPECT_NEAR(gradients[e], (above - below) / (2 * kStep), 1e-6 * std::max(1.0, std::abs(above)))
              << "rank " << rank << " element " << e << "\n"
              << ir::print(graph);
        }
      }
    }
  });
}

// A call of the definition's examples as one rank's program.
Value call(const std::string& op, const ops::CollectiveExample& example, Value x, const RankGroup& group) {
  Attributes attributes = example.attributes[example.attributes.size() > 1 ? static_cast<size_t>(group.own) : 0];
  attributes.set("group", group.name);
  attributes.set("ranks", Ints(group.ranks.begin(), group.ranks.end()));
  attributes.set("rank_in_group", int64_t{group.own});
  return ops::apply1(op, {x}, attributes);
}

// Calls f(op, definition, example, number) on every example of every collective.
void for_each_example(
    const std::function<void(const std::string&, const ops::OpDef&, const ops::CollectiveExample&, size_t)>& f) {
  for (const auto& [name, def] : ops::OpRegistry::instance().all()) {
    if (def.collective == nullptr) continue;
    for (size_t i = 0; i < def.collective->examples.size(); ++i) f(name, def, def.collective->examples[i], i);
  }
}

std::vector<Program> programs_of_definitions() {
  std::vector<Program> programs;
  for_each_example([&](const std::string& op, const ops::OpDef& def, const ops::CollectiveExample& example, size_t i) {
    if (!def.gradient) return;
    programs.push_back({fmt::format("{}_{}", op, i),
                        [example](int rank) { return example.operands[static_cast<size_t>(rank)]; },
                        [op, example](Value x, const RankGroup& g) { return call(op, example, ops::square(x), g); },
                        static_cast<int>(example.operands.size())});
  });
  return programs;
}

std::vector<Program> programs() {
  return {
      {"send_and_receive", whole,
       [](Value x, const RankGroup& g) {
         // Around a ring: what was received is used, what was sent is not looked at again. Rank 0 sends first.
         const int to = (g.own + 1) % 3;
         const int from = (g.own + 2) % 3;
         const Value mine = ops::square(x);
         if (g.own == 0) ops::send(mine, g, to);
         const Value received = ops::receive(x.graph(), g, from, x.type());
         if (g.own != 0) ops::send(mine, g, to);
         return received * x;
       }},
      {"send_only_and_receive_only", whole,
       [](Value x, const RankGroup& g) {
         if (g.own == 0) {
           ops::send(ops::square(x), g, 1);
           return x;
         }
         return ops::receive(x.graph(), g, 0, x.type()) * x;
       },
       2},
      {"a_chain_of_all", whole,
       [](Value x, const RankGroup& g) {
         Value y = ops::all_gather(ops::sin(x), g, 1);
         y = ops::reduce_scatter(y * y, g, 1);
         y = ops::all_to_all(y, g, 0, 1);
         y = ops::all_reduce(ops::broadcast(y, g, 2) + y, g);
         return y * ops::reduce_sum(x, {0, 1});
       }},
  };
}

INSTANTIATE_TEST_SUITE_P(All, UserCollectives, testing::ValuesIn(programs()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(EachKind, UserCollectives, testing::ValuesIn(programs_of_definitions()),
                         [](const auto& info) { return info.param.name; });

// Every kind that all ranks do together has examples, and a communicator makes of them what the definition's boxes say.
TEST(CollectiveDefinitions, AreWhatACommunicatorDoes) {
  std::map<std::string, int> num_examples;
  for_each_example([&](const std::string& op, const ops::OpDef&, const ops::CollectiveExample& example, size_t i) {
    SCOPED_TRACE(fmt::format("{} {}", op, i));
    ++num_examples[op];
    const auto num_ranks = static_cast<int>(example.operands.size());
    const auto program_of = [&](int rank) {
      RankGroup group{.name = "all", .ranks = {}, .own = rank};
      for (int r = 0; r < num_ranks; ++r) group.ranks.push_back(r);
      testing_support::LocalProgram program{rank, Graph("program"), {}};
      const Shape& shape = example.operands[static_cast<size_t>(rank)];
      const Value x = program.graph.add_input(ir::InputKind::kInput, "x", {DType::kF64, shape});
      program.graph.add_output("y", call(op, example, x, group));
      program.inputs["x"] = own_values(shape, rank);
      return program;
    };
    std::vector<testing_support::LocalProgram> programs;
    for (int rank = 0; rank < num_ranks; ++rank) programs.push_back(program_of(rank));
    const auto expected = testing_support::run_lockstep(programs);
    run_ranks(num_ranks, [&](cluster::Context& context) {
      const auto rank = static_cast<size_t>(context.rank());
      session::Session session(context, {.reference_kernels = true});
      const auto executable = session.compile_local(programs[rank].graph);
      copy_elements(programs[rank].inputs.at("x").view(), executable->input("x"));
      executable->run();
      EXPECT_EQ(Tensor::copy_of(executable->output("y")).to_doubles(), expected[rank].at("y").to_doubles());
    });
  });
  for (const auto& [name, def] : ops::OpRegistry::instance().all()) {
    EXPECT_TRUE(def.collective == nullptr || def.collective->is_transfer() || num_examples[name] > 0) << name;
  }
}

// The bytes that a simulation counts are those that the boxes bring the busiest member from others; an all_reduce
// brings its shares twice.
TEST(CollectiveDefinitions, CountTheBytesThatTheirBoxesBring) {
  for_each_example([&](const std::string& op, const ops::OpDef& def, const ops::CollectiveExample& example, size_t i) {
    SCOPED_TRACE(fmt::format("{} {}", op, i));
    const auto& collective = *def.collective;
    EXPECT_EQ(static_cast<bool>(collective.staging_bytes), static_cast<bool>(collective.packed));
    RankGroup group{.name = "all", .ranks = {}, .own = 0};
    int64_t most_bytes = 0;
    int64_t most_told = 0;
    for (size_t r = 0; r < example.operands.size(); ++r) group.ranks.push_back(static_cast<int>(r));
    for (group.own = 0; group.own < static_cast<int>(group.ranks.size()); ++group.own) {
      Graph graph("program");
      const auto own = static_cast<size_t>(group.own);
      call(op, example, graph.add_input(ir::InputKind::kInput, "x", {DType::kF64, example.operands[own]}), group);
      const auto made = ops::call_of(graph, graph.node(0));
      const auto traffic = collective.traffic(made);
      const auto boxes = collective.boxes(made);
      int64_t elements = 0;
      for (size_t from = 0; from < boxes.receive.size(); ++from) {
        if (from != own) elements += mesh::num_elements(boxes.receive[from]);
      }
      const auto n = static_cast<int64_t>(group.ranks.size());
      const bool is_twice = collective.reduces && collective.gives_one;
      most_bytes = std::max(most_bytes, is_twice ? 2 * 8 * elements / n : 8 * elements);
      most_told = std::max(most_told, traffic.received_bytes(group.own));
      EXPECT_TRUE(traffic.sender != group.own || elements == 0);
    }
    EXPECT_EQ(most_told, most_bytes);
  });
}

TEST(UserCollectivesValues, AreWhatTheirNamesSay) {
  run_ranks(2, [](cluster::Context& context) {
    const auto run = [&](const Shape& shape, const std::function<Value(Value, const RankGroup&)>& body) {
      Graph graph("values");
      const Value x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, shape});
      graph.add_output("y", body(x, group_of(context, "pair")));
      session::Session session(context);
      const auto executable = session.compile_local(graph);
      Tensor input(DType::kF32, shape);
      for (int64_t i = 0; i < input.num_elements(); ++i) {
        input.values<float>()[static_cast<size_t>(i)] = static_cast<float>(10 * (context.rank() + 1) + i);
      }
      copy_elements(input.view(), executable->input("x"));
      executable->run();
      return Tensor::copy_of(executable->output("y")).to_doubles();
    };
    const bool first = context.rank() == 0;
    using Numbers = std::vector<double>;
    EXPECT_EQ(run({2}, [](Value x, auto& g) { return ops::all_reduce(x, g); }), (Numbers{30, 32}));
    EXPECT_EQ(run({2}, [](Value x, auto& g) { return ops::all_reduce(x, g, Reduction::kMax); }), (Numbers{20, 21}));
    EXPECT_EQ(run({1, 2}, [](Value x, auto& g) { return ops::all_gather(x, g, 0); }), (Numbers{10, 11, 20, 21}));
    EXPECT_EQ(run({2, 1}, [](Value x, auto& g) { return ops::all_gather(x, g, 1); }), (Numbers{10, 20, 11, 21}));
    EXPECT_EQ(run({2, 2}, [](Value x, auto& g) { return ops::reduce_scatter(x, g, 0); }),
              first ? (Numbers{30, 32}) : (Numbers{34, 36}));
    EXPECT_EQ(run({2, 2}, [](Value x, auto& g) { return ops::reduce_scatter(x, g, 1); }),
              first ? (Numbers{30, 34}) : (Numbers{32, 36}));
    EXPECT_EQ(run({2}, [](Value x, auto& g) { return ops::broadcast(x, g, 1); }), (Numbers{20, 21}));
    EXPECT_EQ(run({2, 2}, [](Value x, auto& g) { return ops::all_to_all(x, g, 0, 1); }),
              first ? (Numbers{10, 11, 20, 21}) : (Numbers{12, 13, 22, 23}));
    EXPECT_EQ(run({2},
                  [&](Value x, auto& g) {
                    if (first) return ops::send(x, g, 1);
                    return ops::receive(x.graph(), g, 0, x.type());
                  }),
              (Numbers{10, 11}));
  });
}

TEST(UserCollectivesOrder, ARankThatCommunicatesInAnotherOrderIsRefused) {
  EXPECT_THAT(
      [] {
        run_ranks(2, [](cluster::Context& context) {
          Graph graph("step");
          const Value x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {2}});
          const auto group = group_of(context, "pair");
          const auto gather = [&] { graph.add_output("a", ops::all_gather(x, group)); };
          const auto reduce = [&] { graph.add_output("b", ops::all_reduce(x, group)); };
          if (context.rank() == 0) gather();
          reduce();
          if (context.rank() == 1) gather();
          session::Session session(context);
          session.compile(graph, mesh::Mesh({{"data", 2}}));
        });
      },
      ThrowsMessage<InvalidArgument>(HasSubstr(
          "rank 1 would communicate in another order than rank 0 in graph step: the ranks do not run the same "
          "program; in group [0,1] it does #0 all_reduce in bucket 0: sum of f32[2] where rank 0 does #0 all_gather: "
          "to "
          "f32[4] along dim 0 of []")));
}

TEST(UserCollectivesOrder, EqualProgramsAreAcceptedAndRunTogetherWithThePlansOwn) {
  run_ranks(2, [](cluster::Context& context) {
    Graph graph("step");
    const Value x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {4}});
    const Value y = graph.add_input(ir::InputKind::kInput, "y", {DType::kF32, {2}});
    graph.add_output("plan", ops::reduce_sum(x, {0}));
    graph.add_output("user", ops::all_reduce(y, group_of(context, "pair")));
    session::Session session(context);
    const mesh::Mesh mesh({{"data", 2}});
    const auto executable = session.compile(graph, mesh, {{"x", {mesh, {.dims = {{0}}, .partial = {}}}}});
    const float r = static_cast<float>(context.rank());
    copy_elements(Tensor::of<float>({2}, {1 + r, 10 + r}).view(), executable->input("x"));
    copy_elements(Tensor::of<float>({2}, {r, 5}).view(), executable->input("y"));
    executable->run();
    EXPECT_EQ(Tensor::copy_of(executable->output("plan")).item(), 24);
    EXPECT_EQ(Tensor::copy_of(executable->output("user")).to_doubles(), (std::vector<double>{1, 10}));
  });
}

}  // namespace
}  // namespace tessera::laws
