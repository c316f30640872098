#include "tessera/train/translation/beam_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "tessera/base/error.h"
#include "tessera/base/random.h"

namespace tessera::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

// Tokens: 0 unknown, 1 padding, 2 end, 3 begin, 4 and on words.
constexpr int64_t kWords = 7;
constexpr int32_t kEnd = 2;

// Probabilities of the next token by what was chosen so far; what is not listed shares the rest.
using Table = std::map<std::vector<int32_t>, std::map<int32_t, double>>;

Tensor logits_of(const Table& table, const Tensor& prefixes, int64_t length) {
  const int64_t rows = prefixes.shape()[0];
  Tensor scores(DType::kF32, {rows, kWords});
  for (int64_t row = 0; row < rows; ++row) {
    const auto begin = prefixes.values<int32_t>().begin() + row * prefixes.shape()[1];
    const std::vector<int32_t> chosen(begin + 1, begin + length);
    const auto found = table.find(chosen);
    for (int32_t token = 0; token < kWords; ++token) {
      double probability = token == kEnd ? 0.9 : 0.1 / 6;
      if (found != table.end()) {
        const auto listed = found->second.find(token);
        probability = listed == found->second.end() ? 1e-6 : listed->second;
      }
      scores.values<float>()[static_cast<size_t>(row * kWords + token)] = static_cast<float>(std::log(probability)) + 3;
    }
  }
  return scores;
}

std::vector<Decoded> decode_by(const Table& table, const BeamSearchOptions& options, int64_t num_sequences = 1) {
  return beam_search(
      num_sequences, [&](const Tensor& prefixes, int64_t length) { return logits_of(table, prefixes, length); },
      options);
}

// The likelier first word leads to the less likely sentence.
const Table kTrap{{{}, {{4, 0.6}, {5, 0.4}}}, {{4}, {{4, 0.5}, {5, 0.5}}}, {{5}, {{6, 1}}}};

TEST(BeamSearch, OfOneIsGreedy) {
  const auto found = decode_by(kTrap, {.beam_size = 1, .max_length = 5, .length_penalty = 0})[0];
  EXPECT_THAT(found.tokens, ElementsAre(4, 4));
  EXPECT_TRUE(found.is_whole);
  EXPECT_NEAR(found.log_probability, std::log(0.6 * 0.5 * 0.9), 1e-4);
  EXPECT_DOUBLE_EQ(found.score, found.log_probability);
}

TEST(BeamSearch, OfTwoFindsWhatGreedyMisses) {
  const auto found = decode_by(kTrap, {.beam_size = 2, .max_length = 5, .length_penalty = 0})[0];
  EXPECT_THAT(found.tokens, ElementsAre(5, 6));
  EXPECT_NEAR(found.log_probability, std::log(0.4 * 0.9), 1e-4);
}

TEST(BeamSearch, TheLengthPenaltyIsGnmts) {
  // A short sentence that is likelier than a long one, by less than the penalty gives back.
  const Table table{{{}, {{kEnd, 0.3}, {4, 0.7}}}, {{4}, {{5, 0.6}, {6, 0.4}}}, {{4, 5}, {{kEnd, 0.7}, {4, 0.3}}}};
  EXPECT_THAT(decode_by(table, {.beam_size = 4, .max_length = 5, .length_penalty = 0})[0].tokens, IsEmpty());
  const auto found = decode_by(table, {.beam_size = 4, .max_length = 5, .length_penalty = 1})[0];
  EXPECT_THAT(found.tokens, ElementsAre(4, 5));
  EXPECT_NEAR(found.score, std::log(0.7 * 0.6 * 0.7) / (8.0 / 6), 1e-4);
}

TEST(BeamSearch, EndsAtTheGreatestLengthWithoutAnEnd) {
  const Table endless{{{}, {{4, 1}}}, {{4}, {{4, 1}}}, {{4, 4}, {{4, 1}}}};
  const auto found = decode_by(endless, {.beam_size = 1, .max_length = 4})[0];
  EXPECT_THAT(found.tokens, ElementsAre(4, 4, 4));
  EXPECT_FALSE(found.is_whole);
}

TEST(BeamSearch, TakesTheFirstOfEqualCandidates) {
  const Table equal{{{}, {{6, 0.25}, {4, 0.25}, {5, 0.25}}}};
  EXPECT_THAT(decode_by(equal, {.beam_size = 1, .max_length = 3})[0].tokens, ElementsAre(4));
}

// Every sequence of a random model.
double best_score(const Table& table, const BeamSearchOptions& options, std::vector<int32_t>& tokens,
                  double log_probability) {
  double best = -std::numeric_limits<double>::infinity();
  if (std::ssize(tokens) + 1 == options.max_length) return best;
  const auto& row = table.at(tokens);
  double total = 0;
  for (int32_t token = 0; token < kWords; ++token) total += row.contains(token) ? row.at(token) : 1e-6;
  for (const auto& [token, probability] : row) {
    const double own = log_probability + std::log(probability / total);
    if (token == kEnd) {
      best = std::max(best, own / std::pow((5.0 + static_cast<double>(tokens.size()) + 1) / 6, options.length_penalty));
    } else {
      tokens.push_back(token);
      best = std::max(best, best_score(table, options, tokens, own));
      tokens.pop_back();
    }
  }
  return best;
}

void fill_randomly(Table& table, std::vector<int32_t>& tokens, uint64_t& draws, int64_t max_length) {
  if (std::ssize(tokens) + 1 == max_length) return;
  for (const int32_t token : {kEnd, 4, 5, 6}) {
    table[tokens][token] = 0.05 + random_uniform({.seed = 3, .stream = 1}, draws++);
  }
  for (const int32_t token : {4, 5, 6}) {
    tokens.push_back(token);
    fill_randomly(table, tokens, draws, max_length);
    tokens.pop_back();
  }
}

TEST(BeamSearch, ThatIsWideEnoughFindsTheBestOfAllSequences) {
  uint64_t draws = 0;
  for (int model = 0; model < 20; ++model) {
    Table table;
    std::vector<int32_t> tokens;
    fill_randomly(table, tokens, draws, 5);
    for (const double penalty : {0.0, 0.6, 2.0}) {
      const BeamSearchOptions options{.beam_size = 64, .max_length = 5, .length_penalty = penalty};
      const auto found = decode_by(table, options)[0];
      EXPECT_TRUE(found.is_whole);
      EXPECT_NEAR(found.score, best_score(table, options, tokens, 0), 1e-4) << model << " " << penalty;
    }
  }
}

TEST(BeamSearch, SequencesSideBySideAreFoundAsAlone) {
  const auto alone = decode_by(kTrap, {.beam_size = 3, .max_length = 5})[0];
  for (const auto& found : decode_by(kTrap, {.beam_size = 3, .max_length = 5}, 4)) {
    EXPECT_EQ(found.tokens, alone.tokens);
    EXPECT_EQ(found.score, alone.score);
  }
}

TEST(BeamSearch, EndsWithTheTokenThatBeginsWhereBothAreOne) {
  const auto found = decode_by(kTrap, {.beam_size = 1, .max_length = 5, .begin = kEnd, .length_penalty = 0})[0];
  EXPECT_THAT(found.tokens, ElementsAre(4, 4));
  EXPECT_TRUE(found.is_whole);
}

TEST(BeamSearch, NeverChoosesWhatIsRuledOut) {
  const auto only_word_4 = [](const Tensor& prefixes, int64_t) {
    Tensor scores =
        Tensor::full({DType::kF32, {prefixes.shape()[0], kWords}}, -std::numeric_limits<double>::infinity());
    for (int64_t row = 0; row < prefixes.shape()[0]; ++row)
      scores.values<float>()[static_cast<size_t>(row * kWords + 4)] = 0;
    return scores;
  };
  const auto found = beam_search(1, only_word_4, {.beam_size = 3, .max_length = 4})[0];
  EXPECT_THAT(found.tokens, ElementsAre(4, 4, 4));
  EXPECT_FALSE(found.is_whole);
  EXPECT_EQ(found.log_probability, 0);
}

TEST(BeamSearch, RefusesMoreTokensThanItSearches) {
  for (const int64_t beam_size : {int64_t{1} << 30, int64_t{1} << 62}) {
    EXPECT_THAT([&] { decode_by(kTrap, {.beam_size = beam_size, .max_length = 4}, 4); },
                ThrowsMessage<InvalidArgument>(HasSubstr("are more than 268435456 tokens")));
  }
  EXPECT_THAT([&] { decode_by(kTrap, {.max_length = 4, .padding = kEnd}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("end and padding must be two tokens")));
}

TEST(BeamSearch, RefusesWhatDoesNotFit) {
  const auto expect_refusal = [](const BeamSearchOptions& options, const std::string& message) {
    EXPECT_THAT([&] { decode_by(kTrap, options); }, ThrowsMessage<InvalidArgument>(HasSubstr(message)));
  };
  expect_refusal({.beam_size = 0, .max_length = 4}, "a beam_size of at least 1, got 1 and 0");
  expect_refusal({.max_length = 1}, "max_length must be at least 2");
  expect_refusal({.max_length = 4, .length_penalty = -1}, "length_penalty must be at least 0, got -1");
  const auto with = [](const Tensor& scores) {
    beam_search(1, [&](const Tensor&, int64_t) { return scores; }, {.beam_size = 1, .max_length = 3});
  };
  EXPECT_THAT(
      [&] {
        with(Tensor(DType::kF32, {2, kWords}));
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("scores must be f32[1,vocabulary], are f32[2,7]")));
  Tensor nan(DType::kF32, {1, kWords});
  std::fill(nan.values<float>().begin(), nan.values<float>().end(), std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT([&] { with(nan); }, ThrowsMessage<InvalidArgument>(HasSubstr("scores must be finite")));
}

}  // namespace
}  // namespace tessera::train
