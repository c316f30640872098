#include "tessera/compiler/mixed_precision.h"

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/compiler/passes/rewrite.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;
using ops::MixedPrecision;

class PrecisionRewrite {
 public:
  PrecisionRewrite(const Graph& from, const Precision& precision)
      : from_(from), precision_(precision), rewriter_(from), is_weak_(static_cast<size_t>(from.num_values())) {}

  Graph run() {
    for (const auto& input : from_.inputs()) {
      is_weak_[static_cast<size_t>(input.value)] = input.kind != ir::InputKind::kInput;
    }
    for (NodeId n = 0; n < from_.num_nodes(); ++n) rewrite(n);
    rewriter_.graph().set_origin({});
    reader_ = nullptr;
    for (const auto& output : from_.outputs()) rewriter_.set(output.value, in(output.value, type(output.value).dtype));
    return rewriter_.finish();
  }

 private:
  const Type& type(ValueId v) const { return from_.type(v); }
  bool is_f32(ValueId v) const { return type(v).dtype == DType::kF32; }
  // The dtype in which a value that was f32 is made now.
  DType made_in(ValueId v) const { return rewriter_.at(v).dtype(); }

  // The value in that dtype, cast where it is made in another. Only what was f32 is ever cast.
  Value in(ValueId v, DType dtype) {
    const Value made = rewriter_.at(v);
    if (!is_f32(v) || made.dtype() == dtype) return made;
    const auto known = casts_.find({v, dtype});
    if (known != casts_.end()) return rewriter_.graph().value(known->second);
    const NodeId n = from_.info(v).node;
    Attributes attributes = {{"dtype", dtype}};
    const bool is_constant = n != ir::kNone && from_.node(n).op == "fill";
    if (is_constant) {
      attributes = from_.node(n).attributes;
      attributes.set("dtype", dtype);
    }
    const auto inputs = is_constant ? std::vector<Value>{} : std::vector<Value>{made};
    const Value cast = ops::apply(rewriter_.graph(), is_constant ? "fill" : "cast", inputs, attributes)[0];
    casts_[{v, dtype}] = cast.id();
    if (reader_ != nullptr) {
      rewriter_.graph().mutable_node(rewriter_.graph().num_nodes() - 1).recompute = reader_->recompute;
    }
    return cast;
  }

  // Made of parameters and constants alone.
  bool is_weak(const Node& node) const {
    return std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId v) { return is_weak_[static_cast<size_t>(v)]; });
  }

  // What the operands that are not weak are made in; f32 where they differ, or where all are weak.
  DType common_dtype(const Node& node) const {
    std::optional<DType> common;
    for (const ValueId v : node.inputs) {
      if (!is_f32(v) || is_weak_[static_cast<size_t>(v)]) continue;
      if (common && *common != made_in(v)) return DType::kF32;
      common = made_in(v);
    }
    return common.value_or(DType::kF32);
  }

  DType compute_dtype(const Node& node, MixedPrecision precision) const {
    if (node.compute_dtype) return *node.compute_dtype;
    const bool low = precision == MixedPrecision::kLow;
    if (low || (precision == MixedPrecision::kWide && !precision_.keep_sums_f32)) return precision_.compute;
    return precision == MixedPrecision::kWide ? DType::kF32 : common_dtype(node);
  }

  void rewrite(NodeId n) {
    const Node& node = from_.node(n);
    const ops::OpDef& def = ops::OpRegistry::instance().get(node.op);
    if (is_weak(node) && def.precision == MixedPrecision::kFollows) {
      for (const ValueId v : node.outputs) is_weak_[static_cast<size_t>(v)] = true;
    }
    if (std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return is_f32(v); })) {
      rewriter_.copy(n);
      rewriter_.graph().mutable_node(rewriter_.new_node(n)).compute_dtype.reset();
      return;
    }
    rewriter_.set_origin(n);
    reader_ = &node;
    Attributes attributes = node.attributes;
    const auto inputs = operands(node, def, attributes);
    // A cast to its own dtype only says where the value lies.
    if (node.op == "cast" && type(node.inputs[0]) == type(node.outputs[0])) attributes.set("dtype", inputs[0].dtype());
    const auto results = ops::apply(rewriter_.graph(), node.op, inputs, attributes);
    rewriter_.stands_for(n, rewriter_.graph().num_nodes() - 1);
    Node& made = rewriter_.graph().mutable_node(rewriter_.new_node(n));
    made.strategy = node.strategy;
    made.grid = node.grid;
    made.recompute = node.recompute;
    for (size_t i = 0; i < results.size(); ++i) rewriter_.set(node.outputs[i], results[i]);
  }

  std::vector<Value> operands(const Node& node, const ops::OpDef& def, Attributes& attributes) {
    std::vector<Value> inputs;
    switch (def.precision) {
      case MixedPrecision::kWideSums:
        if (node.compute_dtype) break;
        inputs.push_back(rewriter_.at(node.inputs[0]));
        if (inputs[0].dtype() != type(node.inputs[0]).dtype && precision_.keep_sums_f32) {
          attributes.set("result_dtype", DType::kF32);
        }
        return inputs;
      case MixedPrecision::kWideParams:
        for (size_t i = 0; i < node.inputs.size(); ++i) {
          const bool is_parameter = def.inputs[i] == "gamma" || def.inputs[i] == "beta";
          const DType data = node.compute_dtype.value_or(made_in(node.inputs[0]));
          inputs.push_back(
              in(node.inputs[i], i == 0 || (is_parameter && !precision_.keep_norms_f32) ? data : DType::kF32));
        }
        return inputs;
      default: break;
    }
    const DType dtype = compute_dtype(node, def.precision);
    for (const ValueId v : node.inputs) inputs.push_back(in(v, dtype));
    return inputs;
  }

  const Graph& from_;
  const Precision& precision_;
  Rewriter rewriter_;
  const Node* reader_ = nullptr;                        // that casts are made for: they belong to its block
  std::vector<bool> is_weak_;                           // by the value of the old graph
  std::map<std::pair<ValueId, DType>, ValueId> casts_;  // of old values, in the new graph
};

}  // namespace

Graph rewrite_precision(const Graph& forward, const Precision& precision) {
  if (precision.compute != DType::kF32 && precision.compute != DType::kBF16 && precision.compute != DType::kF16) {
    throw InvalidArgument("mixed precision computes in f32, bf16 or f16, not in {}", precision.compute);
  }
  return PrecisionRewrite(forward, precision).run();
}

}  // namespace tessera::compiler
