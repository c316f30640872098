#include <algorithm>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/compiler/passes/fused_program.h"
#include "tessera/compiler/passes/node_order.h"
#include "tessera/compiler/passes/passes.h"
#include "tessera/compiler/passes/rewrite.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/tensor/element_op.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;

// What a product can take along: the kernel applies it to each element before it is written.
bool is_epilogue(const Graph& graph, const Node& node) {
  const auto name = program_op(graph, node);
  const auto op = name ? find_element_op(*name) : std::nullopt;
  return node.op == "bias_add" || (op && info_of(*op).follows_matmul);
}

bool is_fused_dtype(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

// Whether a chain, node by node, is still what libraries do with a product: see fuse_matmul_epilogues().
class LibraryEpilogue {
 public:
  // Takes the node that reads `v`, the end of the chain, or says no.
  bool take(const Graph& graph, const Node& node, ValueId v) {
    const Type& type = graph.type(v);
    if (has_gelu_ || !(graph.type(node.outputs[0]) == type)) return false;
    const auto name = program_op(graph, node);
    if (name == "gelu_tanh") return has_gelu_ = is_half(type.dtype);
    if (node.op != "bias_add" && node.op != "add") return false;
    const ValueId other = node.inputs[0] == v ? node.inputs[1] : node.inputs[0];
    const Type& added = graph.type(other);
    if (added.dtype != type.dtype) return false;
    const bool is_bias = added.shape == Shape{type.shape[1]} || added.shape == Shape{1, type.shape[1]};
    if (is_bias && !has_bias_) return has_bias_ = true;
    if (!(added.shape == type.shape) || adds_value_) return false;
    return adds_value_ = true;
  }

 private:
  bool has_bias_ = false, adds_value_ = false, has_gelu_ = false;
};

// What follows a product in its node: all that is done to single elements, or what libraries do.
enum class Takes { kElements, kLibraryEpilogues };

class MatmulFusion {
 public:
  MatmulFusion(const Graph& graph, Takes takes)
      : graph_(graph), takes_(takes), uses_(find_uses(graph)), behind_(nodes_behind(graph)) {}

  Graph run() {
    // The node that ends the chain of a product, by the product; a member of a chain is not copied.
    std::vector<std::vector<NodeId>> chains(static_cast<size_t>(graph_.num_nodes()));
    std::vector<bool> taken(static_cast<size_t>(graph_.num_nodes()), false);
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (graph_.node(n).op != "matmul") continue;
      auto chain = chain_of(n);
      for (const NodeId member : chain) taken[static_cast<size_t>(member)] = true;
      chains[static_cast<size_t>(n)] = std::move(chain);
    }
    Rewriter rewriter(graph_);
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const auto& chain = chains[static_cast<size_t>(n)];
      if (!chain.empty()) {
        emit(rewriter, n, chain);
      } else if (!taken[static_cast<size_t>(n)]) {
        rewriter.copy(n);
      }
    }
    return remove_dead_code(rewriter.finish());
  }

 private:
  // The nodes behind product `n` that it takes along: each the only reader of the one before, with other operands that
  // are there before the product, so that nothing has to wait.
  std::vector<NodeId> chain_of(NodeId n) const {
    std::vector<NodeId> chain;
    if (!is_fused_dtype(graph_.type(graph_.node(n).inputs[0]).dtype)) return chain;
    LibraryEpilogue library;
    NodeId last = n;
    while (true) {
      const ValueId v = graph_.node(last).outputs[0];
      const auto& users = uses_.users[static_cast<size_t>(v)];
      if (users.size() != 1 || uses_.is_result[static_cast<size_t>(v)]) return chain;
      if (!may_follow(n, v, users[0])) return chain;
      if (takes_ == Takes::kLibraryEpilogues && !library.take(graph_, graph_.node(users[0]), v)) return chain;
      last = users[0];
      chain.push_back(last);
    }
  }

  bool may_follow(NodeId product, ValueId v, NodeId n) const {
    const Node& node = graph_.node(n);
    if (!is_epilogue(graph_, node) || node.outputs.size() != 1) return false;
    const Type& result = graph_.type(node.outputs[0]);
    if (!(result.shape == graph_.type(v).shape) || !is_fused_dtype(result.dtype)) return false;
    if (node.op == "bias_add" && node.inputs[0] != v) return false;
    if (node.op == "div" && node.inputs[0] != v) return false;
    if (std::count(node.inputs.begin(), node.inputs.end(), v) != 1) return false;
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      if (input == v) return true;
      if (!is_fused_dtype(graph_.type(input).dtype)) return false;
      const NodeId from = graph_.info(input).node;
      return from == ir::kNone || behind_[static_cast<size_t>(from)] < product || literal_of(graph_, input).has_value();
    });
  }

  void emit(Rewriter& rewriter, NodeId product, const std::vector<NodeId>& chain) {
    const Node& matmul = graph_.node(product);
    std::vector<Value> inputs = {rewriter.at(matmul.inputs[0]), rewriter.at(matmul.inputs[1])};
    std::string program;
    std::string before = "a0";
    ValueId last = matmul.outputs[0];
    int num_values = 0;
    int num_results = 0;
    for (const NodeId n : chain) {
      const Node& node = graph_.node(n);
      const std::string op = node.op == "bias_add" ? "add" : node.op == "cast" ? "copy" : *program_op(graph_, node);
      std::string line = op;
      for (const ValueId v : node.inputs) {
        if (v == last) {
          line += " " + before;
        } else if (const auto literal = literal_of(graph_, v)) {
          line += " " + *literal;
        } else {
          inputs.push_back(rewriter.at(v));
          line += fmt::format(" a{}", ++num_values);
        }
      }
      last = node.outputs[0];
      if (op == "copy") continue;  // a cast: the result's type says it
      before = fmt::format("t{}", num_results++);
      program += before + "=" + line + "; ";
    }
    program += "return " + before;
    rewriter.set_origin(product);
    const auto made = ops::apply(rewriter.graph(), "fused_matmul", inputs,
                                 {{"transpose_a", matmul.attributes.get_bool("transpose_a")},
                                  {"transpose_b", matmul.attributes.get_bool("transpose_b")},
                                  {"program", program},
                                  {"dtype", graph_.type(last).dtype}});
    rewriter.stands_for(product, rewriter.graph().num_nodes() - 1);
    for (const NodeId n : chain) rewriter.stands_for(n, rewriter.graph().num_nodes() - 1);
    rewriter.set(last, made[0]);
  }

  const Graph& graph_;
  const Takes takes_;
  const ValueUses uses_;
  const std::vector<NodeId> behind_;
};

}  // namespace

Graph fuse_matmul(const Graph& local) { return MatmulFusion(local, Takes::kElements).run(); }
Graph fuse_matmul_epilogues(const Graph& local) { return MatmulFusion(local, Takes::kLibraryEpilogues).run(); }

}  // namespace tessera::compiler
