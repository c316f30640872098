// A translator that has learned a tiny language: trained, searched, and spread over ranks.
#include "tessera/train/translation/translate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tessera/base/error.h"
#include "tessera/data/batch_iterator.h"
#include "tessera/data/text/translation.h"
#include "tessera/nn/models/translator.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/testing/run_ranks.h"

namespace tessera::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kLength = 5;

// Three words out of four, turned around and spelled otherwise.
std::vector<data::SentencePair> pairs() {
  const std::vector<std::string> words{"a", "b", "c", "d"};
  const std::vector<std::string> translated{"w", "x", "y", "z"};
  std::vector<data::SentencePair> all;
  for (size_t i = 0; i < 64; ++i) {
    const size_t one = i % 4;
    const size_t two = i / 4 % 4;
    const size_t three = i / 16;
    all.push_back({words[one] + " " + words[two] + " " + words[three],
                   translated[three] + " " + translated[two] + " " + translated[one]});
  }
  return all;
}

data::Vocabulary vocabulary(std::string data::SentencePair::*side) {
  std::vector<std::string> sentences;
  for (const auto& pair : pairs()) sentences.push_back(pair.*side);
  return data::Vocabulary::build(sentences);
}

// What ranks train together, and what they then say of three sentences.
struct Trained {
  double loss = 0;
  std::vector<std::string> greedy, beam;
};

// `counts`: how many ranks each stage of a pipeline has; {}: there are no stages. Each shares its layers among all of
// its ranks.
Trained train_on(int ranks, const ModelOptions& options, const nn::TransformerParallel& parallel, int64_t epochs,
                 const std::vector<int>& counts = {}) {
  nn::StageOfLayer stage_of;
  nn::ParallelOfLayer parallel_of;
  if (!counts.empty()) {
    stage_of = [](int64_t layer) { return static_cast<int>(layer); };
    parallel_of = [counts](int64_t layer) {
      return nn::TransformerOpParallelConfig{.model_parallel = counts[static_cast<size_t>(layer)]};
    };
  }
  Trained trained;
  std::mutex mutex;
  run_ranks(ranks, [&](cluster::Context& context) {
    const auto source = vocabulary(&data::SentencePair::source);
    const auto target = vocabulary(&data::SentencePair::target);
    const auto network = nn::translator({.source_vocabulary = source.size(),
                                         .target_vocabulary = target.size(),
                                         .max_length = kLength,
                                         .padding = data::Vocabulary::kPadding,
                                         .transformer = {.hidden_size = 32,
                                                         .ffn_hidden_size = 64,
                                                         .encoder_layers = 1,
                                                         .decoder_layers = 1,
                                                         .num_heads = 4,
                                                         .attention_dropout_rate = 0,
                                                         .hidden_dropout_rate = 0,
                                                         .parallel = parallel,
                                                         .stage_of = stage_of,
                                                         .parallel_of = parallel_of}});
    nn::Adam adam({.learning_rate = 3e-3});
    Model model(context, *network, nullptr, &adam, options);
    const auto rows =
        data::translation(pairs(), source, target, {.source_length = kLength, .target_length = kLength, .seed = 1})
            .batch(16);
    model.train(epochs, rows);
    auto batches = rows.batches();
    const auto batch = *batches.next();
    const double loss = model.predict(batch).to_doubles()[0];
    const auto say = [&](int64_t beam_size) {
      std::vector<std::string> said;
      const Tensor sources = data::source_rows({"a b c", "d d a", "c a b"}, source, kLength);
      for (const auto& found :
           translate(model, sources, {.search = {.beam_size = beam_size, .max_length = kLength}, .batch_size = 2})) {
        said.push_back(target.sentence(found.tokens));
      }
      return said;
    };
    const Trained own{loss, say(1), say(3)};
    const std::lock_guard lock(mutex);
    if (context.rank() == 0) trained = own;
  });
  return trained;
}

TEST(Translate, SaysWhatWasLearned) {
  const auto trained = train_on(1, {.seed = 3, .session = {.num_threads = 1}}, std::nullopt, 120);
  EXPECT_LT(trained.loss, 0.1);
  EXPECT_THAT(trained.greedy, ElementsAre("y x w", "w z z", "x w y"));
  EXPECT_THAT(trained.beam, ElementsAre("y x w", "w z z", "x w y"));
}

TEST(Translate, SaysTheSameOnFourRanksAsOnOne) {
  const auto alone = train_on(1, {.seed = 3, .session = {.num_threads = 1}}, std::nullopt, 8);
  const auto data_parallel = train_on(
      4, {.parallel_mode = ParallelMode::kDataParallel, .seed = 3, .session = {.num_threads = 1}}, std::nullopt, 8);
  const auto split = train_on(4,
                              {.parallel_mode = ParallelMode::kSemiAuto,
                               .full_batch = true,
                               .parallel_optimizer = true,
                               .parallel_optimizer_threshold = 0,
                               .seed = 3,
                               .session = {.num_threads = 1}},
                              nn::TransformerOpParallelConfig{.data_parallel = 2, .model_parallel = 2}, 8);
  for (const Trained& spread : std::vector<Trained>{data_parallel, split}) {
    EXPECT_NEAR(spread.loss, alone.loss, 1e-4 * alone.loss);
    EXPECT_EQ(spread.greedy, alone.greedy);
    EXPECT_EQ(spread.beam, alone.beam);
  }
}

TEST(Translate, SaysTheSameOnStagesThatShareLayersAmongTheirOwnRanks) {
  const auto alone = train_on(1, {.seed = 3, .session = {.num_threads = 1}}, std::nullopt, 8);
  for (const auto& counts : std::vector<std::vector<int>>{{2, 1}, {1, 2}}) {
    const auto spread = train_on(3,
                                 {.parallel_mode = ParallelMode::kPipeline,
                                  .pipeline = {.stages = 2,
                                               .ranks = counts,
                                               .micro_batches = 2,
                                               .schedule = "1f1b",
                                               .profile = compiler::example_profile()},
                                  .seed = 3,
                                  .session = {.num_threads = 1}},
                                 std::nullopt, 8, counts);
    EXPECT_NEAR(spread.loss, alone.loss, 1e-4 * alone.loss) << counts[0];
    EXPECT_EQ(spread.greedy, alone.greedy) << counts[0];
    EXPECT_EQ(spread.beam, alone.beam) << counts[0];
  }
}

TEST(Translate, RefusesSourcesThatAreNoRowsOfIds) {
  run_ranks(1, [&](cluster::Context& context) {
    const auto network = nn::translator(
        {.source_vocabulary = 5,
         .target_vocabulary = 5,
         .transformer = {.hidden_size = 8, .ffn_hidden_size = 8, .encoder_layers = 1, .decoder_layers = 1}});
    Model model(context, *network, nullptr, nullptr);
    EXPECT_THAT(
        [&] {
          translate(model, Tensor(DType::kF32, {1, 4}), {});
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("sources must be i32[n,s], are f32[1,4]")));
    EXPECT_THAT(
        [&] {
          translate(model, Tensor(DType::kI32, {1, 4}), {.batch_size = 0});
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("batch_size must be at least 1")));
    EXPECT_THAT(
        [&] {
          translate(model, Tensor(DType::kI32, {1, 4}), {});
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("max_length must be at least 2")));
  });
}

}  // namespace
}  // namespace tessera::train
