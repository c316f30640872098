// What Transformers are written with. The cells take tokens [n,t,hidden_size]:
//
//   struct Translator : nn::Cell {
//     nn::TokenEmbedding& source = child<nn::TokenEmbedding>("source", kEmbedding);
//     nn::TokenEmbedding& target = child<nn::TokenEmbedding>("target", kEmbedding);
//     nn::Transformer& transformer = child<nn::Transformer>("transformer", kTransformer);
//     nn::Dense& head = child<nn::Dense>("head", 512, 20000);
//     Value construct(Value source_ids, Value target_ids) override {
//       const Value inputs[] = {source(source_ids), target(target_ids)};
//       return head(ops::reshape(transformer(inputs), {-1, 512}));
//     }
//   };
#pragma once

#include "tessera/nn/transformer/attention.h"     // IWYU pragma: export
#include "tessera/nn/transformer/embedding.h"     // IWYU pragma: export
#include "tessera/nn/transformer/feed_forward.h"  // IWYU pragma: export
#include "tessera/nn/transformer/layers.h"        // IWYU pragma: export
#include "tessera/nn/transformer/loss.h"          // IWYU pragma: export
#include "tessera/nn/transformer/parallel.h"      // IWYU pragma: export
#include "tessera/nn/transformer/transformer.h"   // IWYU pragma: export
#include "tessera/nn/transformer/variants.h"      // IWYU pragma: export
