// The operator families; each .cc of ops/defs defines one. Only OpRegistry::instance() calls these.
#pragma once

namespace tessera::ops {

class OpRegistry;

void add_attention(OpRegistry& registry);        // attention.cc: attention, attention_grad
void add_elementwise(OpRegistry& registry);      // elementwise.cc: arithmetic, comparison, logic, select, cast
void add_reductions(OpRegistry& registry);       // reduce.cc: reduce_*, cumsum
void add_all_finite(OpRegistry& registry);       // all_finite.cc
void add_selection(OpRegistry& registry);        // selection.cc: argmax, top_k
void add_shape_ops(OpRegistry& registry);        // shape_ops.cc: reshape, transpose, concat, slices, broadcast, ...
void add_creation(OpRegistry& registry);         // creation.cc: fill, constant, range, random, dropout
void add_custom_gradient(OpRegistry& registry);  // custom_gradient.cc
void add_indexing(OpRegistry& registry);         // indexing.cc: one_hot, gather, scatter_add
void add_matmul(OpRegistry& registry);           // matmul.cc: matmul, batch_matmul, bias_add
void add_convolution(OpRegistry& registry);      // convolution.cc: conv2d and its gradients
void add_pooling(OpRegistry& registry);          // pooling.cc
void add_normalization(OpRegistry& registry);    // normalization.cc: batch_norm*, moving_average
void add_layer_norm(OpRegistry& registry);       // layer_norm.cc
void add_softmax(OpRegistry& registry);          // softmax.cc: softmax, log_softmax, cross entropy
void add_optimizers(OpRegistry& registry);       // optimizer_ops.cc: momentum, sgd, adam and its kin, adagrad, ftrl
void add_update_rows(OpRegistry& registry);      // update_rows.cc: rows of a table, by any of these
void add_collectives(OpRegistry& registry);      // collectives.cc
void add_exchange(OpRegistry& registry);         // exchange.cc
void add_fused(OpRegistry& registry);            // fused.cc: fused_elementwise
void add_fused_norms(OpRegistry& registry);      // fused_batch_norm.cc: batch norms fused with relu and residuals

void add_all_families(OpRegistry& registry);

}  // namespace tessera::ops
