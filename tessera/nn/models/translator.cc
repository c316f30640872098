#include "tessera/nn/models/translator.h"

#include "tessera/nn/linear.h"
#include "tessera/nn/transformer/embedding.h"
#include "tessera/ops/functions.h"

namespace tessera::nn {
namespace {

TokenEmbeddingOptions embedding_options(const TranslatorOptions& options, int64_t vocabulary) {
  return {.vocab_size = vocabulary,
          .max_length = options.max_length,
          .embedding_size = options.transformer.hidden_size,
          .dropout_rate = options.transformer.hidden_dropout_rate,
          .parallel = options.transformer.parallel};
}

class Translator : public Cell {
 public:
  explicit Translator(const TranslatorOptions& options)
      : source_(child<TokenEmbedding>("src_embedding", embedding_options(options, options.source_vocabulary))),
        target_(child<TokenEmbedding>("tgt_embedding", embedding_options(options, options.target_vocabulary))),
        base_(child<Transformer>("base1", options.transformer)),
        head_(child<Dense>("head", options.transformer.hidden_size, options.target_vocabulary,
                           DenseOptions{.weight_init = "xavier_uniform", .has_bias = false})) {
    if (const auto& parallel = options.transformer.parallel) {
      head_.shard("matmul", {{parallel->data_parallel, 1}, {parallel->model_parallel, 1}});
    }
  }
  using Cell::construct;
  Value construct(Value source, Value target) override {
    const Value inputs[] = {source_(source), target_(target)};
    const Value tokens = base_(inputs);
    return head_(ops::reshape(tokens, {-1, tokens.shape().back()}));
  }

 private:
  TokenEmbedding& source_;
  TokenEmbedding& target_;
  Transformer& base_;
  Dense& head_;
};

}  // namespace

std::unique_ptr<Cell> translator(const TranslatorOptions& options) { return std::make_unique<Translator>(options); }

}  // namespace tessera::nn
