#include "tessera/nn/models/translator.h"

#include "tessera/base/error.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/transformer/attention.h"
#include "tessera/nn/transformer/embedding.h"
#include "tessera/nn/transformer/loss.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

// Of the embedding that a layer reads.
TokenEmbeddingOptions embedding_options(const TranslatorOptions& options, int64_t vocabulary, int64_t layer) {
  return {.vocab_size = vocabulary,
          .max_length = options.max_length,
          .embedding_size = options.transformer.hidden_size,
          .dropout_rate = options.transformer.hidden_dropout_rate,
          .parallel = options.transformer.parallel_at(layer)};
}

class Translator : public Cell {
 public:
  explicit Translator(const TranslatorOptions& options)
      : options_(options),
        source_(child<TokenEmbedding>("src_embedding", embedding_options(options, options.source_vocabulary, 0))),
        target_(child<TokenEmbedding>("tgt_embedding", embedding_options(options, options.target_vocabulary,
                                                                         options.transformer.encoder_layers))),
        base_(child<Transformer>("base1", options.transformer)),
        head_(child<Dense>("head", options.transformer.hidden_size, options.target_vocabulary,
                           DenseOptions{.weight_init = "xavier_uniform", .has_bias = false})),
        loss_(child<CrossEntropyLoss>("loss", of_last())) {
    if (const auto& stage_of = options.transformer.stage_of) {
      const int64_t encoder_layers = options.transformer.encoder_layers;
      source_.set_stage(stage_of(0));
      target_.set_stage(stage_of(encoder_layers));
      const int last = stage_of(encoder_layers + options.transformer.decoder_layers - 1);
      head_.set_stage(last);
      loss_.set_stage(last);
    }
    if (const auto parallel = of_last()) {
      head_.shard("matmul", {{parallel->data_parallel, 1}, {parallel->model_parallel, 1}});
    }
  }
  using Cell::construct;
  Value construct(Value source, Value target) override {
    std::vector<Value> inputs{source_(source), target_(target)};
    if (options_.padding) {
      const int64_t length = target.shape()[1];
      const auto encoder = options_.transformer.parallel_at(0);
      const auto decoder = options_.transformer.parallel_at(options_.transformer.encoder_layers);
      const Value words = seen(source, source.shape()[1], encoder);
      const Value earlier = times(seen(target, length, decoder), up_to_each(graph(), length), decoder);
      inputs = {inputs[0], words, inputs[1], earlier, seen(source, length, decoder)};
    }
    const Value tokens = base_(inputs);
    return head_(ops::reshape(tokens, {-1, tokens.shape().back()}));
  }
  Value construct(std::span<const Value> inputs) override {
    if (inputs.size() != 3) {
      throw InvalidArgument("a translator takes source, target and, for its loss, label; got {} inputs", inputs.size());
    }
    std::vector<Value> predicted{construct(inputs[0], inputs[1]), inputs[2]};
    if (options_.padding) predicted.push_back(present(inputs[1], of_last()));
    return loss_(predicted);
  }

 private:
  TransformerParallel of_last() const {
    const auto& transformer = options_.transformer;
    return transformer.parallel_at(transformer.encoder_layers + transformer.decoder_layers - 1);
  }
  // Masks are split as those who read them.
  // f32[n,t] of ids [n,t]: 1 where there is a token.
  Value present(Value ids, const TransformerParallel& parallel) const {
    const Value none = ops::fill(graph(), {1, 1}, *options_.padding, ids.dtype());
    const Value tokens = split(parallel, ops::not_equal(ids, none), [](int64_t data, int64_t) {
      return mesh::Strategy{{data, 1}, {1, 1}};
    });
    return split(parallel, ops::cast(tokens, DType::kF32), [](int64_t data, int64_t) {
      return mesh::Strategy{{data, 1}};
    });
  }
  // f32[n,rows,t] of ids [n,t]: what each of so many queries sees of them, all the tokens.
  Value seen(Value ids, int64_t rows, const TransformerParallel& parallel) const {
    const Value keys = split(parallel, ops::expand_dims(present(ids, parallel), {1}), [](int64_t data, int64_t) {
      return mesh::Strategy{{data, 1}};
    });
    return times(keys, ops::fill(graph(), {1, rows, 1}, 1, DType::kF32), parallel);
  }
  // A product of rows of the batch and what is the same for all of them.
  Value times(Value rows, Value common, const TransformerParallel& parallel) const {
    return split(parallel, ops::mul(rows, common), [](int64_t data, int64_t) {
      return mesh::Strategy{{data, 1, 1}, {1, 1, 1}};
    });
  }

  TranslatorOptions options_;
  TokenEmbedding& source_;
  TokenEmbedding& target_;
  Transformer& base_;
  Dense& head_;
  CrossEntropyLoss& loss_;
};

}  // namespace

std::unique_ptr<Cell> translator(const TranslatorOptions& options) { return std::make_unique<Translator>(options); }

}  // namespace tessera::nn
