// Encoder, decoder, and both as a Transformer (Vaswani et al., 2017) on embedded tokens.
#pragma once

#include <functional>

#include "tessera/nn/container.h"
#include "tessera/nn/transformer/layers.h"

namespace tessera::nn {

// The pipeline stage of each layer, by its number from 0 on; none: layers name no stage (Cell::set_stage).
using StageOfLayer = std::function<int(int64_t layer)>;
// How a layer's operators are split, by its number from 0 on: where stages have different numbers of ranks, by those of
// its stage. None: all layers are split alike.
using ParallelOfLayer = std::function<TransformerParallel(int64_t layer)>;

struct TransformerStackOptions {
  int64_t num_layers = 0;
  TransformerLayerOptions layer;
  // Layers of the network before the first of these: groups of gradients are counted over all.
  int64_t offset = 0;
  StageOfLayer stage_of = nullptr;
  ParallelOfLayer parallel_of = nullptr;  // in place of layer.parallel
};

// {x [n,t,hidden_size]} and, if given, a mask [n,t,t] -> [n,t,hidden_size]. Parameters: blocks.<i>.* of the layers.
class TransformerEncoder : public Cell {
 public:
  using Options = TransformerStackOptions;
  explicit TransformerEncoder(const TransformerStackOptions& options);
  using Cell::construct;
  Value construct(std::span<const Value> inputs) override;

 private:
  CellList& blocks_;
};

// A TransformerDecoder is several TransformerDecoderLayers, one after the other. Parameters: blocks.<i>.*.
class TransformerDecoder : public Cell {
 public:
  using Options = TransformerStackOptions;
  explicit TransformerDecoder(const TransformerStackOptions& options);
  using Cell::construct;
  Value construct(std::span<const Value> inputs) override;

 private:
  CellList& blocks_;
};

struct TransformerOptions {
  int64_t hidden_size = 0;
  int64_t ffn_hidden_size = 0;
  int64_t encoder_layers = 3;
  int64_t decoder_layers = 3;
  int64_t num_heads = 2;
  double attention_dropout_rate = 0.1;
  double hidden_dropout_rate = 0.1;
  std::string hidden_act = "gelu";
  bool post_layernorm_residual = false;
  TransformerParallel parallel = std::nullopt;
  // The decoder's layers are numbered on from the encoder's, here and below.
  StageOfLayer stage_of = nullptr;
  ParallelOfLayer parallel_of = nullptr;  // in place of `parallel`

  // Returns how a layer is split.
  TransformerParallel parallel_at(int64_t layer) const { return parallel_of ? parallel_of(layer) : parallel; }
};

// {encoder_inputs [n,s,hidden_size], decoder_inputs [n,t,hidden_size]}, or {encoder_inputs, encoder_mask [n,s,s],
// decoder_inputs, decoder_mask [n,t,t]} and, if given, memory_mask [n,t,s] -> what the decoder makes,
// [n,t,hidden_size]. Where there are no masks, the encoder sees all tokens, the decoder the tokens up to its own.
// Parameters: encoder.blocks.<i>.*, decoder.blocks.<i>.*.
class Transformer : public Cell {
 public:
  using Options = TransformerOptions;
  // Throws InvalidArgument as the layers do, and unless there are layers of both kinds.
  explicit Transformer(const TransformerOptions& options);
  using Cell::construct;
  Value construct(std::span<const Value> inputs) override;

 private:
  TransformerEncoder& encoder_;
  TransformerDecoder& decoder_;
};

}  // namespace tessera::nn
