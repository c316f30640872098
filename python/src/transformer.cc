// What Transformers are written with.
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "python/src/bind.h"
#include "python/src/cells.h"
#include "python/src/helped_module.h"

namespace tessera::python {
namespace {

void bind_parallel_config(nb::module_& m) {
  using Config = nn::TransformerOpParallelConfig;
  nb::class_<Config>(m, "TransformerOpParallelConfig",
                     R"(How a Transformer's operators are split where a plan heeds strategies.

Rows of the batch into data_parallel parts, heads and inner features into model_parallel parts. vocab_emb_dp: the embedding's
table is whole on each rank, else its rows are split. gradient_aggregation_group: layers are cut into so many groups whose
gradients travel together.)")
      .def(
          "__init__",
          [](Config* self, int64_t data, int64_t model, bool vocab, int64_t groups) {
            new (self) Config{data, model, vocab, groups};
          },
          "data_parallel"_a = 1, "model_parallel"_a = 1, "vocab_emb_dp"_a = true, "gradient_aggregation_group"_a = 4)
      .def_ro("data_parallel", &Config::data_parallel)
      .def_ro("model_parallel", &Config::model_parallel)
      .def_ro("vocab_emb_dp", &Config::vocab_emb_dp)
      .def_ro("gradient_aggregation_group", &Config::gradient_aggregation_group);
}

void bind_embeddings(nb::module_& m) {
  nb::class_<nn::VocabEmbedding, nn::Cell>(m, "VocabEmbedding",
                                           R"(ids i32 or i64 [n,t] -> rows of the table [n,t,embedding_size].

An id outside [0, vocab_size) raises InvalidArgument. Parameter: embedding_table [vocab_size, embedding_size].)")
      .def(
          "__init__",
          [](nn::VocabEmbedding* self, int64_t vocab, int64_t size, nb::handle init,
             const nn::TransformerParallel& parallel) {
            new (self) nn::VocabEmbedding(vocab, size, {.param_init = to_init(init), .parallel = parallel});
          },
          "vocab_size"_a, "embedding_size"_a, "param_init"_a = "normal", "parallel"_a = nb::none());
  nb::class_<nn::TokenEmbedding, nn::Cell>(
      m, "TokenEmbedding",
      R"(ids [n,t], t <= max_length -> dropout(word + position) [n,t,embedding_size].

Parameters: word_embedding.embedding_table, position_embedding.embedding_table.)")
      .def(
          "__init__",
          [](nn::TokenEmbedding* self, int64_t vocab, int64_t length, int64_t size, double rate, nb::handle init,
             const nn::TransformerParallel& parallel) {
            new (self) nn::TokenEmbedding({.vocab_size = vocab,
                                           .max_length = length,
                                           .embedding_size = size,
                                           .dropout_rate = rate,
                                           .param_init = to_init(init),
                                           .parallel = parallel});
          },
          "vocab_size"_a, "max_length"_a, "embedding_size"_a, "dropout_rate"_a = 0.0, "param_init"_a = "normal",
          "parallel"_a = nb::none());
}

void bind_attention(nb::module_& m) {
  nb::class_<nn::MultiHeadAttention, nn::Cell>(m, "MultiHeadAttention",
                                               R"((query [n,t,hidden], key, value [n,s,hidden], mask?) -> [n,t,hidden].

A mask [n,t,s] or [n,1,t,s] is 1 where a query sees a key, else 0. causal: without a mask, query i sees the keys 0 to i only.
Parameters: dense1, dense2, dense3 (queries, keys, values) and projection, each .weight and .bias. Vaswani et al., 2017.)")
      .def(
          "__init__",
          [](nn::MultiHeadAttention* self, int64_t hidden, int64_t heads, double hidden_rate, double attention_rate,
             bool causal, const nn::TransformerParallel& parallel) {
            new (self) nn::MultiHeadAttention({hidden, heads, hidden_rate, attention_rate, causal, parallel});
          },
          "hidden_size"_a, "num_heads"_a, "hidden_dropout_rate"_a = 0.1, "attention_dropout_rate"_a = 0.1,
          "causal"_a = false, "parallel"_a = nb::none());
  nb::class_<nn::AttentionMask, nn::Cell>(
      m, "AttentionMask",
      "mask [n,t], not 0 where there is a token -> f32[n,t,t], 1 where both are and the column is not after the row.")
      .def(nb::init<int64_t, const nn::TransformerParallel&>(), "seq_length"_a, "parallel"_a = nb::none());
  nb::class_<nn::FeedForward, nn::Cell>(m, "FeedForward",
                                        R"(x [n,t,hidden] -> dropout(act(x M + b) P + c), the same shape.

Parameters: mapping.weight [hidden, ffn_hidden], mapping.bias, projection.weight [ffn_hidden, hidden], projection.bias.)")
      .def(
          "__init__",
          [](nn::FeedForward* self, int64_t hidden, int64_t inner, double rate, const std::string& act,
             const nn::TransformerParallel& parallel) {
            new (self) nn::FeedForward({hidden, inner, rate, act, parallel});
          },
          "hidden_size"_a, "ffn_hidden_size"_a, "dropout_rate"_a = 0.1, "hidden_act"_a = "gelu",
          "parallel"_a = nb::none());
}

template <typename Layer>
void bind_layer(nb::module_& m, const char* name, const char* doc) {
  nb::class_<Layer, nn::Cell>(m, name, doc)
      .def(
          "__init__",
          [](Layer* self, int64_t hidden, int64_t inner, int64_t heads, double attention_rate, double hidden_rate,
             const std::string& act, bool post, const nn::TransformerParallel& parallel) {
            new (self) Layer({hidden, inner, heads, attention_rate, hidden_rate, act, post, parallel});
          },
          "hidden_size"_a, "ffn_hidden_size"_a, "num_heads"_a = 2, "attention_dropout_rate"_a = 0.1,
          "hidden_dropout_rate"_a = 0.1, "hidden_act"_a = "gelu", "post_layernorm_residual"_a = false,
          "parallel"_a = nb::none());
}

template <typename Stack>
void bind_stack(nb::module_& m, const char* name, const char* doc) {
  nb::class_<Stack, nn::Cell>(m, name, doc)
      .def(
          "__init__",
          [](Stack* self, int64_t layers, int64_t hidden, int64_t inner, int64_t heads, double attention_rate,
             double hidden_rate, const std::string& act, bool post, const nn::TransformerParallel& parallel,
             const nn::StageOfLayer& stage_of, const nn::ParallelOfLayer& parallel_of) {
            new (self) Stack({.num_layers = layers,
                              .layer = {hidden, inner, heads, attention_rate, hidden_rate, act, post, parallel},
                              .stage_of = stage_of,
                              .parallel_of = parallel_of});
          },
          "num_layers"_a, "hidden_size"_a, "ffn_hidden_size"_a, "num_heads"_a = 2, "attention_dropout_rate"_a = 0.1,
          "hidden_dropout_rate"_a = 0.1, "hidden_act"_a = "gelu", "post_layernorm_residual"_a = false,
          "parallel"_a = nb::none(), "stage_of"_a = nb::none(), "parallel_of"_a = nb::none());
}

void bind_layers_of_transformer(nb::module_& m) {
  bind_layer<nn::TransformerEncoderLayer>(
      m, "TransformerEncoderLayer",
      "(x [n,t,hidden], mask?) -> the same shape. Parameters: layernorm1, layernorm2, attention.*, output.*.");
  bind_layer<nn::TransformerDecoderLayer>(m, "TransformerDecoderLayer",
                                          R"((x [n,t,hidden], memory [n,s,hidden], mask?, memory_mask?) -> [n,t,hidden].

Without a mask token i sees the tokens 0 to i only. Parameters: those of the encoder's layer, cross_attention.* and
cross_attention_layernorm.*.)");
  bind_stack<nn::TransformerEncoder>(
      m, "TransformerEncoder", R"((x [n,t,hidden], mask?) -> the same shape. Parameters: blocks.<i>.* of the layers.

stage_of(layer) is the pipeline stage of a layer, numbered from 0 on; parallel_of(layer) says how it is split, in place of parallel.)");
  bind_stack<nn::TransformerDecoder>(m, "TransformerDecoder",
                                     "As TransformerDecoderLayer, several times. Parameters: blocks.<i>.*.");
  nb::class_<nn::Transformer, nn::Cell>(m, "Transformer",
                                        R"((encoder_inputs [n,s,hidden], decoder_inputs [n,t,hidden]) -> [n,t,hidden].

Or (encoder_inputs, encoder_mask [n,s,s], decoder_inputs, decoder_mask [n,t,t], memory_mask? [n,t,s]). Without masks the encoder
sees all tokens, the decoder those up to its own. Parameters: encoder.blocks.<i>.*, decoder.blocks.<i>.*.

stage_of(layer) is the pipeline stage of a layer; the decoder's are numbered on from the encoder's. parallel_of(layer) says how it
is split, in place of parallel: where stages have different numbers of ranks, by those of its stage.)")
      .def(
          "__init__",
          [](nn::Transformer* self, int64_t hidden, int64_t inner, int64_t encoder, int64_t decoder, int64_t heads,
             double attention_rate, double hidden_rate, const std::string& act, bool post,
             const nn::TransformerParallel& parallel, const nn::StageOfLayer& stage_of,
             const nn::ParallelOfLayer& parallel_of) {
            new (self) nn::Transformer({hidden, inner, encoder, decoder, heads, attention_rate, hidden_rate, act, post,
                                        parallel, stage_of, parallel_of});
          },
          "hidden_size"_a, "ffn_hidden_size"_a, "encoder_layers"_a = 3, "decoder_layers"_a = 3, "num_heads"_a = 2,
          "attention_dropout_rate"_a = 0.1, "hidden_dropout_rate"_a = 0.1, "hidden_act"_a = "gelu",
          "post_layernorm_residual"_a = false, "parallel"_a = nb::none(), "stage_of"_a = nb::none(),
          "parallel_of"_a = nb::none());
  nb::class_<nn::CrossEntropyLoss, nn::Cell>(m, "CrossEntropyLoss",
                                             R"((logits [n,v], label i32, mask?) -> f32[].

sum(mask * -log softmax(logits)[label]) / (sum(mask) + 1e-5); without a mask the mean. label and mask have n elements.)")
      .def(nb::init<const nn::TransformerParallel&>(), "parallel"_a = nb::none());
}

void bind_variants(nb::module_& m) {
  nb::class_<nn::RmsNorm, nn::Cell>(
      m, "RmsNorm", "x [...,c] -> gamma * x / sqrt(mean of x^2 + eps): Zhang and Sennrich, 2019. Parameter: gamma [c].")
      .def(nb::init<int64_t, double>(), "features"_a, "eps"_a = 1e-6);
  nb::class_<nn::SwiGlu, nn::Cell>(m, "SwiGlu", R"(x [n,c] -> (silu(x G) * (x U)) D: Shazeer, 2020.

Parameters: gate.weight and up.weight [inner_features, c], down.weight [c, inner_features].)")
      .def(
          "__init__",
          [](nn::SwiGlu* self, int64_t features, int64_t inner, nb::handle init) {
            new (self) nn::SwiGlu(features, inner, to_init(init));
          },
          "features"_a, "inner_features"_a, "weight_init"_a = "normal");
  helped(m).def(
      "rotary_positions",
      [](nb::handle x, double base) {
        Operation operation;
        return operation.finish(nn::rotary_positions(operation.value(x), base));
      },
      "x"_a, "base"_a = 10000.0,
      "x [n,t,heads,d], d even: the features i and i + d/2 of token p turned by p * base^(-2i/d): Su et al., 2021.");
}

}  // namespace

void bind_transformer(nb::module_& m) {
  bind_parallel_config(m);
  bind_embeddings(m);
  bind_attention(m);
  bind_layers_of_transformer(m);
  bind_variants(m);
}

}  // namespace tessera::python
