#include "tessera/data/text/bleu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera::data {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;
using testing::ThrowsMessage;

std::string joined(const std::vector<std::string>& tokens) {
  std::string text;
  for (const auto& token : tokens) text += (text.empty() ? "" : " ") + token;
  return text;
}

// What sacrebleu 2.6.0 says of these; tests/python/text_test.py asks it about far more.

TEST(Tokens13a, ArePunctuationAndWords) {
  EXPECT_EQ(joined(tokenize_13a("\"Hello,\" he said; it's 3,500.25 (or 5-6)...")),
            "\" Hello , \" he said ; it's 3,500.25 ( or 5 - 6 ) . . .");
  EXPECT_EQ(joined(tokenize_13a("R&amp;D &quot;x&quot; -\n- end.")), "R & D \" x \" - end .");
  EXPECT_EQ(joined(tokenize_13a("a.b,c 1.a ,5 \xc3\xa9.\xc3\xa8")), "a . b , c 1 . a , 5 \xc3\xa9 . \xc3\xa8");
  EXPECT_EQ(joined(tokenize_13a("<skipped>x well-known 10-year U.S.")), "x well-known 10 - year U . S .");
}

void expect_score(const BleuScore& score, double value, const std::vector<double>& precisions, double brevity_penalty) {
  EXPECT_NEAR(score.score, value, 1e-12 * value);
  EXPECT_THAT(score.precisions, Pointwise(DoubleNear(1e-12), precisions));
  EXPECT_NEAR(score.brevity_penalty, brevity_penalty, 1e-15);
}

TEST(Bleu, OfACorpusIsSacrebleus) {
  const auto score =
      bleu({"the cat is on the mat", "there is a dog"}, {{"the cat sat on the mat"}, {"there is a big dog"}});
  EXPECT_THAT(score.matches, ElementsAre(9, 5, 2, 0));
  EXPECT_THAT(score.totals, ElementsAre(10, 8, 6, 4));
  EXPECT_EQ(score.hypothesis_tokens, 10);
  EXPECT_EQ(score.reference_tokens, 11);
  expect_score(score, 35.403677261035185, {90.0, 62.5, 100.0 / 3, 12.5}, 0.9048374180359595);
}

TEST(Bleu, OfSentencesThatAreTooShortForAnOrderIsZero) {
  expect_score(bleu({"a b c"}, {{"x a y c"}}), 0, {200.0 / 3, 25, 25, 0}, 0.7165313105737893);
  expect_score(bleu({"a b"}, {{"a b"}}), 0, {100, 100, 0, 0}, 1);
}

TEST(Bleu, OfNothingInCommonIsZero) { expect_score(bleu({"x"}, {{"y z"}}), 0, {0, 0, 0, 0}, 0.36787944117144233); }

TEST(Bleu, OfSeveralReferencesCountsAWordAsOftenAsOneHasItAndTakesTheClosestLength) {
  const auto score = bleu({"the the the the"}, {{"the cat", "the the dog"}});
  EXPECT_THAT(score.matches, ElementsAre(2, 1, 0, 0));
  EXPECT_EQ(score.reference_tokens, 3);
  expect_score(score, 31.947155212313625, {50, 100.0 / 3, 25, 25}, 1);
}

TEST(Bleu, OfTheReferenceItselfIsOneHundred) {
  EXPECT_DOUBLE_EQ(bleu({"one two three four, five."}, {{"one two three four, five."}}).score, 100);
}

TEST(Bleu, WithoutTokensOfItsOwnTakesWords) {
  EXPECT_EQ(bleu({"a, b c d e"}, {{"a, b c d e"}}, {.tokenize = false}).hypothesis_tokens, 5);
  EXPECT_EQ(bleu({"a, b c d e"}, {{"a, b c d e"}}).hypothesis_tokens, 6);
}

TEST(Bleu, RefusesWhatHasNoReference) {
  EXPECT_THAT([] { bleu({}, {}); }, ThrowsMessage<InvalidArgument>(HasSubstr("needs at least one hypothesis")));
  EXPECT_THAT([] { bleu({"a"}, {}); }, ThrowsMessage<InvalidArgument>(HasSubstr("got 1 and 0")));
  EXPECT_THAT([] { bleu({"a"}, {{}}); }, ThrowsMessage<InvalidArgument>(HasSubstr("sentence 0 has no reference")));
}

}  // namespace
}  // namespace tessera::data
