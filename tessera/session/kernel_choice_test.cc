// Claims about kernels that are chosen by measuring: one choice on all ranks, remembered for the next session.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tessera/base/error.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/testing/run_ranks.h"

namespace tessera::session {
namespace {

using testing::ThrowsMessage;

constexpr int64_t kRows = 3;  // over two ranks: 2 and 1

ir::Graph convolution() {
  ir::Graph graph("convolution");
  const auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {kRows, 16, 4, 4}});
  const auto w = graph.add_input(ir::InputKind::kParameter, "w", {DType::kF32, {32, 16, 1, 1}});
  graph.add_output("y", ops::conv2d(x, w));
  return graph;
}

// This rank's rows of the result, for inputs that are 1 and parameters that are 2.
Tensor run(Session& session, cluster::Context& context) {
  session.declare("w", {DType::kF32, {32, 16, 1, 1}});
  session.set_value("w", Tensor::full({DType::kF32, {32, 16, 1, 1}}, 2));
  const mesh::Mesh mesh({{"data", context.size()}});
  const auto step = session.compile(convolution(), mesh, {{"x", {mesh, {.dims = {{0}, {}, {}, {}}, .partial = {}}}}});
  copy_elements(Tensor::full(step->input("x").type(), 1).view(), step->input("x"));
  step->run();
  return Tensor::copy_of(step->output("y"));
}

TEST(MeasuredKernels, AreRankZerosOnAllRanksAlsoForShapesOfOthers) {
  std::vector<std::string> tables(2);
  run_ranks(2, [&](cluster::Context& context) {
    Session session(context, {.kernel_choice = KernelChoice::kMeasured});
    const Tensor y = run(session, context);
    EXPECT_EQ(y.to_doubles(), std::vector<double>(static_cast<size_t>(y.num_elements()), 32.0));
    tables[static_cast<size_t>(context.rank())] = session.kernel_table()->to_json();
    EXPECT_EQ(session.kernel_table()->measurements().size(), 2U);
  });
  EXPECT_EQ(tables[0], tables[1]);
}

TEST(MeasuredKernels, AreRememberedForTheNextSession) {
  const auto directory = testing::TempDir() + fmt::format("tessera_measured_kernels_{}", getpid());
  FileSystem::local().create_directories(directory);
  FileSystem::local().remove_directory_tree(directory);
  std::vector<std::string> tables;
  for (int i = 0; i < 2; ++i) {
    const auto context = cluster::single_context(1);
    Session session(*context, {.kernel_choice = KernelChoice::kMeasured, .kernel_cache = directory});
    EXPECT_EQ(session.kernel_table()->measurements().size(), i == 0 ? 0U : 1U);
    run(session, *context);
    tables.push_back(session.kernel_table()->to_json());
  }
  EXPECT_EQ(tables[0], tables[1]);  // times included: the second did not measure
  FileSystem::local().remove_directory_tree(directory);
}

TEST(MeasuredKernels, AreNoMatterOfSessionsThatWantNone) {
  const auto context = cluster::single_context(1);
  EXPECT_EQ(Session(*context).kernel_table(), nullptr);
  for (const SessionOptions& options : {SessionOptions{.reference_kernels = true}, SessionOptions{.debug = true}}) {
    auto measured = options;
    measured.kernel_choice = KernelChoice::kMeasured;
    EXPECT_EQ(Session(*context, measured).kernel_table(), nullptr);
  }
}

TEST(MeasuredKernels, AreRefusedByADeterministicSession) {
  const auto context = cluster::single_context(1);
  EXPECT_EQ(Session(*context, {.deterministic = true}).kernel_table(), nullptr);
  EXPECT_THAT([&] { Session(*context, {.deterministic = true, .kernel_choice = KernelChoice::kMeasured}); },
              ThrowsMessage<InvalidArgument>(testing::HasSubstr("leave deterministic out, or kernel_choice")));
}

TEST(MeasuredKernels, TheChoiceHasNames) {
  EXPECT_EQ(parse_kernel_choice("fixed"), KernelChoice::kFixed);
  EXPECT_EQ(parse_kernel_choice("measured"), KernelChoice::kMeasured);
  EXPECT_THAT([] { parse_kernel_choice("best"); },
              ThrowsMessage<InvalidArgument>("unknown choice of kernels \"best\"; the known ones are fixed, measured"));
}

}  // namespace
}  // namespace tessera::session
