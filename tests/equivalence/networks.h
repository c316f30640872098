// Small networks that plans are tried on: float64 throughout, sizes that no number of ranks divides everywhere.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/data/batch_iterator.h"
#include "tessera/nn/cell.h"
#include "tessera/nn/transformer/parallel.h"
#include "tessera/tensor/tensor.h"

namespace tessera::equivalence {

// "mlp": two layers; x [n,12]. "resnet": convolutions with batch norm, a residual, pooling; x [n,3,8,8].
// "transformer": embedding, one block of attention and feed-forward with layer norm, mean over time; x i32[n,6].
// "recurrent": filters over sequences, an LSTM in both directions, a GRU, transposed filters; x [n,5,6].
// "translator": encoder and decoder with dropout, mean over time, split as `parallel` says; x i32[n,6].
// "gpt": the built-in one, of two blocks, with words shared by table and head; mean over time; x i32[n,6].
// "resnet50": the built-in one; x [n,3,8,8].
// "clicks": tables of more rows than a batch looks up, one of them looked up twice, and a layer on what they give; x
// i32[n,3].
// All give logits [n,10]. The first three are `scale` times as wide, the mlp's inputs, too.
std::unique_ptr<nn::Cell> make_network(const std::string& name, DType dtype,
                                       const nn::TransformerParallel& parallel = std::nullopt, int64_t scale = 1);

// The inputs (x, label) of a step: seeded, the same on every rank.
std::vector<Tensor> make_batch(const std::string& network, int64_t rows, int64_t step, DType dtype, int64_t scale = 1);

}  // namespace tessera::equivalence
