// Claims about event files, byte by byte.
#include "tessera/train/logs/event_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string_view>

#include "tessera/base/clock.h"
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
