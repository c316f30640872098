#include "tessera/nn/transformer/transformer.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ir/cell_name.h"

namespace tessera::nn {
namespace {

TransformerLayerOptions layer_options(const TransformerOptions& options) {
  return {.hidden_size = options.hidden_size,
          .ffn_hidden_size = options.ffn_hidden_size,
          .num_heads = options.num_heads,
          .attention_dropout_rate = options.attention_dropout_rate,
          .hidden_dropout_rate = options.hidden_dropout_rate,
          .hidden_act = options.hidden_act,
          .post_layernorm_residual = options.post_layernorm_residual,
          .parallel = options.parallel};
}

// The gradients of num_layers / gradient_aggregation_group neighbouring layers, rounded down, travel together.
template <typename Layer>
void append_layers(const char* who, CellList& blocks, const TransformerStackOptions& options) {
  if (options.num_layers < 1) throw InvalidArgument("{}: needs at least one layer, got {}", who, options.num_layers);
  for (int64_t i = 0; i < options.num_layers; ++i) {
    auto own = options.layer;
    if (options.parallel_of) own.parallel = options.parallel_of(i);
    auto& layer = blocks.append<Layer>(own);
    if (options.stage_of) layer.set_stage(options.stage_of(i));
    if (!own.parallel) continue;
    const int64_t groups = own.parallel->gradient_aggregation_group;
    if (groups < 1) throw InvalidArgument("{}: gradient_aggregation_group must be at least 1, got {}", who, groups);
    const int64_t layers_per_group = std::max<int64_t>(options.num_layers / groups, 1);
    layer.set_comm_fusion(static_cast<int>((options.offset + i) / layers_per_group) + 1);
  }
}

// The layers from `first` on.
TransformerStackOptions stack_options(const TransformerOptions& options, int64_t num_layers, int64_t first) {
  TransformerStackOptions stack{.num_layers = num_layers, .layer = layer_options(options), .offset = first};
  if (options.stage_of) {
    stack.stage_of = [stage_of = options.stage_of, first](int64_t layer) { return stage_of(first + layer); };
  }
  if (options.parallel_of) {
    stack.parallel_of = [parallel_of = options.parallel_of, first](int64_t layer) {
      return parallel_of(first + layer);
    };
  }
  return stack;
}

}  // namespace

TransformerEncoder::TransformerEncoder(const TransformerStackOptions& options) : blocks_(child<CellList>("blocks")) {
  append_layers<TransformerEncoderLayer>("TransformerEncoder", blocks_, options);
}

Value TransformerEncoder::construct(std::span<const Value> inputs) {
  std::vector<Value> operands(inputs.begin(), inputs.end());
  for (int i = 0; i < blocks_.size(); ++i) operands[0] = blocks_[i](operands);
  return operands[0];
}

TransformerDecoder::TransformerDecoder(const TransformerStackOptions& options) : blocks_(child<CellList>("blocks")) {
  append_layers<TransformerDecoderLayer>("TransformerDecoder", blocks_, options);
}

Value TransformerDecoder::construct(std::span<const Value> inputs) {
  std::vector<Value> operands(inputs.begin(), inputs.end());
  for (int i = 0; i < blocks_.size(); ++i) operands[0] = blocks_[i](operands);
  return operands[0];
}

Transformer::Transformer(const TransformerOptions& options)
    : encoder_(child<TransformerEncoder>("encoder", stack_options(options, options.encoder_layers, 0))),
      decoder_(child<TransformerDecoder>("decoder",
                                         stack_options(options, options.decoder_layers, options.encoder_layers))) {}

Value Transformer::construct(std::span<const Value> inputs) {
  if (inputs.size() == 2) {
    const std::vector<Value> operands = {inputs[1], encoder_(inputs[0])};
    return decoder_(operands);
  }
  if (inputs.size() != 4 && inputs.size() != 5) {
    throw InvalidArgument(
        "cell \"{}\" takes the inputs of encoder and decoder, each followed by its mask or none, and, if wanted, the "
        "memory's mask; got {} inputs",
        ir::cell_name(path()), inputs.size());
  }
  std::vector<Value> operands = {inputs[2], encoder_(inputs[0], inputs[1]), inputs[3]};
  if (inputs.size() == 5) operands.push_back(inputs[4]);
  return decoder_(operands);
}

}  // namespace tessera::nn
