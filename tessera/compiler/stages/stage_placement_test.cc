#include "tessera/compiler/stages/stage_placement.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/compiler/stages/cut_staged_plan.h"
#include "tessera/compiler/stages/listed_lookups.h"
#include "tessera/compiler/stages/shared_parameters.h"
#include "tessera/compiler/stages/stage_messages.h"
#include "tessera/compiler/stages/summed_lookups.h"
#include "tessera/compiler/stages/update_rounds.h"

namespace tessera::compiler {
namespace {

using pipeline::PhaseKind;

// Two layers, a loss, and their gradients; the stages of the layers are put in.
const char* const kTwoLayers = R"(graph train_step
  param a.w f32[4,4]
  param b.w f32[4,4]
  input x f32[2,4]
  state accu_grads.a.w f32[4,4]
  state accu_grads.b.w f32[4,4]
  %1 = matmul x, a.w : f32[2,4]STAGE_A @ a
  %2 = relu %1 : f32[2,4] @ .
  %3 = matmul %2, b.w : f32[2,4]STAGE_B @ b
  %4 = reduce_sum %3 {dims=[0,1]} : f32[] @ loss
  %5 = fill {dtype="f32", shape=[2,4], value=1} : f32[2,4] @ loss
  %6 = matmul %2, %5 {transpose_a} : f32[4,4] @ b (grad of %3)
  %7 = matmul %5, b.w {transpose_b} : f32[2,4] @ b (grad of %3)
  %8 = relu_grad %7, %2 : f32[2,4] @ . (grad of %2)
  %9 = matmul x, %8 {transpose_a} : f32[4,4] @ a (grad of %1)
  %10 = add accu_grads.a.w, %9 : f32[4,4] @ accumulate
  %11 = add accu_grads.b.w, %6 : f32[4,4] @ accumulate
  return loss = %4, accu_grads.a.w = %10, accu_grads.b.w = %11
)";

ir::Graph graph_of(std::string text, const std::string& first, const std::string& second) {
  for (const auto& [mark, stage] : {std::pair{"STAGE_A", first}, std::pair{"STAGE_B", second}}) {
    text.replace(text.find(mark), 7, stage);
  }
  return ir::parse(text);
}

StageOptions options(int stages) {
  return {.num_stages = stages, .accumulators = {{"accu_grads.a.w", "a.w"}, {"accu_grads.b.w", "b.w"}}};
}

std::string refusal(const std::string& first, const std::string& second, int stages) {
  try {
    place_on_stages(graph_of(kTwoLayers, first, second), options(stages));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Placement, PutsGradientsWithTheirForwardNodesAndTheRestWithItsUsers) {
  const auto graph = graph_of(kTwoLayers, " stage 0", " stage 1");
  const auto placed = place_on_stages(graph, options(2));
  // relu has no stage: it joins what reads it. The fill is made wherever it is wanted.
  EXPECT_EQ(placed.nodes, (std::vector{0, 1, 1, 1, kEveryStage, 1, 1, 1, 0, 0, 1}));
  EXPECT_EQ(placed.values.at("a.w"), 0);
  EXPECT_EQ(placed.values.at("accu_grads.b.w"), 1);
  const auto messages = chunk_messages(graph, placed);
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(graph.value_name(messages[0].value), "%1");
  EXPECT_EQ(messages[0].made, PhaseKind::kForward);
  EXPECT_EQ(graph.value_name(messages[1].value), "%8");
  EXPECT_EQ(messages[1].from, 1);
  EXPECT_EQ(messages[1].read, PhaseKind::kBackward);
}

// A table, looked up in it by ids of the batch, and a layer.
const char* const kTable = R"(graph train_step
  param table f32[9,4]
  param w f32[4,4]
  input ids i32[2]
  state accu_grads.table f32[9,4]
  state accu_grads.w f32[4,4]
  %1 = gather table, ids {axis=0} : f32[2,4] @ a
  %2 = matmul %1, w : f32[2,4] @ b
  %3 = reduce_sum %2 {dims=[0,1]} : f32[] @ loss
  %4 = fill {dtype="f32", shape=[2,4], value=1} : f32[2,4] @ loss
  %5 = matmul %1, %4 {transpose_a} : f32[4,4] @ b (grad of %2)
  %6 = matmul %4, w {transpose_b} : f32[2,4] @ b (grad of %2)
  %7 = zeros_like table : f32[9,4] @ a (grad of %1)
  %8 = scatter_add %7, ids, %6 {axis=0} : f32[9,4] @ a (grad of %1)
  %9 = add accu_grads.table, %8 : f32[9,4] @ accumulate
  %10 = add accu_grads.w, %5 : f32[4,4] @ accumulate
  return loss = %3, accu_grads.table = %9, accu_grads.w = %10
)";

TEST(Placement, OfServersHasThemLookUpRowsAndOwnWhatIsServed) {
  auto graph = ir::parse(kTable);
  StageOptions stages{.num_stages = 2,
                      .accumulators = {{"accu_grads.table", "table"}, {"accu_grads.w", "w"}},
                      .served = {"table", "w"}};
  place_for_servers(graph, stages.served);
  auto placed = place_on_stages(graph, stages);
  EXPECT_EQ(placed.values.at("table"), 0);
  EXPECT_FALSE(placed.shared.contains("table")) << "workers have none of it";
  // What workers read of the layer belongs to the servers, too, and its gradient is added up by the workers alone.
  EXPECT_EQ(placed.values.at("w"), 0);
  EXPECT_EQ(placed.shared.at("w"), (std::vector{0, 1}));
  const auto split = split_accumulators(graph, placed, stages);
  EXPECT_EQ(stages.other_accumulators.at("accu_grads.w"), (StageOptions::OtherAccumulator{"accu_grads.w", 1}));
  placed = place_on_stages(split, stages);
  // Of the table only rows pass, and their gradients.
  const auto messages = chunk_messages(split, placed);
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(split.value_name(messages[0].value), "%1");
  EXPECT_EQ(messages[0].from, 0);
  EXPECT_EQ(split.value_name(messages[1].value), "%6");
  const auto sums = messages_of_sums(placed, stages);
  ASSERT_EQ(sums.size(), 1U);
  EXPECT_EQ(sums[0].values, (std::vector<std::string>{"accu_grads.w"}));
  EXPECT_EQ(sums[0].from, 1);
  const auto values = messages_of_values(placed, stages);
  ASSERT_EQ(values.size(), 1U);
  EXPECT_EQ(values[0].values, (std::vector<std::string>{"w"}));
  EXPECT_EQ(values[0].to, 1);
}

// The gradients of rows that a step's only micro-batch looks up, as the update takes them.
ir::Graph looked_up_once() {
  std::string text = kTable;
  for (const auto& [from, to] : {std::pair{"  state accu_grads.table f32[9,4]\n",
                                           "  state accu_ids.table i32[2]\n  state accu_rows.table f32[2,4]\n"},
                                 {"  %7 = zeros_like table : f32[9,4] @ a (grad of %1)\n", ""},
                                 {"  %8 = scatter_add %7, ids, %6 {axis=0} : f32[9,4] @ a (grad of %1)\n", ""},
                                 {"  %9 = add accu_grads.table, %8 : f32[9,4] @ accumulate\n", ""},
                                 {"%10 = add", "%7 = add"},
                                 {"accu_grads.table = %9, accu_grads.w = %10",
                                  "accu_ids.table = ids, accu_rows.table = %6, accu_grads.w = %7"}}) {
    text.replace(text.find(from), std::string(from).size(), to);
  }
  return ir::parse(text);
}

TEST(Placement, HasServersReadRowsOfTheOnlyMicroBatchWhereTheyCome) {
  auto graph = looked_up_once();
  StageOptions stages{
      .num_stages = 2,
      .accumulators = {{"accu_ids.table", "table"}, {"accu_rows.table", "table"}, {"accu_grads.w", "w"}},
      .served = {"table"}};
  place_for_servers(graph, stages.served);
  for (const bool split_backward : {false, true}) {
    stages.split_backward = split_backward;
    const auto placed = place_on_stages(graph, stages);
    EXPECT_EQ(placed.unsummed, (std::set<std::string>{"accu_ids.table", "accu_rows.table"}));
    EXPECT_EQ(placed.values.at("accu_rows.table"), 0);
    for (const char* name : {"accu_ids.table", "accu_rows.table"}) {
      EXPECT_TRUE(placed.is_read_in_slot(graph, *graph.find_output(name))) << name;
    }
    EXPECT_FALSE(placed.is_read_in_slot(graph, *graph.find_output("accu_grads.w")));
    const auto messages = chunk_messages(graph, placed);
    ASSERT_EQ(messages.size(), 2U);
    EXPECT_EQ(graph.value_name(messages[1].value), "%6");
    EXPECT_EQ(messages[1].to, 0);
    EXPECT_EQ(messages[1].made, PhaseKind::kBackward);
    EXPECT_EQ(messages[1].read, PhaseKind::kBackward);
  }
}

// Of rows that are long enough, looked up by numbers of two dims.
ir::Graph looked_up_by_fields() {
  return ir::parse(R"(graph train_step
  param table f32[9,32]
  input ids i32[3,2]
  state accu_ids.table i32[6]
  state accu_rows.table f32[6,32]
  %1 = gather table, ids {axis=0} : f32[3,2,32] @ a
  %2 = reduce_sum %1 {dims=[0,1,2]} : f32[] @ loss
  %3 = fill {dtype="f32", shape=[3,2,32], value=1} : f32[3,2,32] @ loss
  %4 = mul %1, %3 : f32[3,2,32] @ b (grad of %2)
  %5 = reshape ids {shape=[6]} : i32[6] @ a (grad of %1)
  %6 = reshape %4 {shape=[6,32]} : f32[6,32] @ a (grad of %1)
  return loss = %2, accu_ids.table = %5, accu_rows.table = %6
)");
}

TEST(SummedLookups, AreMadeByWorkersAndSentWithTheirNumbers) {
  auto graph = looked_up_by_fields();
  StageOptions stages{.num_stages = 2,
                      .accumulators = {{"accu_ids.table", "table"}, {"accu_rows.table", "table"}},
                      .served = {"table"}};
  place_for_servers(graph, stages.served);
  graph = sum_lookups(graph, {.accumulators = stages.accumulators, .num_workers = 2});
  // The first of two workers has two of the three rows of a batch.
  EXPECT_NE(print(graph).find("%5, %6 = add_up_rows %4, ids {bounds=[0,2,3], clears=false, num_rows=9, "
                              "table=\"table\"} : f32[3,2,32], i32[3,2] @ table"),
            std::string::npos)
      << print(graph);
  const auto placed = place_on_stages(graph, stages);
  const auto messages = chunk_messages(graph, placed);
  ASSERT_EQ(messages.size(), 3U);
  for (const size_t i : {size_t{1}, size_t{2}}) {
    EXPECT_EQ(graph.node(graph.info(messages[i].value).node).op, "add_up_rows");
    EXPECT_EQ(graph.info(messages[i].value).index, static_cast<int>(i) - 1);
    EXPECT_EQ(messages[i].from, 1);
    EXPECT_EQ(messages[i].to, 0);
  }
}

// The network makes the dims of the numbers one itself, and looks up by what it has made.
TEST(SummedLookups, LeaveTheNumbersThatANetworkReshapes) {
  auto graph = ir::parse(R"(graph train_step
  param table f32[9,32]
  input ids i32[3,2]
  state accu_ids.table i32[6]
  state accu_rows.table f32[6,32]
  %1 = reshape ids {shape=[6]} : i32[6] @ .
  %2 = gather table, %1 {axis=0} : f32[6,32] @ a
  %3 = reshape %2 {shape=[3,2,32]} : f32[3,2,32] @ .
  %4 = reduce_sum %3 {dims=[0,1,2]} : f32[] @ loss
  %5 = fill {dtype="f32", shape=[3,2,32], value=1} : f32[3,2,32] @ loss
  %6 = mul %3, %5 : f32[3,2,32] @ b (grad of %4)
  %7 = reshape %6 {shape=[6,32]} : f32[6,32] @ . (grad of %3)
  return loss = %4, accu_ids.table = %1, accu_rows.table = %7
)");
  const StageOptions stages{.accumulators = {{"accu_ids.table", "table"}, {"accu_rows.table", "table"}}};
  place_for_servers(graph, {"table"});
  const auto text = print(sum_lookups(graph, {.accumulators = stages.accumulators, .num_workers = 2}));
  EXPECT_NE(text.find("%2 = gather table, %1 "), std::string::npos) << text;
  EXPECT_NE(text.find("%8, %9 = add_up_rows %7, %1 {bounds=[0,4,6], clears=false, num_rows=9, table=\"table\"}"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("accu_ids.table = %9, accu_rows.table = %8"), std::string::npos) << text;
}

// The accumulator's cast may come behind what has been done with the numbers.
TEST(SummedLookups, AreLeftOutWhereRowsAreOfAHalfType) {
  auto graph = ir::parse(R"(graph train_step
  param table bf16[9,64]
  input ids i32[6]
  state accu_ids.table i32[6]
  state accu_rows.table f32[6,64]
  %1 = gather table, ids {axis=0} : bf16[6,64] @ a
  %2 = reduce_sum %1 {dims=[0,1]} : bf16[] @ loss
  %3 = mul %1, %1 : bf16[6,64] @ b (grad of %2)
  %4 = cast %3 {dtype=f32} : f32[6,64] @ accumulate
  return loss = %2, accu_ids.table = ids, accu_rows.table = %4
)");
  const StageOptions stages{.accumulators = {{"accu_ids.table", "table"}, {"accu_rows.table", "table"}}};
  place_for_servers(graph, {"table"});
  EXPECT_EQ(print(sum_lookups(graph, {.accumulators = stages.accumulators, .num_workers = 2})), print(graph));
}

TEST(SummedLookups, AreLeftOutWhereRowsAreShort) {
  auto graph = looked_up_once();
  const StageOptions stages{.accumulators = {{"accu_ids.table", "table"}, {"accu_rows.table", "table"}}};
  place_for_servers(graph, {"table"});
  EXPECT_EQ(print(sum_lookups(graph, {.accumulators = stages.accumulators, .num_workers = 2})), print(graph));
}

// Two servers share a table of which three workers look up rows, by numbers of two dims.
ir::Graph looked_up_forward(const std::string& dtype, int64_t row) {
  return ir::parse(fmt::format(R"(graph eval
  param table {0}[9,{1}]
  input ids i32[6,2]
  %1 = gather table, ids {{axis=0}} : {0}[6,2,{1}] @ a
  %2 = mul %1, %1 : {0}[6,2,{1}] @ b
  %3 = reduce_sum %2 {{axes=[0,1,2],keep_dims=false}} : {0}[] @ loss
  return loss = %3
)",
                               dtype, row));
}

TEST(ListedLookups, AreLookedUpOnceForEachWorker) {
  auto graph = looked_up_by_fields();
  place_for_servers(graph, {"table"});
  const auto text = print(list_lookups(graph, {.num_workers = 2}));
  for (const char* line :
       {"%1, %2 = list_rows ids {bounds=[0,2,3], num_rows=9, reader=\"gather\"} : i32[3,2], i32[3,2]",
        "%3 = gather table, %1 {axis=0, skipped=-1} : f32[3,2,32] stage 0 @ a",
        "%4 = spread_rows %3, %2 {bounds=[0,2,3]} : f32[3,2,32] stage 0 @ a", "%5 = reduce_sum %4 ", "(grad of %3)"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\nin\n" << text;
  }
}

TEST(ListedLookups, AreLeftOutWhereRowsAreShort) {
  for (const auto& [dtype, row, is_listed] :
       {std::tuple{"f32", 16, false}, {"f32", 17, true}, {"f64", 8, false}, {"bf16", 32, false}, {"bf16", 33, true}}) {
    auto graph = looked_up_forward(dtype, row);
    place_for_servers(graph, {"table"});
    EXPECT_EQ(print(list_lookups(graph, {.num_workers = 3})) != print(graph), is_listed)
        << dtype << ", " << row << " a row";
  }
}

TEST(ListedLookups, AreOfLongerRowsWhereMemoryIsShared) {
  for (const auto& [row, is_listed] : {std::pair{128, false}, {129, true}}) {
    auto graph = looked_up_forward("f32", row);
    place_for_servers(graph, {"table"});
    const ListedLookups lookups{.num_workers = 3, .small_row_bytes = kBytesOfSmallRowInMemory};
    EXPECT_EQ(print(list_lookups(graph, lookups)) != print(graph), is_listed) << row << " a row";
  }
}

// A prediction of rows alone is the servers' own.
TEST(ListedLookups, AreLeftOutWhereTheRowsAreAResult) {
  auto graph = ir::parse(R"(graph predict
  param table f32[9,32]
  input ids i32[3]
  %1 = gather table, ids {axis=0} : f32[3,32] @ a
  return output = %1
)");
  place_for_servers(graph, {"table"});
  EXPECT_EQ(print(list_lookups(graph, {.num_workers = 2})), print(graph));
}

std::set<std::string> ops_of(const PlannedPart& part) {
  std::set<std::string> ops;
  for (ir::NodeId n = 0; n < part.graph.num_nodes(); ++n) ops.insert(part.graph.node(n).op);
  return ops;
}

// Servers send the rows as they have looked them up, and where they belong; nobody computes what spreads them.
TEST(ListedLookups, LeaveTheServersBeforeTheyAreSpread) {
  auto graph = looked_up_forward("f32", 32);
  StageOptions stages{.num_stages = 2, .require_parameters = false, .served = {"table"}, .plans_each_stage = true};
  place_for_servers(graph, stages.served);
  graph = list_lookups(graph, {.num_workers = 3});
  const mesh::StageRanks ranks({2, 3});
  std::map<int, WithinStage> within;
  for (const int stage : {0, 1}) {
    const mesh::Mesh mesh({{"data", ranks.count(stage)}});
    auto rows = mesh::Sharding::replicated(2);
    rows.dims[0] = {0};
    within[stage] = {.mesh = mesh, .plan = {.batch_by_default = stage == 1}};
    within[stage].hints[stage == 0 ? "table" : "ids"] = {mesh, rows};
  }
  const auto plan = plan_stages(graph, nullptr, ranks, within, stages, {});
  const auto messages = chunk_messages(plan.micro, plan.placement);
  ASSERT_EQ(messages.size(), 1U);
  const ir::NodeId made = plan.micro.info(messages[0].value).node;
  EXPECT_EQ(plan.micro.node(made).op, "spread_rows");
  EXPECT_TRUE(is_spread_on_arrival(plan.micro, plan.of_chunk(0).micro, plan.placement, made));
  const auto names_of = [](const ChunkParts& parts) {
    std::set<std::string> names;
    for (const auto& value : parts.slot) names.insert(value.name);
    return names;
  };
  const auto name_of = [&](ir::ValueId v) { return slot_name(plan.micro, v); };
  const auto& operands = plan.micro.node(made).inputs;
  const auto of_servers = cut_chunk(plan, 0);
  EXPECT_EQ(names_of(of_servers), (std::set<std::string>{"slot.ids", name_of(operands[0]), name_of(operands[1])}));
  EXPECT_EQ(ops_of(of_servers.phases[0].part), (std::set<std::string>{"list_rows", "gather"}));
  // What servers have found of a row is added up before it is kept: each has all rows.
  for (const auto& value : of_servers.slot) EXPECT_TRUE(value.layout.sharding.is_replicated()) << value.name;
  const auto of_workers = cut_chunk(plan, 1);
  EXPECT_EQ(names_of(of_workers), (std::set<std::string>{name_of(messages[0].value)}));
  EXPECT_EQ(ops_of(of_workers.phases[0].part), (std::set<std::string>{"mul", "reduce_sum"}));
  // Where ranks reach each other's parameters nobody looks rows up: they are read where the table lies.
  EXPECT_EQ(find_lookup_in_place(plan.micro, plan.of_chunk(0).micro, plan.placement, made), ir::kNone);
  stages.reads_rows_in_place = true;
  const auto in_place = plan_stages(graph, nullptr, ranks, within, stages, {});
  const ir::NodeId lookup = find_lookup_in_place(in_place.micro, in_place.of_chunk(0).micro, in_place.placement, made);
  ASSERT_NE(lookup, ir::kNone);
  EXPECT_EQ(in_place.micro.node(lookup).op, "gather");
  const auto left = cut_chunk(in_place, 0);
  EXPECT_EQ(names_of(left),
            (std::set<std::string>{"slot.ids", name_of(in_place.micro.node(lookup).inputs[1]), name_of(operands[1])}));
  EXPECT_EQ(ops_of(left.phases[0].part), (std::set<std::string>{"list_rows"}));
  // Each of two servers sends each of three workers what it has of all that it wants.
  const auto message = message_between(in_place, messages[0]);
  EXPECT_EQ(pairs_of({message}), (std::vector<std::pair<int, int>>{{0, 2}, {0, 3}, {0, 4}, {1, 2}, {1, 3}, {1, 4}}));
  const int64_t rows = message.type.shape[0];
  const auto of_last = mesh::balanced_part(rows, 3, 2);
  for (const int server : {0, 1}) {
    EXPECT_EQ(sent_box(message, server, 4)->front(), of_last);
    EXPECT_EQ(received_box(message, server, 4)->front(), (mesh::Range{0, of_last.size}));
  }
}

TEST(Placement, SplitsOffWhatNoOtherStageWaitsFor) {
  auto split = options(2);
  split.split_backward = true;
  const auto placed = place_on_stages(graph_of(kTwoLayers, " stage 0", " stage 1"), split);
  EXPECT_EQ(placed.phase_of(6), PhaseKind::kBackward);        // the gradient of stage 1's input
  EXPECT_EQ(placed.phase_of(5), PhaseKind::kWeightGradient);  // of b.w
  EXPECT_EQ(placed.phase_of(8), PhaseKind::kWeightGradient);  // nobody waits for stage 0
}

// What a makes is read by b and c beside each other: the gradients of both are added up on b's stage, which has its own
// later than c's, though c was traced first.
TEST(Placement, AddsUpGradientsWhereTheLastOfThemIsMade) {
  const auto graph = ir::parse(R"(graph train_step
  param a.w f32[4,4]
  param b.w f32[4,4]
  param c.w f32[4,4]
  input x f32[2,4]
  state accu_grads.a.w f32[4,4]
  %1 = matmul x, a.w : f32[2,4] stage 0 @ a
  %2 = matmul %1, b.w : f32[2,4] stage 1 @ b
  %3 = matmul %1, c.w : f32[2,4] stage 2 @ c
  %4 = add %2, %3 : f32[2,4] stage 2 @ c
  %5 = reduce_sum %4 {dims=[0,1]} : f32[] @ loss
  %6 = fill {dtype="f32", shape=[2,4], value=1} : f32[2,4] @ loss
  %7 = matmul %6, c.w {transpose_b} : f32[2,4] @ c (grad of %3)
  %8 = matmul %6, b.w {transpose_b} : f32[2,4] @ b (grad of %2)
  %9 = add %7, %8 : f32[2,4] @ c (grad of %3)
  %10 = matmul x, %9 {transpose_a} : f32[4,4] @ a (grad of %1)
  %11 = add accu_grads.a.w, %10 : f32[4,4] @ accumulate
  return loss = %5, accu_grads.a.w = %11
)");
  const auto placed = place_on_stages(graph, {.num_stages = 3, .accumulators = {{"accu_grads.a.w", "a.w"}}});
  EXPECT_EQ(placed.chunk_of(graph.info(graph.node(9).inputs[1]).node), 1);  // the sum
  for (const auto& message : chunk_messages(graph, placed)) {
    EXPECT_EQ(message.made == PhaseKind::kForward, message.from < message.to) << graph.value_name(message.value);
  }
}

TEST(Placement, RefusesAStageThatIsNotThere) {
  EXPECT_EQ(refusal(" stage 0", " stage 2", 2),
            "cell \"b\" is on stage 2, but the stages are 0 to 1: give it one of these by set_stage(), or make more "
            "stages");
}

TEST(Placement, RefusesToReadFromALaterStage) {
  EXPECT_EQ(refusal(" stage 1", " stage 0", 2),
            "cell \"b\" is on stage 0 and reads what cell \".\" computes on stage 1: a stage reads only what "
            "comes before it; set_stage(1) or later for the first, or an earlier stage for the second");
}

TEST(Placement, RefusesAStageWithoutParameters) {
  EXPECT_EQ(refusal(" stage 0", " stage 2", 3),
            "stage 1 of 3 has no parameters: call set_stage(1) on a cell that has some, or use fewer stages");
  EXPECT_EQ(
      refusal("", "", 2),
      "stage 1 of 2 has no parameters, because no cell names its stage: call set_stage(1) on a cell that has some, "
      "or use fewer stages");
}

// Both layers multiply by a.w.
ir::Graph shared_weight(const std::string& first, const std::string& second) {
  std::string text = kTwoLayers;
  for (const auto& [from, to] : {std::pair{"matmul %2, b.w", "matmul %2, a.w"},
                                 {"matmul %5, b.w", "matmul %5, a.w"},
                                 {"  param b.w f32[4,4]\n", ""},
                                 {"  state accu_grads.b.w f32[4,4]\n", ""},
                                 {"%10 = add accu_grads.a.w, %9", "%10 = add %6, %9"},
                                 {"%11 = add accu_grads.b.w, %6", "%11 = add accu_grads.a.w, %10"},
                                 {", accu_grads.a.w = %10, accu_grads.b.w = %11", ", accu_grads.a.w = %11"}}) {
    text.replace(text.find(from), std::string(from).size(), to);
  }
  for (const auto& [mark, stage] : {std::pair{"STAGE_A", first}, std::pair{"STAGE_B", second}}) {
    text.replace(text.find(mark), 7, stage);
  }
  return ir::parse(text);
}

TEST(Placement, PutsAParameterOnAllStagesThatReadIt) {
  const auto placed = place_on_stages(shared_weight(" stage 0", " stage 1"), options(2));
  EXPECT_EQ(placed.values.at("a.w"), 0);
  EXPECT_EQ(placed.shared, (std::map<std::string, std::vector<int>>{{"a.w", {0, 1}}}));
  EXPECT_TRUE(place_on_stages(shared_weight(" stage 0", " stage 0"), options(1)).shared.empty());
}

TEST(Placement, RefusesAStateOfTwoStages) {
  auto text = print(shared_weight(" stage 0", " stage 1"));
  text.replace(text.find("param a.w"), 9, "state a.w");
  try {
    place_on_stages(ir::parse(text), options(2));
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "state \"a.w\" is read by cell \"a\" on stage 0 and by cell \"b\" on stage 1: a pipeline keeps it on "
                 "one stage; give both cells one stage");
  }
}

// Four layers in a row, each with the place that it is given.
ir::Graph four_layers(const std::vector<std::string>& places) {
  std::string text = "graph forward\n";
  for (const char* name : {"a", "b", "c", "d"}) text += fmt::format("  param {}.w f32[4,4]\n", name);
  text += "  input x f32[2,4]\n  state s f32[4,4]\n";
  std::string before = "x";
  for (size_t i = 0; i < 4; ++i) {
    const char name = static_cast<char>('a' + i);
    text += fmt::format("  %{} = matmul {}, {}.w : f32[2,4] {} @ {}\n", 2 * i + 1, before, name, places[i], name);
    text += fmt::format("  %{} = relu %{} : f32[2,4]\n", 2 * i + 2, 2 * i + 1);
    before = fmt::format("%{}", 2 * i + 2);
  }
  return ir::parse(text + "  return output = %8\n");
}

TEST(Segments, AreOverTheStagesInTurnOrBackFromTheLast) {
  const auto in_turn =
      place_on_stages(four_layers({"stage 0", "stage 1", "stage 0 segment 1", "stage 1 segment 1"}), {.num_stages = 2});
  EXPECT_EQ(in_turn.chunks.stages, (std::vector{0, 1, 0, 1}));
  EXPECT_EQ(in_turn.chunks.segments, (std::vector{0, 0, 1, 1}));
  EXPECT_EQ(in_turn.nodes, (std::vector{0, 1, 1, 2, 2, 3, 3, 3}));
  EXPECT_EQ(in_turn.values.at("c.w"), 0);
  EXPECT_EQ(in_turn.chunks_of(0), (std::vector{0, 2}));
  const auto back =
      place_on_stages(four_layers({"stage 0", "stage 1", "stage 1 segment 1", "stage 0 segment 1"}), {.num_stages = 2});
  EXPECT_EQ(back.chunks.stages, (std::vector{0, 1, 1, 0}));
  EXPECT_EQ(back.values.at("d.w"), 0);
  // A stage may have fewer chunks than another.
  const auto less =
      place_on_stages(four_layers({"stage 0", "stage 0", "stage 1", "stage 0 segment 1"}), {.num_stages = 2});
  EXPECT_EQ(less.chunks.stages, (std::vector{0, 1, 0}));
  EXPECT_EQ(chunk_messages(four_layers({"stage 0", "stage 0", "stage 1", "stage 0 segment 1"}), less).size(), 2U);
}

std::string refusal_of(const ir::Graph& graph) {
  try {
    place_on_stages(graph, {.num_stages = 2});
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Segments, AreRefusedWhereTheyDoNotFollowEachOther) {
  EXPECT_EQ(refusal_of(four_layers({"stage 0", "stage 1 segment 1", "stage 1", "stage 0 segment 1"})),
            "cell \"c\" is on stage 1, segment 0 and reads what cell \".\" computes on stage 1, segment 1: a "
            "stage reads only what comes before it; set_stage(1, 1) or later for the first, or an earlier stage or "
            "segment for the second");
  EXPECT_EQ(refusal_of(four_layers({"stage 0", "stage 1", "stage 0 segment 2", "stage 1 segment 2"})),
            "no cell is in segment 1 of the pipeline, but some are in segment 2: number the segments from 0, as "
            "set_stage(stage, segment) has them");
}

// A state of two segments of one stage, which stays as it is or is changed by the first of its readers.
ir::Graph with_state(bool is_assigned) {
  auto text = print(four_layers({"stage 0", "stage 1", "stage 0 segment 1", "stage 1 segment 1"}));
  for (const char* from : {"a.w :", "c.w :"}) text.replace(text.find(from), 5, "s :");
  if (is_assigned) text.replace(text.find("return "), 7, "%9 = matmul s, s : f32[4,4] stage 0 @ a\n  return s = %9, ");
  return ir::parse(text);
}

TEST(Segments, ShareAStateOfTheirStageUnlessMicroBatchesChangeIt) {
  EXPECT_EQ(refusal_of(with_state(false)), "nothing was thrown");
  EXPECT_EQ(
      refusal_of(with_state(true)),
      "state \"s\" is read by cell \"a\" on stage 0, segment 0 and by cell \"c\" on stage 0, segment 1: a pipeline "
      "keeps it in one segment, because micro-batches change it; give both cells one stage and one segment");
}

TEST(SharedParameters, HaveAnAccumulatorInEachChunkOfAStage) {
  auto stages = options(2);
  const auto graph = shared_weight(" stage 0", " stage 0 segment 1");
  stages.require_parameters = false;
  const auto before = place_on_stages(graph, stages);
  EXPECT_TRUE(before.shared.empty());
  EXPECT_EQ(before.shared_by_chunks, std::set<std::string>{"a.w"});
  const auto split = split_accumulators(graph, before, stages);
  const auto placed = place_on_stages(split, stages);
  EXPECT_EQ(placed.value_chunks.at("accu_grads.a.w of chunk 2"), 2);
  EXPECT_EQ(placed.values.at("accu_grads.a.w of chunk 2"), 0);
  EXPECT_TRUE(messages_of_sums(placed, stages).empty());
  EXPECT_TRUE(messages_of_values(placed, stages).empty());
}

TEST(SharedParameters, HaveAnAccumulatorOnEachStage) {
  const auto graph = shared_weight(" stage 0", " stage 1");
  auto stages = options(2);
  const auto split = split_accumulators(graph, place_on_stages(graph, stages), stages);
  EXPECT_EQ(
      stages.other_accumulators,
      (std::map<std::string, StageOptions::OtherAccumulator>{{"accu_grads.a.w of chunk 1", {"accu_grads.a.w", 1}}}));
  const auto placed = place_on_stages(split, stages);
  EXPECT_EQ(placed.values.at("accu_grads.a.w"), 0);
  EXPECT_EQ(placed.values.at("accu_grads.a.w of chunk 1"), 1);
  // Activations and their gradient; no gradient of the parameter.
  EXPECT_EQ(chunk_messages(split, placed).size(), 2U);
  const auto sums = messages_of_sums(placed, stages);
  ASSERT_EQ(sums.size(), 1U);
  EXPECT_EQ(std::pair(sums[0].from, sums[0].to), std::pair(1, 0));
  const auto values = messages_of_values(placed, stages);
  ASSERT_EQ(values.size(), 1U);
  EXPECT_EQ(values[0].values, std::vector<std::string>{"a.w"});
  EXPECT_EQ(std::pair(values[0].from, values[0].to), std::pair(0, 1));
}

TEST(SharedParameters, AreCastByEachStage) {
  const auto graph = ir::parse(R"(graph forward
  param w f32[4,4]
  input x bf16[2,4]
  %1 = cast w {dtype="bf16"} : bf16[4,4] stage 0 @ a
  %2 = matmul x, %1 : bf16[2,4] stage 0 @ a
  %3 = matmul %2, %1 : bf16[2,4] stage 1 @ b
  return output = %3
)");
  StageOptions two{.num_stages = 2, .require_parameters = false};
  const auto repeated = repeat_casts(graph, place_on_stages(graph, two));
  two.require_parameters = true;
  EXPECT_EQ(repeated.num_nodes(), 4);
  const auto placed = place_on_stages(repeated, two);
  EXPECT_EQ(placed.shared.at("w"), (std::vector{0, 1}));
  EXPECT_EQ(chunk_messages(repeated, placed).size(), 1U);
}

// A norm of two gradients, of a stage each, scales both.
const char* const kClipped = R"(graph update
  param a f32[4]
  param b f32[4]
  state ga f32[4]
  state gb f32[4]
  state step i32[]
  %1 = reduce_sum ga {dims=[0]} : f32[] @ optimizer
  %2 = reduce_sum gb {dims=[0]} : f32[] @ optimizer
  %3 = add %1, %2 : f32[] @ optimizer
  %4 = mul ga, %3 : f32[4] @ optimizer
  %5 = mul gb, %3 : f32[4] @ optimizer
  %6 = fill {dtype="i32", shape=[], value=1} : i32[] @ optimizer
  %7 = add step, %6 : i32[] @ optimizer
  return a = %4, b = %5, step = %7
)";

TEST(UpdateRounds, TellAllStagesWhatSeveralOfThemNeed) {
  const auto graph = ir::parse(kClipped);
  std::map<std::string, int> values = {{"a", 0}, {"b", 1}, {"ga", 0}, {"gb", 1}};
  const auto rounds = place_update(graph, values);
  EXPECT_EQ(rounds.nodes, (std::vector{0, 1, kEveryStage, 0, 1, kEveryStage, kEveryStage}));
  EXPECT_EQ(rounds.rounds, (std::vector{0, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(rounds.num_rounds, 2);
  ASSERT_EQ(rounds.told.size(), 1U);
  EXPECT_EQ(rounds.told[0].size(), 2U);
  EXPECT_EQ(values.at("step"), kEveryStage);
}

TEST(UpdateRounds, AreOneWhereEachStageLooksAtItsOwn) {
  auto text = std::string(kClipped);
  text.replace(text.find("add %1, %2"), 10, "add %1, %1");
  text.replace(text.find("mul gb, %3"), 10, "mul gb, %2");
  std::map<std::string, int> values = {{"a", 0}, {"b", 1}, {"ga", 0}, {"gb", 1}};
  EXPECT_EQ(place_update(ir::parse(text), values).num_rounds, 1);
}

TEST(UpdateRounds, RefuseAParameterThatBecomesAnotherStagesValue) {
  auto text = std::string(kClipped);
  text.replace(text.find("a = %4, b = %5"), 14, "a = %2, b = %5");
  text.replace(text.find("param a f32[4]"), 14, "param a f32[]");
  std::map<std::string, int> values = {{"a", 0}, {"b", 1}, {"ga", 0}, {"gb", 1}};
  try {
    place_update(ir::parse(text), values);
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(
        error.what(),
        "the update of \"a\" of stage 0 is a value of stage 1: a pipeline keeps what becomes of a parameter on "
        "the parameter's stage");
  }
}

}  // namespace
}  // namespace tessera::compiler
