#include "tessera/data/text/translation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tessera/base/error.h"
#include "tessera/data/batch_iterator.h"

namespace tessera::data {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Numbers = std::vector<double>;

const std::vector<SentencePair> kPairs{{"a b c", "x y"}, {"b a", "y x z"}, {"c", "z"}, {"a b c d e f", "x y z x y z"}};

std::vector<std::string> sentences(const std::vector<SentencePair>& pairs, std::string SentencePair::*side) {
  std::vector<std::string> all;
  for (const auto& pair : pairs) all.push_back(pair.*side);
  return all;
}
Vocabulary vocabulary(std::string SentencePair::*side, const VocabularyOptions& options = {}) {
  return Vocabulary::build(sentences(kPairs, side), options);
}
Dataset whole(TranslationOptions options) {
  return translation(kPairs, vocabulary(&SentencePair::source), vocabulary(&SentencePair::target), options);
}

TEST(Translation, ARowHasItsWordsAnEndAndPadding) {
  const auto source = vocabulary(&SentencePair::source);
  const auto target = vocabulary(&SentencePair::target);
  auto batches = whole({.source_length = 5, .target_length = 4, .shuffle = false}).batch(3).batches();
  const auto batch = *batches.next();
  const auto id = [](const Vocabulary& words, const char* word) { return static_cast<double>(words.id(word)); };
  const double a = id(source, "a");
  const double b = id(source, "b");
  const double c = id(source, "c");
  const double x = id(target, "x");
  const double y = id(target, "y");
  const double z = id(target, "z");
  EXPECT_EQ(batch[0].type(), parse_type("i32[3,5]"));
  EXPECT_EQ(batch[0].to_doubles(), (Numbers{a, b, c, 2, 1, b, a, 2, 1, 1, c, 2, 1, 1, 1}));
  EXPECT_EQ(batch[1].to_doubles(), (Numbers{3, x, y, 1, 3, y, x, z, 3, z, 1, 1}));
  EXPECT_EQ(batch[2].to_doubles(), (Numbers{x, y, 2, 1, y, x, z, 2, z, 2, 1, 1}));
}

TEST(Translation, LongPairsAreLeftOutOrCut) {
  EXPECT_EQ(whole({.source_length = 3, .target_length = 4}).get_dataset_size(), 2);
  const auto cut = whole({.source_length = 2, .target_length = 2, .cut_long = true, .shuffle = false});
  EXPECT_EQ(cut.get_dataset_size(), 4);
  const auto first = *cut.batch(1).batches().next();
  EXPECT_EQ(first[0].to_doubles().size(), 2U);
  EXPECT_EQ(first[1].to_doubles()[0], Vocabulary::kBegin);
  EXPECT_EQ(first[2].to_doubles(), (Numbers{4, 5}));  // x y, and no end
}

TEST(Translation, InTutorial004sFormTakesLongSourcesOnlyAndEndsEveryLabel) {
  const VocabularyOptions three{.special_words = {"UNK", "PAD", "EOT"}};
  const auto rows =
      translation(kPairs, vocabulary(&SentencePair::source, three), vocabulary(&SentencePair::target, three),
                  {.source_length = 1, .target_length = 3, .form = TranslationForm::kTutorial, .shuffle = false});
  EXPECT_EQ(rows.get_dataset_size(), 2);  // those of three and of six words
  const auto batch = *rows.batch(2).batches().next();
  EXPECT_EQ(batch[0].to_doubles(), (Numbers{3, 3}));
  EXPECT_EQ(batch[1].to_doubles(), (Numbers{3, 4, 1, 3, 4, 5}));
  EXPECT_EQ(batch[2].to_doubles(), (Numbers{4, 1, 2, 4, 5, 2}));
}

TEST(Translation, IsShuffledShardedAndResumedLikeEveryDataSet) {
  const auto rows = [](int64_t num_shards, int64_t shard) {
    return whole({.source_length = 7, .target_length = 7, .num_shards = num_shards, .shard_id = shard, .seed = 3})
        .batch(1);
  };
  std::vector<Numbers> all;
  auto batches = rows(1, 0).batches({.num_epochs = 2});
  while (const auto batch = batches.next()) all.push_back((*batch)[0].to_doubles());
  ASSERT_EQ(all.size(), 8U);
  auto resumed = rows(1, 0).batches({.start = {.epoch = 1, .batch = 2}, .num_epochs = 2});
  EXPECT_EQ((*resumed.next())[0].to_doubles(), all[6]);
  for (int64_t shard = 0; shard < 2; ++shard) {
    auto part = rows(2, shard).batches();
    EXPECT_EQ((*part.next())[0].to_doubles(), all[static_cast<size_t>(shard)]);
  }
}

TEST(Translation, RefusesWhatDoesNotFit) {
  const auto expect_refusal = [](const TranslationOptions& options, const std::string& message) {
    EXPECT_THAT([&] { whole(options); }, ThrowsMessage<InvalidArgument>(HasSubstr(message)));
  };
  expect_refusal({.source_length = 0, .target_length = 2}, "must be at least 1, got 0 and 2");
  expect_refusal({.source_length = 1, .target_length = 1}, "none of 4 pairs fits into 1 and 1 tokens");
  expect_refusal({.source_length = 9, .target_length = 9, .form = TranslationForm::kTutorial},
                 "has a source of more than 10 words: give a smaller source_length; the longest source has 6 words");
  EXPECT_THAT(
      [] {
        translation(kPairs, vocabulary(&SentencePair::source),
                    vocabulary(&SentencePair::target, {.special_words = {"UNK", "PAD", "EOT"}}),
                    {.source_length = 9, .target_length = 9});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("must have a word for the beginning of a sentence")));
}

TEST(SourceRows, AreThoseOfTheDataSet) {
  const auto source = vocabulary(&SentencePair::source);
  EXPECT_EQ(source_rows({"a b c", "c d e f"}, source, 4).to_doubles(),
            (Numbers{4, 5, 6, 2, 6, static_cast<double>(source.id("d")), static_cast<double>(source.id("e")),
                     static_cast<double>(source.id("f"))}));
}

// The numbers that the tutorial's page and the data's page give for this text.
TEST(Wmt14, HasTheTutorialsVocabularyAndSteps) {
  const std::string folder = TESSERA_SOURCE_DIR "/../shared/data/wmt14/newstest2014-fren-ref.";
  if (!std::filesystem::exists(folder + "en.sgm")) GTEST_SKIP() << "../shared/data/wmt14 is absent";
  const auto pairs = read_segment_pairs(FileSystem::local(), folder + "en.sgm", folder + "fr.sgm");
  ASSERT_EQ(pairs.size(), 3003U);
  const VocabularyOptions three{.special_words = {"UNK", "PAD", "EOT"}};
  const auto english = Vocabulary::build(sentences(pairs, &SentencePair::source), three);
  const auto french = Vocabulary::build(sentences(pairs, &SentencePair::target), three);
  EXPECT_EQ(english.size(), 14399 + 3);
  EXPECT_EQ(french.size(), 15736 + 3);
  const auto rows = translation(pairs, english, french,
                                {.source_length = 10, .target_length = 10, .form = TranslationForm::kTutorial});
  EXPECT_EQ(rows.get_dataset_size(), 2345);
  EXPECT_EQ(rows.batch(32, {.drop_remainder = true}).get_dataset_size(), 73);
}

}  // namespace
}  // namespace tessera::data
