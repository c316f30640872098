#include "tessera/data/text/sentence_pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/data/text/unicode.h"

namespace tessera::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Words, AreWhatPythonSplits) {
  EXPECT_THAT(split_words("  a\tb\xc2\xa0"
                          "c\xe2\x80\x89"
                          "d\x1c"
                          "e\xe3\x80\x80\xc3\xa9 "),
              ElementsAre("a", "b", "c", "d", "e", "\xc3\xa9"));
  EXPECT_THAT(split_words(" \n\xc2\xa0"), ElementsAre());
  EXPECT_EQ(strip_space("\xc2\xa0 a b\t"), "a b");
}

TEST(Lines, EndAsPythonsDo) {
  EXPECT_THAT(text_lines("a\nb\r\nc\rd"), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(text_lines("a\n\n"), ElementsAre("a", ""));
  EXPECT_THAT(text_lines(""), ElementsAre());
}

TEST(Utf8, IsRefusedWithFileLineAndByte) {
  require_utf8("d\xc3\xa9j\xc3\xa0 vu \xf0\x9f\x98\x80", "f", 1);
  for (const std::string damaged : {"ab\xff", "ab\xc3", "ab\xc0\x80", "ab\xed\xa0\x80", "ab\xf4\x90\x80\x80"}) {
    EXPECT_THAT([&] { require_utf8(damaged, "f.txt", 7); },
                ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("f.txt"), HasSubstr("line 7"), HasSubstr("byte 3"))));
  }
  EXPECT_THAT([&] { require_utf8(std::string("a\0b", 3), "f", 1); },
              ThrowsMessage<InvalidArgument>(HasSubstr("without NUL, byte 2 is 0x00")));
  EXPECT_THAT([&] { require_utf8(std::string(kMaxLineBytes + 1, 'a'), "f", 1); },
              ThrowsMessage<InvalidArgument>(HasSubstr("line 1 has 1048577 bytes")));
}

TEST(Segments, HaveDocumentIdTextAndLine) {
  const auto segments = parse_segments(
      "<refset setid=\"x\">\n<doc sysid=\"ref\" docid=\"9-news\">\n<seg id=\"1\"> A &amp; B </seg>\n</doc>\n"
      "<seg id=\"2\"></seg>\n",
      "f.sgm");
  EXPECT_THAT(segments, ElementsAre(Segment{"9-news", "1", "A &amp; B", 3}, Segment{"", "2", "", 5}));
}

TEST(Segments, AreRefusedWithFileAndLine) {
  const auto expect_refusal = [](const std::string& text, const std::string& message) {
    EXPECT_THAT([&] { parse_segments(text, "f.sgm"); },
                ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("f.sgm"), HasSubstr(message))));
  };
  expect_refusal("", "has no line <seg");
  expect_refusal("<doc>\n<seg id=\"1\">no end\n", "line 2: a segment must begin and end on one line");
  expect_refusal("<seg id=\"1\" no end</seg>\n", "line 1: a segment must begin and end");
  expect_refusal("<seg>x</seg>", "line 1: a segment must have an id");
  expect_refusal("<seg id=\"1\">a\tb</seg>", "line 1: a segment must have no tab");
  for (const char* line : {"<seg id=\"1\">a</seg><seg id=\"2\">b</seg>", "<p><seg id=\"1\">a</seg>"}) {
    expect_refusal(line, "line 1: a segment must stand on a line of its own");
  }
  expect_refusal("\n<seg id=\"1\">\xff</seg>", "line 2: must be UTF-8");
}

struct TextFiles : testing::Test {
  void write(const std::string& path, const std::string& content) {
    auto file = files.create(path);
    file->append(content);
    file->close();
  }
  MemoryFileSystem files;
};

TEST_F(TextFiles, SegmentsOfTwoFilesArePaired) {
  write("a.sgm", "<doc docid=\"d\">\n<seg id=\"1\">one</seg>\n<seg id=\"2\">two</seg>\n<seg id=\"3\"></seg>\n");
  write("b.sgm", "<doc docid=\"d\">\n<seg id=\"1\">un</seg>\n\n<seg id=\"2\">deux</seg>\n<seg id=\"3\">?</seg>\n");
  EXPECT_THAT(read_segment_pairs(files, "a.sgm", "b.sgm"),
              ElementsAre(SentencePair{"one", "un"}, SentencePair{"two", "deux"}));
}

TEST_F(TextFiles, SegmentsThatDoNotBelongTogetherAreRefused) {
  write("a.sgm", "<doc docid=\"d\">\n<seg id=\"1\">one</seg>\n<seg id=\"2\">two</seg>\n");
  write("b.sgm", "<doc docid=\"d\">\n<seg id=\"1\">un</seg>\n");
  EXPECT_THAT([&] { read_segment_pairs(files, "a.sgm", "b.sgm"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("must have as many segments, got 2 and 1")));
  write("c.sgm", "<doc docid=\"d\">\n<seg id=\"1\">un</seg>\n<seg id=\"3\">trois</seg>\n");
  EXPECT_THAT([&] { read_segment_pairs(files, "a.sgm", "c.sgm"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("line 3 is segment 2 of \"d\", line 3 is segment 3 of \"d\"")));
}

TEST_F(TextFiles, PairsComeBackAsTheyWereWritten) {
  const std::vector<SentencePair> pairs{{"a b", "c"}, {"d\xc3\xa9j\xc3\xa0", "e\xc2\xa0 f"}};
  write_sentence_pairs(files, "p.txt", pairs);
  EXPECT_EQ(read_sentence_pairs(files, "p.txt"), pairs);
  EXPECT_THAT(
      [&] {
        write_sentence_pairs(files, "p.txt", {{"a\tb", "c"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("pair 0: a sentence must have text")));
  EXPECT_THAT(
      [&] {
        write_sentence_pairs(files, "p.txt", {{std::string("a\0b", 3), "c"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("without NUL")));
}

TEST(SentencePairs, LeaveOutEmptyLinesAndRefuseOthersWithFileAndLine) {
  EXPECT_THAT(parse_sentence_pairs("\n a\tb \r\n  \nc \td", "p"),
              ElementsAre(SentencePair{"a", "b"}, SentencePair{"c", "d"}));
  EXPECT_THAT([] { parse_sentence_pairs("a\tb\na b\n", "p.txt"); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("\"p.txt\": line 2: must be a sentence, a tab and its translation, got no tab")));
  EXPECT_THAT([] { parse_sentence_pairs("a\tb\tc\n", "p.txt"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("several tabs")));
  EXPECT_THAT([] { parse_sentence_pairs("a\t\n", "p.txt"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("got one side only")));
  EXPECT_THAT([] { parse_sentence_pairs("\n\n", "p.txt"); }, ThrowsMessage<InvalidArgument>(HasSubstr("has no pair")));
}

}  // namespace
}  // namespace tessera::data
