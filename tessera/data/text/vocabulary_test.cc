#include "tessera/data/text/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::vector<std::string> kSentences{"the cat sees the dog", "a dog sees PAD"};

TEST(Vocabulary, NumbersFrequentWordsFirstAndTiesAsTheyCome) {
  const auto vocabulary = Vocabulary::build(kSentences);
  EXPECT_EQ(vocabulary.to_text(), "UNK\nPAD\nEOT\nBOT\nthe\nsees\ndog\ncat\na\n");
  EXPECT_THAT(vocabulary.ids("a dog eats"), ElementsAre(8, 6, Vocabulary::kUnknown));
}

TEST(Vocabulary, OfTutorial004HasThreeSpecialWords) {
  const auto vocabulary = Vocabulary::build(kSentences, {.special_words = {"UNK", "PAD", "EOT"}});
  EXPECT_EQ(vocabulary.id("the"), 3);
  EXPECT_FALSE(vocabulary.has_begin());
}

TEST(Vocabulary, AWordSpelledLikeASpecialOneIsUnknown) {
  EXPECT_EQ(Vocabulary::build(kSentences).id("PAD"), Vocabulary::kUnknown);
}

TEST(Vocabulary, KeepsTheMostFrequentWords) {
  EXPECT_EQ(Vocabulary::build(kSentences, {.max_size = 6}).to_text(), "UNK\nPAD\nEOT\nBOT\nthe\nsees\n");
  EXPECT_EQ(Vocabulary::build(kSentences, {.min_count = 2}).to_text(), "UNK\nPAD\nEOT\nBOT\nthe\nsees\ndog\n");
}

TEST(Vocabulary, ASentenceEndsAtTheFirstEnd) {
  const auto vocabulary = Vocabulary::build(kSentences);
  const std::vector<int32_t> ids{Vocabulary::kBegin, 4, Vocabulary::kUnknown, 6,
                                 Vocabulary::kEnd,   7, Vocabulary::kPadding};
  EXPECT_EQ(vocabulary.sentence(ids), "the UNK dog");
  EXPECT_THAT([&] { vocabulary.sentence(std::vector<int32_t>{9}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("id must be in [0, 9), got 9")));
}

TEST(Vocabulary, ComesBackFromItsFile) {
  MemoryFileSystem files;
  const auto vocabulary = Vocabulary::build(kSentences);
  vocabulary.write(files, "v.txt");
  EXPECT_EQ(Vocabulary::read(files, "v.txt"), vocabulary);
  EXPECT_THAT([&] { Vocabulary::read(files, "v.txt", {.max_size = 5}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("has 9 words; at most 5")));
}

TEST(Vocabulary, AFileIsRefusedWithItsLine) {
  const auto expect_refusal = [](const std::string& text, const std::string& message) {
    EXPECT_THAT([&] { Vocabulary::parse(text, "v.txt"); },
                ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("v.txt"), HasSubstr(message))));
  };
  expect_refusal("UNK\nPAD\n", "must begin with the 4 special words, has 2 lines");
  expect_refusal("UNK\nEOT\nPAD\nBOT\n", "line 2: must be the special word \"PAD\", got \"EOT\"");
  expect_refusal("UNK\nPAD\nEOT\nBOT\na\nb c\n", "line 6: must be one word");
  expect_refusal("UNK\nPAD\nEOT\nBOT\na\n\n", "line 6: must be one word");
  expect_refusal("UNK\nPAD\nEOT\nBOT\na\nb\na\n", "line 7: \"a\" is also on line 5");
  expect_refusal("UNK\nPAD\nEOT\nBOT\n\xc3\n", "line 5: must be UTF-8");
}

TEST(Vocabulary, RefusesOptionsThatDoNotFit) {
  const auto expect_refusal = [](const VocabularyOptions& options, const std::string& message) {
    EXPECT_THAT([&] { Vocabulary::build(kSentences, options); }, ThrowsMessage<InvalidArgument>(HasSubstr(message)));
  };
  expect_refusal({.special_words = {"UNK", "PAD"}}, "must be unknown, padding, end and, if wanted, begin; got 2 words");
  expect_refusal({.special_words = {"UNK", "PAD", "PAD"}}, "must be different words, got \"PAD\"");
  expect_refusal({.special_words = {"U N", "PAD", "EOT"}}, "must be different words, got \"U N\"");
  expect_refusal({.max_size = 3}, "max_size must be 0 or at least 4");
  expect_refusal({.min_count = 0}, "min_count must be at least 1");
}

}  // namespace
}  // namespace tessera::data
