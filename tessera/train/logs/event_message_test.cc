// Claims about event files, byte by byte.
#include "tessera/train/logs/event_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/base/files/protobuf_wire.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/train/logs/event_writer.h"

namespace tessera::train {
namespace {

using namespace std::string_view_literals;
using testing::ElementsAre;

// Each byte as two digits.
std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// RFC 3720 says that the CRC-32C of 32 bytes of 0 is 0x8a9136aa; turned right by 15 bits and 0xa282ead8 added:
// 0x8a9136aa >> 15 | 0x8a9136aa << 17 = 0x00011522 | 0x6d540000 = 0x6d551522, and the sum is 0x0fd7fffa.
TEST(EventRecord, HasLengthAndMaskedChecksums) {
  const std::string zeros(32, '\0');
  const std::string record = event_record(zeros);
  ASSERT_EQ(record.size(), 8 + 4 + 32 + 4);
  EXPECT_EQ(hexadecimal(record.substr(0, 8)), "2000000000000000");
  EXPECT_EQ(hexadecimal(record.substr(44)), "faffd70f");
}

// Written by hand: wall_time 1.5 is 0x3ff8000000000000; the key of a field is its number times 8, plus 1 for eight
// bytes, 0 for a number, 2 for bytes, 5 for four.
TEST(Event, OfTheVersionIsTheFirstOfAFile) {
  EXPECT_EQ(hexadecimal(version_event(1.5)), hexadecimal("\x09\0\0\0\0\0\0\xf8\x3f\x1a\x0d"
                                                         "brain.Event:2"sv));
}

TEST(Event, OfAScalarHasTheNumbersOfTensorBoard) {
  EventSummary summary;
  summary.add_scalar("loss", 0.5);
  EXPECT_EQ(hexadecimal(summary_event(1.5, 300, summary)),
            // wall_time; step; summary of 13 bytes, value of 11: tag, simple_value 0x3f000000
            hexadecimal("\x09\0\0\0\0\0\0\xf8\x3f\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04loss\x15\0\0\0\x3f"sv));
}

TEST(Event, OfARestartIsASessionThatStarts) {
  EXPECT_EQ(hexadecimal(restart_event(1.5, 7)), hexadecimal("\x09\0\0\0\0\0\0\xf8\x3f\x10\x07\x3a\x02\x08\x01"sv));
}

TEST(Event, OfATextIsATensorForThePluginOfTexts) {
  EventSummary summary;
  summary.add_text("t", "hi");
  EXPECT_EQ(
      hexadecimal(summary.bytes()),
      // value of 31 bytes: tag; metadata of 12: plugin_data of 8, its name and no content, data_class 2; tensor of
      // 12: dtype 7, shape of one dim of size 1, string_val
      hexadecimal(
          "\x0a\x1f\x0a\x01t\x4a\x0c\x0a\x08\x0a\x04text\x12\0\x20\x02\x42\x0c\x08\x07\x12\x04\x12\x02\x08\x01\x42\x02hi"sv));
}

TEST(Event, OfAGraphHasItsBytesAndNoStep) {
  EXPECT_EQ(hexadecimal(graph_event(1.5, "graph")), hexadecimal("\x09\0\0\0\0\0\0\xf8\x3f\x22\x05graph"sv));
}

// What a node has of its type f32[2]: an entry of 26 bytes, whose value of 8 is a list of 6 with a shape of 4, a dim of
// size 2; an entry of 7 bytes, whose value is the type 1.
constexpr std::string_view kTypeOfTwo =
    "\x2a\x1a\x0a\x0e_output_shapes\x12\x08\x0a\x06\x3a\x04\x12\x02\x08\x02\x2a\x07\x0a\x01T\x12\x02\x30\x01"sv;

TEST(GraphMessage, HasTheNumbersOfTensorBoard) {
  ir::Graph graph;
  const ir::Value x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {2}});
  const ir::SourceScope scope(graph, "up.act");
  graph.add_output("loss", ops::relu(x));
  EXPECT_EQ(hexadecimal(graph_message(graph)),
            // node of 47 bytes: name, op; node of 59: name, op, input; versions with producer 22
            hexadecimal("\x0a\x2f\x0a\x01x\x12\x05input"sv) + hexadecimal(kTypeOfTwo) +
                hexadecimal("\x0a\x3b\x0a\x0bup/act/relu\x12\x04relu\x1a\x01x"sv) + hexadecimal(kTypeOfTwo) +
                hexadecimal("\x22\x02\x08\x16"sv));
}

// Each node of a GraphDef as "NAME = OP INPUT INPUT".
std::vector<std::string> nodes_of(const std::string& message) {
  const std::string path = "graph";
  std::vector<std::string> nodes;
  WireCursor graph(path, std::as_bytes(std::span(message)), 0);
  while (!graph.done()) {
    const WireKey of_graph = graph.key();
    if (of_graph.field != 1) {
      graph.skip(of_graph.wire_type);
      continue;
    }
    WireCursor node = graph.message("a node");
    std::string text;
    while (!node.done()) {
      const WireKey key = node.key();
      if (key.field > 3) {
        node.skip(key.wire_type);
        continue;
      }
      const char* const before = key.field == 1 ? "" : key.field == 2 ? " = " : " ";
      text += fmt::format("{}{}", before, as_text(node.message("a text").rest()));
    }
    nodes.push_back(text);
  }
  return nodes;
}

TEST(GraphMessage, HasWhatTheLossIsComputedFromUnderTheNamesOfCells) {
  ir::Graph graph;
  const Type type{DType::kF32, {2}};
  const ir::Value x = graph.add_input(ir::InputKind::kInput, "x", type);
  const ir::Value weight = graph.add_input(ir::InputKind::kParameter, "block.weight", type);
  const ir::Value rate = graph.add_input(ir::InputKind::kState, "rate", type);
  ir::Value loss;
  {
    const ir::SourceScope scope(graph, "block");
    loss = ops::mul(ops::mul(x, weight), weight);
  }
  {
    const ir::SourceScope scope(graph, ".");
    const std::vector<Type> types{type, type};
    const auto halves = graph.add_node("halves", std::vector{loss}, {}, types);
    const ir::SourceScope of_loss(graph, "my:loss");
    graph.add_output("loss", ops::mul(halves[1], halves[0]));
  }
  const ir::SourceScope scope(graph, "block", /*forward=*/0);
  graph.add_output("block.weight", ops::mul(loss, rate));
  EXPECT_THAT(nodes_of(graph_message(graph)),
              ElementsAre("x = input", "block/weight = param", "block/mul = mul x block/weight",
                          "block/mul_1 = mul block/mul block/weight", "halves = halves block/mul_1",
                          "my_loss/mul = mul halves:1 halves"));
}

TEST(GraphMessage, OfAGraphWithoutALossHasWhatItsResultsAreComputedFrom) {
  ir::Graph graph;
  const ir::Value x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {2}});
  ops::mul(x, x);
  graph.add_output("output", ops::relu(x));
  EXPECT_THAT(nodes_of(graph_message(graph)), ElementsAre("x = input", "relu = relu x"));
}

TEST(GraphMessage, LeavesOutLongLists) {
  ir::Graph graph;
  const std::vector<Type> types{Type{DType::kF32, {2}}};
  const auto made = graph.add_node(
      "constant", {}, {{"short", Doubles(64)}, {"long", Ints(65)}, {"name", std::string("cosine")}}, types);
  graph.add_output("loss", made[0]);
  EXPECT_THAT(graph_message(graph), testing::AllOf(testing::HasSubstr("short"), testing::HasSubstr("cosine"),
                                                   testing::Not(testing::HasSubstr("long"))));
}

TEST(EventSummary, SaysHowManyElementsOfAHistogramAreNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto histogram = histogram_of(Tensor::of<double>({4}, {1, infinity, -infinity, std::nan("")}));
  EXPECT_EQ(histogram.num, 1);
  EXPECT_EQ(histogram.num_non_finite, 3);
  EventSummary summary;
  summary.add_histogram("w", histogram);
  EXPECT_THAT(summary.bytes(), testing::HasSubstr("w/non_finite"));
}

TEST(Histogram, HasEveryElementInTheBucketThatEndsAtItOrAbove) {
  const auto histogram = histogram_of(Tensor::of<float>({5}, {0, 0, 0.5F, -2, 3}));
  EXPECT_EQ(histogram.min, -2);
  EXPECT_EQ(histogram.max, 3);
  EXPECT_EQ(histogram.sum, 1.5);
  EXPECT_EQ(histogram.sum_squares, 13.25);
  ASSERT_EQ(histogram.limits.size(), histogram.counts.size());
  EXPECT_EQ(histogram.counts.front(), 0) << "says where the first one begins";
  double sum = 0;
  for (size_t i = 1; i < histogram.counts.size(); ++i) {
    EXPECT_LT(histogram.limits[i - 1], histogram.limits[i]);
    int expected = 0;
    for (const double x : {0.0, 0.0, 0.5, -2.0, 3.0})
      expected += histogram.limits[i - 1] < x && x <= histogram.limits[i];
    EXPECT_EQ(histogram.counts[i], expected) << histogram.limits[i];
    sum += histogram.counts[i];
  }
  EXPECT_EQ(sum, 5);
}

TEST(Histogram, OfNoElementsIsEmpty) {
  const auto histogram = histogram_of(Tensor::zeros({DType::kF32, {0}}));
  EXPECT_EQ(histogram.num, 0);
  EXPECT_EQ(histogram.max, 0);
  EXPECT_TRUE(histogram.limits.empty());
}

TEST(EventWriter, NamesALaterFileSoThatItIsReadLater) {
  MemoryFileSystem files;
  FakeClock clock;
  EventWriter(files, clock, "runs", 0).close();
  EventWriter(files, clock, "runs", 5).close();
  EXPECT_THAT(files.list("runs"), ElementsAre(testing::StartsWith("events.out.tfevents.0000001000."),
                                              testing::StartsWith("events.out.tfevents.0000001001.")));
}

TEST(EventWriter, NamesItsFileByPrefixAndSuffixBehindThoseOfOtherPrefixes) {
  MemoryFileSystem files;
  FakeClock clock;
  EventWriter(files, clock, "runs", 0).close();
  EventWriter(files, clock, "runs", 0, {.prefix = "summary", .suffix = "_MS"}).close();
  EXPECT_THAT(files.list("runs"), ElementsAre(testing::StartsWith("events.out.tfevents.0000001000."),
                                              testing::AllOf(testing::StartsWith("summary.out.tfevents.0000001001."),
                                                             testing::EndsWith("_MS"))));
  EXPECT_THROW(EventWriter(files, clock, "runs", 0, {.prefix = "a/b"}), InvalidArgument);
}

TEST(EventWriter, BeginsWithTheVersionAndTheFirstStep) {
  MemoryFileSystem files;
  FakeClock clock;
  EventWriter writer(files, clock, "runs", 5);
  EventSummary summary;
  writer.add(summary, 5);  // nothing
  summary.add_scalar("loss", 2);
  writer.add(summary, 5);
  writer.close();
  EXPECT_EQ(files.read_text(writer.path()), event_record(version_event(1000)) + event_record(restart_event(1000, 5)) +
                                                event_record(summary_event(1000, 5, summary)));
}

}  // namespace
}  // namespace tessera::train
