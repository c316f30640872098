#include "tessera/testing/lockstep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/compiler/partition/partition.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/ops/rules/exchange.h"

namespace tessera::testing_support {
namespace {

using ir::Graph;
using ir::Value;
using mesh::Mesh;
using mesh::Reduction;
using mesh::Sharding;
using ops::RankGroup;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Numbers = std::vector<double>;

constexpr DType kF64 = DType::kF64;

using Body = std::function<Value(Value x, const RankGroup& group)>;

// Rank r holds 10 (r + 1), 10 (r + 1) + 1, ...
LocalProgram program_of(int rank, int num_ranks, const Shape& shape, const Body& body) {
  RankGroup group{.name = "all", .ranks = {}, .own = rank};
  for (int r = 0; r < num_ranks; ++r) group.ranks.push_back(r);
  LocalProgram program{rank, Graph("program"), {}};
  const Value x = program.graph.add_input(ir::InputKind::kInput, "x", {kF64, shape});
  program.graph.add_output("y", body(x, group));
  Tensor input(kF64, shape);
  double next = 10 * (rank + 1);
  for (double& value : input.values<double>()) value = next++;
  program.inputs["x"] = input;
  return program;
}

std::vector<Numbers> run(const std::vector<Shape>& shapes, const Body& body) {
  std::vector<LocalProgram> programs;
  const auto num_ranks = static_cast<int>(shapes.size());
  for (int rank = 0; rank < num_ranks; ++rank) {
    programs.push_back(program_of(rank, num_ranks, shapes[static_cast<size_t>(rank)], body));
  }
  std::vector<Numbers> results;
  for (const auto& named : run_lockstep(programs)) results.push_back(named.at("y").to_doubles());
  return results;
}

std::vector<Numbers> on_all(const Numbers& numbers, size_t num_ranks) {
  return std::vector<Numbers>(num_ranks, numbers);
}

TEST(Lockstep, ComputesWhatTheCollectivesNamesSay) {
  const std::vector<Shape> pair(2, Shape{2});
  EXPECT_EQ(run(pair, [](Value x, auto& g) { return ops::all_reduce(x, g); }), on_all({30, 32}, 2));
  EXPECT_EQ(run(pair, [](Value x, auto& g) { return ops::all_reduce(x, g, Reduction::kMax); }), on_all({20, 21}, 2));
  EXPECT_EQ(run(pair, [](Value x, auto& g) { return ops::all_reduce(x, g, Reduction::kMin); }), on_all({10, 11}, 2));
  EXPECT_EQ(run(pair, [](Value x, auto& g) { return ops::all_reduce(x, g, Reduction::kProd); }), on_all({200, 231}, 2));
  EXPECT_EQ(run({{2, 1}, {2, 1}}, [](Value x, auto& g) { return ops::all_gather(x, g, 1); }),
            on_all({10, 20, 11, 21}, 2));
  EXPECT_EQ(run({{1}, {0}, {2}},
                [](Value x, auto& g) {
                  return ops::all_gather(x, g, 0, {1, 0, 2});
                }),
            on_all({10, 30, 31}, 3));
  EXPECT_EQ(run({{2, 2}, {2, 2}}, [](Value x, auto& g) { return ops::reduce_scatter(x, g, 1); }),
            (std::vector<Numbers>{{30, 34}, {32, 36}}));
  EXPECT_EQ(run({{3}, {3}},
                [](Value x, auto& g) {
                  return ops::reduce_scatter(x, g, 0, Reduction::kMax, {1, 2});
                }),
            (std::vector<Numbers>{{20}, {21, 22}}));
  EXPECT_EQ(run(pair, [](Value x, auto& g) { return ops::broadcast(x, g, 1); }), on_all({20, 21}, 2));
  EXPECT_EQ(run({{2, 2}, {2, 2}}, [](Value x, auto& g) { return ops::all_to_all(x, g, 0, 1); }),
            (std::vector<Numbers>{{10, 11, 20, 21}, {12, 13, 22, 23}}));
}

TEST(Lockstep, ExchangesBoxesAndFillsTheRestWithZeros) {
  // Rank 0 holds [0, 2) and rank 1 [2, 4); each wants one more element of the other, and rank 1 what no one has.
  const auto results = run({{2}, {2}}, [](Value x, const RankGroup& g) {
    const std::vector<mesh::Box> held = {{{0, 2}}, {{2, 2}}};
    const std::vector<mesh::Box> wanted = {{{0, 3}}, {{1, 4}}};
    const Attributes group = {{"group", "all"}, {"ranks", Ints{0, 1}}, {"rank_in_group", int64_t{g.own}}};
    return ops::exchange(x, group, held, wanted);
  });
  EXPECT_EQ(results, (std::vector<Numbers>{{10, 11, 20}, {11, 20, 21, 0}}));
}

TEST(Lockstep, SendsToARankThatHasOtherThingsToDoFirst) {
  const auto results = run({{1}, {1}, {1}}, [](Value x, const RankGroup& g) {
    const int to = (g.own + 1) % 3;
    if (g.own == 0) ops::send(x, g, to);
    const Value received = ops::receive(x.graph(), g, (g.own + 2) % 3, x.type());
    if (g.own != 0) ops::send(received + x, g, to);
    return received;
  });
  EXPECT_EQ(results, (std::vector<Numbers>{{60}, {10}, {30}}));
}

TEST(Lockstep, NamesRanksThatArriveAtDifferentCollectives) {
  const auto mixed = [](const Body& first, const Body& second) {
    return [first, second] { run_lockstep(std::vector{program_of(0, 2, {2}, first), program_of(1, 2, {2}, second)}); };
  };
  const auto sum = [](Value x, auto& g) {
    const ir::SourceScope scope(x.graph(), "loss");
    return ops::all_reduce(x, g);
  };
  const auto gather = [](Value x, auto& g) { return ops::all_gather(x, g); };
  const auto maximum = [](Value x, auto& g) { return ops::all_reduce(x, g, Reduction::kMax); };
  const auto nothing = [](Value x, auto&) { return x; };
  EXPECT_THAT(mixed(sum, gather), ThrowsMessage<InternalError>(AllOf(HasSubstr("rank 0 is at all_reduce \"loss\""),
                                                                     HasSubstr("rank 1 is at all_gather"))));
  EXPECT_THAT(mixed(sum, nothing), ThrowsMessage<InternalError>(HasSubstr("rank 1 has ended")));
  EXPECT_THAT(mixed(sum, maximum), ThrowsMessage<InternalError>(HasSubstr("do not arrive at the same collectives")));
  const auto elsewhere = [](Value x, const RankGroup& g) {
    return ops::all_reduce(x, RankGroup{.name = "other", .ranks = g.ranks, .own = g.own});
  };
  EXPECT_THAT(mixed(sum, elsewhere), ThrowsMessage<InternalError>(HasSubstr("group \"other\"")));
}

TEST(Lockstep, ComparesSizesWithWhatIsBrought) {
  const auto wrong = [] {
    std::vector<LocalProgram> programs;
    for (const int rank : {0, 1}) {
      programs.push_back(program_of(rank, 2, {rank == 0 ? 2 : 1}, [](Value x, const RankGroup& g) {
        return ops::all_gather(x, g, 0, {2, 1});
      }));
      programs.back().graph.mutable_node(0).attributes.set("sizes", Ints{1, 2});
    }
    run_lockstep(programs);
  };
  EXPECT_THAT(wrong, ThrowsMessage<InternalError>(HasSubstr("sends [2] to rank 0, which expects [1]")));
}

TEST(Lockstep, RefusesAnInputThatIsMissingOrOfAnotherType) {
  auto program = program_of(0, 1, {2}, [](Value x, auto&) { return x; });
  EXPECT_THAT([&] { run_alone(program.graph, {}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("rank 0: no value for input \"x\"")));
  EXPECT_THAT(
      [&] {
        run_alone(program.graph, {{"x", Tensor::zeros({kF64, {3}})}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("input \"x\" is f64[3], the graph wants f64[2]")));
}

TEST(Lockstep, RunsWhatPartitionWrites) {
  Graph graph("product");
  const Value x = graph.add_input(ir::InputKind::kInput, "x", {kF64, {5, 3}});
  const Value w = graph.add_input(ir::InputKind::kInput, "w", {kF64, {3, 7}});
  graph.add_output("y", ops::matmul(x, w));
  const Mesh mesh({{"rows", 2}, {"inner", 2}});
  const auto plan = compiler::propagate(
      graph, mesh,
      compiler::on_mesh(mesh, {{"x", {.dims = {{0}, {1}}, .partial = {}}}, {"w", {.dims = {{1}, {}}, .partial = {}}}}));
  NamedTensors inputs = {{"x", Tensor(kF64, {5, 3})}, {"w", Tensor(kF64, {3, 7})}};
  double next = 1;
  for (auto& [name, tensor] : inputs) {
    for (double& value : tensor.values<double>()) value = next++;
  }
  std::vector<LocalProgram> programs;
  for (const int rank : mesh.ranks()) {
    LocalProgram program{rank, compiler::partition(graph, plan, rank), {}};
    for (const auto& input : graph.inputs()) {
      program.inputs[input.name] =
          cut(inputs.at(input.name), plan.values[static_cast<size_t>(input.value)], mesh, rank);
    }
    programs.push_back(std::move(program));
  }
  std::vector<Tensor> pieces;
  for (const auto& results : run_lockstep(programs)) pieces.push_back(results.at("y"));
  EXPECT_EQ(pieces[3].type().to_string(), "f64[2,7]");
  EXPECT_TRUE(bit_equal(assemble({kF64, {5, 7}}, plan.outputs[0], mesh, pieces), run_alone(graph, inputs).at("y")));
}

std::vector<Tensor> cut_all(const Tensor& whole, const Sharding& sharding, const Mesh& mesh) {
  std::vector<Tensor> pieces;
  for (const int rank : mesh.ranks()) pieces.push_back(cut(whole, sharding, mesh, rank));
  return pieces;
}

TEST(Pieces, MakeUpTheWholeUnevenOrPartial) {
  const Mesh mesh({{"a", 2}, {"b", 3}});
  const Tensor whole = Tensor::of<double>({5, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, -10});
  for (const Sharding& sharding : std::vector<Sharding>{{{{}, {}}, {}},
                                                        {{{0, 1}, {}}, {}},
                                                        {{{1, 0}, {}}, {}},
                                                        {{{1}, {0}}, {}},
                                                        {{{}, {1}}, {}},
                                                        {{{1}, {}}, {{0, Reduction::kSum}}},
                                                        {{{}, {}}, {{0, Reduction::kSum}, {1, Reduction::kSum}}},
                                                        {{{}, {0}}, {{1, Reduction::kProd}}},
                                                        {{{0}, {}}, {{1, Reduction::kMax}}},
                                                        {{{0}, {}}, {{1, Reduction::kMin}}}}) {
    EXPECT_TRUE(bit_equal(assemble(whole.type(), sharding, mesh, cut_all(whole, sharding, mesh)), whole))
        << sharding.to_string(mesh);
  }
}

TEST(Pieces, ThatShouldBeEqualAreComparedBitByBit) {
  const Mesh mesh({{"a", 2}, {"b", 2}});
  const Tensor whole = Tensor::of<double>({2}, {1, 0});
  const Sharding rows{.dims = {{0}}, .partial = {}};
  auto pieces = cut_all(whole, rows, mesh);
  pieces[3] = Tensor::of<double>({1}, {-0.0});
  EXPECT_THAT([&] { assemble(whole.type(), rows, mesh, pieces); },
              ThrowsMessage<InternalError>(HasSubstr("ranks 2 and 3 should hold equal pieces of f64[2] [a]")));
  pieces[1] = whole;
  EXPECT_THAT([&] { assemble(whole.type(), rows, mesh, pieces); },
              ThrowsMessage<InternalError>(HasSubstr("rank 1 holds f64[2] of f64[2] [a], its slice")));
}

}  // namespace
}  // namespace tessera::testing_support
