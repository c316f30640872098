#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "tessera/base/error.h"
#include "tessera/nn/models/translator.h"
#include "tessera/nn/transformer/all_parts.h"
#include "tessera/testing/traced_cells.h"

namespace tessera::nn {
namespace {

using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;
using testing::ThrowsMessage;

const TransformerOptions kSmall{
    .hidden_size = 8, .ffn_hidden_size = 16, .encoder_layers = 1, .decoder_layers = 2, .num_heads = 2};

// What a cell makes of inputs of these types, as text.
std::string text_of(Cell& cell, const std::vector<Type>& types, bool training = false) {
  ir::Graph graph("cell");
  std::vector<Value> inputs;
  for (const Type& type : types) {
    inputs.push_back(graph.add_input(ir::InputKind::kInput, fmt::format("x{}", inputs.size()), type));
  }
  cell.apply_settings({.training = training});
  graph.add_output("y", cell(inputs));
  return ir::print(graph);
}
Type tokens(int64_t n, int64_t t) { return {DType::kF32, {n, t, 8}}; }

TEST(Transformer, ParametersAreNamedAsTheTutorialsNameThem) {
  Transformer net(kSmall);
  const auto names = names_of(net.parameters());
  EXPECT_THAT(names, IsSupersetOf({"encoder.blocks.0.layernorm1.gamma", "encoder.blocks.0.layernorm2.beta",
                                   "encoder.blocks.0.attention.dense1.weight", "encoder.blocks.0.attention.dense3.bias",
                                   "encoder.blocks.0.attention.projection.weight",
                                   "encoder.blocks.0.output.mapping.bias", "encoder.blocks.0.output.projection.weight",
                                   "decoder.blocks.1.cross_attention.dense2.weight",
                                   "decoder.blocks.1.cross_attention_layernorm.gamma"}));
  EXPECT_THAT(names, Not(testing::Contains("encoder.blocks.0.cross_attention_layernorm.gamma")));
  EXPECT_EQ(net.find_parameter("encoder.blocks.0.output.mapping.weight").type.shape, (Shape{8, 16}));
  EXPECT_FALSE(net.find_parameter("encoder.blocks.0.output.projection.bias").parallel_optimizer);
  EXPECT_FALSE(net.find_parameter("encoder.blocks.0.layernorm1.gamma").parallel_optimizer);
  EXPECT_TRUE(net.find_parameter("encoder.blocks.0.attention.dense1.bias").parallel_optimizer);
}

TEST(Transformer, TheDecoderLooksBackWithoutAMaskAndAtAllOfTheMemory) {
  Transformer net(kSmall);
  const auto text = text_of(net, {tokens(2, 5), tokens(2, 3)});
  // The encoder's attention, and of each decoder layer the one to itself and the one to the memory.
  size_t causal = 0;
  size_t all = 0;
  for (size_t at = text.find(" = attention "); at != std::string::npos; at = text.find(" = attention ", at + 1)) {
    const auto line = text.substr(at, text.find('\n', at) - at);
    causal += line.find("{causal,") != std::string::npos ? 1 : 0;
    all += line.find("causal=false") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(causal, 2u);
  EXPECT_EQ(all, 3u);
  EXPECT_THAT(text, HasSubstr("f32[2,3,8]"));
}

TEST(Transformer, TakesMasksOfAllItsAttentions) {
  Transformer net(kSmall);
  const Type masks[] = {{DType::kF32, {2, 5, 5}}, {DType::kF32, {2, 3, 3}}, {DType::kF32, {2, 3, 5}}};
  EXPECT_THAT(text_of(net, {tokens(2, 5), masks[0], tokens(2, 3), masks[1], masks[2]}), Not(HasSubstr("{causal,")));
  EXPECT_THAT(
      [&] {
        text_of(net, {tokens(2, 5), masks[0], tokens(2, 3)});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("got 3 inputs")));
}

TEST(TransformerLayer, AddsToWhatItNormalisesOnlyWithPostLayernormResidual) {
  for (const bool post : {false, true}) {
    TransformerEncoderLayer layer({.hidden_size = 8,
                                   .ffn_hidden_size = 16,
                                   .num_heads = 2,
                                   .hidden_dropout_rate = 0,
                                   .post_layernorm_residual = post});
    const auto text = text_of(layer, {tokens(2, 3)});
    // %1 are the rows, %2 the normalised ones.
    EXPECT_THAT(text, HasSubstr(post ? " = add %2, " : " = add %1, "));
  }
}

TEST(TransformerLayer, DropsOnlyInTraining) {
  TransformerEncoderLayer layer({.hidden_size = 8, .ffn_hidden_size = 16, .num_heads = 2});
  EXPECT_THAT(text_of(layer, {tokens(2, 3)}), Not(HasSubstr("random_step")));
  const auto text = text_of(layer, {tokens(2, 3)}, /*training=*/true);
  EXPECT_THAT(text, HasSubstr("keep_prob=0.9, offset=[], scale=0.5"));
  EXPECT_THAT(text, HasSubstr(" = dropout "));
}

TEST(Transformer, SplitsRowsAndHeadsWhereAConfigurationSaysSo) {
  TransformerLayerOptions options{.hidden_size = 8, .ffn_hidden_size = 16, .num_heads = 2};
  options.parallel = TransformerOpParallelConfig{.data_parallel = 4, .model_parallel = 2};
  TransformerEncoderLayer layer(options);
  const auto text = text_of(layer, {tokens(8, 3), {DType::kF32, {8, 3, 3}}}, /*training=*/true);
  for (const char* shard : {
           "shard ((4,1),(2,1)) @ attention.dense1",
           "shard ((4,2),(2,)) @ attention.dense1",
           "shard ((4,1,2,1),(4,1,2,1),(4,1,2,1),(4,1,1,1),()) @ attention",
           "shard ((4,2),(2,1)) @ attention.projection",
           "shard ((4,1),(1,)) @ attention.projection",
           "shard ((4,1),(1,2)) @ output.mapping",
           "shard ((4,2),) @ output",
           "shard ((4,1),(1,),(1,)) @ layernorm1",
           "shard ((4,1),()) @ attention.dropout.dropout",
       }) {
    EXPECT_THAT(text, HasSubstr(shard));
  }
}

TEST(Transformer, SplitsEachLayerAsItsOwnConfigurationSays) {
  TransformerOptions options{
      .hidden_size = 8, .ffn_hidden_size = 16, .encoder_layers = 2, .decoder_layers = 1, .num_heads = 2};
  options.parallel_of = [](int64_t layer) -> TransformerParallel {
    if (layer == 1) return std::nullopt;
    return TransformerOpParallelConfig{.data_parallel = layer + 1, .model_parallel = layer == 0 ? 2 : 1};
  };
  Transformer network(options);
  const auto text = text_of(network, {tokens(6, 3), tokens(6, 3)});
  EXPECT_THAT(text, HasSubstr("shard ((1,2),(2,1)) @ encoder.blocks.0.attention.projection"));
  EXPECT_THAT(text, Not(testing::ContainsRegex("shard [^@\n]*@ encoder\\.blocks\\.1\\.")));
  EXPECT_THAT(text, HasSubstr("shard ((3,1),(1,1)) @ decoder.blocks.0.attention.projection"));
}

TEST(Transformer, RefusesSizesThatDoNotDivide) {
  EXPECT_THAT(
      [] { MultiHeadAttention({.hidden_size = 10, .num_heads = 3}); },
      ThrowsMessage<InvalidArgument>("MultiHeadAttention: hidden_size must be a multiple of num_heads, got 10 and 3"));
  const TransformerOpParallelConfig by_three{.model_parallel = 3};
  EXPECT_THROW(MultiHeadAttention({.hidden_size = 8, .num_heads = 2, .parallel = by_three}), InvalidArgument);
  EXPECT_THROW(FeedForward({.hidden_size = 9, .ffn_hidden_size = 16, .parallel = by_three}), InvalidArgument);
  EXPECT_THAT([] { FeedForward({.hidden_size = 8, .ffn_hidden_size = 16, .dropout_rate = 1}); },
              ThrowsMessage<InvalidArgument>("FeedForward: dropout_rate must be in [0,1), got 1"));
  EXPECT_THROW(FeedForward({.hidden_size = 8, .ffn_hidden_size = 16, .hidden_act = "swish"}), InvalidArgument);
  EXPECT_THROW(TransformerEncoder({.num_layers = 0, .layer = {.hidden_size = 8, .ffn_hidden_size = 16}}),
               InvalidArgument);
}

TEST(Translator, GivesScoresOfEachNextToken) {
  TranslatorOptions options{.source_vocabulary = 11, .target_vocabulary = 13, .max_length = 6, .transformer = kSmall};
  const auto net = translator(options);
  const auto text = text_of(*net, {{DType::kI32, {2, 5}}, {DType::kI32, {2, 4}}});
  EXPECT_THAT(text, HasSubstr("f32[8,13] @ head"));
  EXPECT_EQ(net->find_parameter("src_embedding.word_embedding.embedding_table").type.shape, (Shape{11, 8}));
  EXPECT_THAT(
      [&] {
        text_of(*net, {{DType::kI32, {2, 7}}, {DType::kI32, {2, 4}}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("more tokens than the 6 that there are positions for")));
}

TEST(Translator, DealsItsLayersToTheStagesThatItIsTold) {
  auto options = kSmall;
  options.encoder_layers = 2;
  options.decoder_layers = 2;
  options.stage_of = [](int64_t layer) { return static_cast<int>(layer); };
  const auto net =
      translator({.source_vocabulary = 11, .target_vocabulary = 13, .max_length = 6, .transformer = options});
  std::map<std::string, int> stages;
  const std::function<void(Cell&)> note = [&](Cell& cell) {
    if (cell.stage() >= 0) stages[cell.path()] = cell.stage();
    for (const auto& [name, child] : cell.children()) note(*child);
  };
  note(*net);
  const std::map<std::string, int> expected = {{"src_embedding", 0},
                                               {"base1.encoder.blocks.0", 0},
                                               {"base1.encoder.blocks.1", 1},
                                               {"tgt_embedding", 2},
                                               {"base1.decoder.blocks.0", 2},
                                               {"base1.decoder.blocks.1", 3},
                                               {"head", 3},
                                               {"loss", 3}};
  EXPECT_EQ(stages, expected);
}

}  // namespace
}  // namespace tessera::nn
