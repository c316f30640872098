#include "tessera/data/text/synthetic_translation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tessera/base/error.h"
#include "tessera/data/text/sentence_pairs.h"

namespace tessera::data {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<SentencePair> written(const SyntheticTranslationOptions& options, const std::string& name) {
  MemoryFileSystem files;
  write_synthetic_translation(files, "d", options);
  return read_segment_pairs(files, "d/" + name + ".source.sgm", "d/" + name + ".target.sgm");
}

TEST(SyntheticTranslation, IsTheSameForOneSeedAndAnotherForAnother) {
  const auto pairs = written({.train_pairs = 50, .test_pairs = 5, .seed = 1}, "train");
  EXPECT_EQ(pairs, written({.train_pairs = 50, .test_pairs = 5, .seed = 1}, "train"));
  EXPECT_NE(pairs, written({.train_pairs = 50, .test_pairs = 5, .seed = 2}, "train"));
  EXPECT_EQ(pairs.size(), 50U);
}

TEST(SyntheticTranslation, NoTestSentenceIsTrainedOnOrDependsOnTheTraining) {
  const auto test = written({.train_pairs = 500, .test_pairs = 100}, "test");
  EXPECT_EQ(test, written({.train_pairs = 10, .test_pairs = 100}, "test"));
  std::set<std::string> sources;
  for (const auto& pair : written({.train_pairs = 500, .test_pairs = 100}, "train")) sources.insert(pair.source);
  EXPECT_EQ(sources.size(), 500U);
  for (const auto& pair : test) EXPECT_FALSE(sources.contains(pair.source));
}

TEST(SyntheticTranslation, RefusesTooFewAndTooManyPairs) {
  MemoryFileSystem files;
  for (const int64_t count : {int64_t{0}, int64_t{1'000'001}}) {
    EXPECT_THAT([&] { write_synthetic_translation(files, "d", {.train_pairs = count}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("needs 1 to 1000000 training and test pairs")));
  }
}

}  // namespace
}  // namespace tessera::data
