// Translations by a model whose network takes {source, target}, as nn::translator() makes it.
#pragma once

#include <vector>

#include "tessera/train/model.h"
#include "tessera/train/translation/beam_search.h"

namespace tessera::train {

struct TranslateOptions {
  BeamSearchOptions search;
  int64_t batch_size = 32;  // sentences that are searched side by side
};

// A translation of each row of `sources` i32[n,s]. Each step computes the whole network again on [batch_size *
// beam_size] rows of max_length tokens: no keys and values are kept between steps, so that a search of t steps costs t
// forward passes, of one shape and therefore of one compiled step. Every rank that predict() asks calls it, and gets
// all translations. Throws InvalidArgument as beam_search() and Model::predict() do, and where the network does not
// give logits [n*t,vocabulary] or [n,t,vocabulary].
std::vector<Decoded> translate(Model& model, const Tensor& sources, const TranslateOptions& options);

}  // namespace tessera::train
