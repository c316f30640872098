// Collectives that a user writes into a graph which sees one rank's own shapes: what they compute, and that their
// gradients are those of the sum of the ranks' losses, by finite differences in float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/compiler/autodiff.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
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
Shape uneven_rows(int rank) { return {rank + 1, 2}; }
Shape uneven_columns(int rank) { return {2, 3 - rank}; }

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

std::vector<Program> programs() {
  const auto gather = [](int64_t dim, const Ints& sizes) {
    return [dim, sizes](Value x, const RankGroup& g) { return ops::all_gather(ops::square(x), g, dim, sizes); };
  };
  const auto scatter = [](int64_t dim, const Ints& sizes) {
    return [dim, sizes](Value x, const RankGroup& g) {
      return ops::reduce_scatter(ops::square(x), g, dim, Reduction::kSum, sizes);
    };
  };
  const auto reduce = [](Reduction reduction) {
    return [reduction](Value x, const RankGroup& g) { return ops::all_reduce(ops::square(x), g, reduction); };
  };
  return {
      {"all_reduce_sum", whole, reduce(Reduction::kSum)},
      {"all_reduce_max", whole, reduce(Reduction::kMax)},
      {"all_reduce_min", whole, reduce(Reduction::kMin)},
      {"all_reduce_prod", whole, reduce(Reduction::kProd)},
      {"all_gather_dim_0", whole, gather(0, {})},
      {"all_gather_dim_1", whole, gather(1, {})},
      {"all_gather_uneven_dim_0", uneven_rows, gather(0, {1, 2, 3})},
      {"all_gather_uneven_dim_1", uneven_columns, gather(1, {3, 2, 1})},
      {"reduce_scatter_dim_0", whole, scatter(0, {})},
      {"reduce_scatter_dim_1", whole, scatter(1, {})},
      {"reduce_scatter_uneven_with_an_empty_piece", whole, scatter(1, {4, 0, 2})},
      {"broadcast", whole, [](Value x, const RankGroup& g) { return ops::broadcast(ops::square(x), g, 1); }},
      {"all_to_all_dims_0_1", whole, [](Value x, const RankGroup& g) { return ops::all_to_all(x * x, g, 0, 1); }},
      {"all_to_all_dims_1_0", whole, [](Value x, const RankGroup& g) { return ops::all_to_all(x * x, g, 1, 0); }},
      {"all_to_all_one_dim", whole, [](Value x, const RankGroup& g) { return ops::all_to_all(x * x, g, 1, 1); }},
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
