#include "tessera/nn/optimizers/row_gradient.h"

#include <algorithm>
#include <functional>
#include <set>

#include "tessera/ops/functions/functions.h"
#include "tessera/ops/registry/collective_def.h"

namespace tessera::nn {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

const Node* producer_of(const Value& value) {
  const ir::NodeId n = value.graph().info(value.id()).node;
  return n == ir::kNone ? nullptr : &value.graph().node(n);
}

Value operand(const Value& value, const Node& node, size_t i) { return value.graph().value(node.inputs[i]); }

bool is_number(const Value& value) { return value.shape().num_elements() == 1; }

// The gradient of a lookup: rows that are added to nothing, at the numbers that were looked up.
bool is_of_lookup(const Value& value, const Node& node) {
  if (node.op != "scatter_add" || node.attributes.get_int("axis") != 0) return false;
  const Node* base = producer_of(operand(value, node, 0));
  return base != nullptr && base->op == "zeros_like";
}

// The operand of which a linear operator takes each element by itself: whatever is done to a sum of rows may be done to
// the rows.
std::optional<size_t> passed_operand(const Value& value, const Node& node) {
  if (node.op == "cast" || node.op == "neg") return 0;
  if (node.op != "mul" && node.op != "div") return std::nullopt;
  const Value a = operand(value, node, 0);
  const Value b = operand(value, node, 1);
  if (a.shape() == value.shape() && is_number(b)) return 0;
  if (node.op == "mul" && b.shape() == value.shape() && is_number(a)) return 1;
  return std::nullopt;
}

bool is_sum(const Value& value, const Node& node) {
  return node.op == "add" && operand(value, node, 0).shape() == value.shape() &&
         operand(value, node, 1).shape() == value.shape();
}

Value wide_ids(const Value& ids) {
  return ids.dtype() == DType::kI32 || ids.dtype() == DType::kI64 ? ids : ops::cast(ids, DType::kI32);
}

// Of one lookup, with its dims of indices made one. Nodes belong to the lookup, as its gradient does.
RowGradient rows_of_lookup(const Value& value, const Node& node) {
  const ir::SourceScope scope(value.graph(), node.source, node.forward);
  const Value ids = wide_ids(operand(value, node, 1));
  const Value rows = operand(value, node, 2);
  if (ids.ndim() == 1) return {ids, rows};
  Ints shape{ids.shape().num_elements()};
  for (int d = 1; d < value.ndim(); ++d) shape.push_back(value.shape()[d]);
  return {ops::reshape(ids, {shape[0]}), ops::reshape(rows, shape)};
}

// The same operator for the rows.
Value apply_to_rows(const Value& value, const Node& node, size_t passed, const Value& rows) {
  const ir::SourceScope scope(value.graph(), node.source, node.forward);
  if (node.op == "neg") return ops::neg(rows);
  if (node.op == "cast") return ops::cast(rows, value.dtype());
  const Value number = ops::reshape(operand(value, node, 1 - passed), {});
  return node.op == "mul" ? ops::mul(rows, number) : ops::div(rows, number);
}

RowGradient joined(const RowGradient& a, const RowGradient& b) {
  const bool is_wide = a.ids.dtype() == DType::kI64 || b.ids.dtype() == DType::kI64;
  const DType ids = is_wide ? DType::kI64 : DType::kI32;
  return {ops::concat({ops::cast(a.ids, ids), ops::cast(b.ids, ids)}), ops::concat({a.rows, b.rows})};
}

// Whether `leaf` holds for all that the gradient is a sum of, seen through operators that pass rows on.
bool consists_of(const Value& gradient, const std::function<bool(const Value&, const Node&)>& leaf,
                 const std::function<bool(const Node&)>& passes) {
  const Node* node = producer_of(gradient);
  if (node == nullptr) return false;
  if (leaf(gradient, *node)) return true;
  if (is_sum(gradient, *node)) {
    return consists_of(operand(gradient, *node, 0), leaf, passes) &&
           consists_of(operand(gradient, *node, 1), leaf, passes);
  }
  if (passes(*node)) return consists_of(operand(gradient, *node, 0), leaf, passes);
  const auto passed = passed_operand(gradient, *node);
  return passed && consists_of(operand(gradient, *node, *passed), leaf, passes);
}

RowGradient make_rows(const Value& gradient) {
  const Node& node = *producer_of(gradient);
  if (is_of_lookup(gradient, node)) return rows_of_lookup(gradient, node);
  if (is_sum(gradient, node))
    return joined(make_rows(operand(gradient, node, 0)), make_rows(operand(gradient, node, 1)));
  const size_t passed = *passed_operand(gradient, node);
  const RowGradient of_operand = make_rows(operand(gradient, node, passed));
  return {of_operand.ids, apply_to_rows(gradient, node, passed, of_operand.rows)};
}

// `seen`: values that were found to be.
bool is_made_of_data(const Graph& graph, ir::ValueId v, std::set<ir::ValueId>& seen) {
  if (!seen.insert(v).second) return true;
  const auto& info = graph.info(v);
  if (info.node == ir::kNone) return graph.inputs()[static_cast<size_t>(info.index)].kind == ir::InputKind::kInput;
  const auto& inputs = graph.node(info.node).inputs;
  return std::ranges::all_of(inputs, [&](ir::ValueId input) { return is_made_of_data(graph, input, seen); });
}

// Whether every rank is given the sum of what all have.
bool sums_over_ranks(const Node& node) {
  const auto* collective = ops::collective_of(node);
  return collective != nullptr && collective->reduces && collective->gives_one &&
         node.attributes.get_string("reduction") == "sum";
}

int64_t count_rows(const Value& gradient) {
  const Node& node = *producer_of(gradient);
  if (is_of_lookup(gradient, node)) return operand(gradient, node, 1).shape().num_elements();
  if (is_sum(gradient, node)) {
    return count_rows(operand(gradient, node, 0)) + count_rows(operand(gradient, node, 1));
  }
  return count_rows(operand(gradient, node, *passed_operand(gradient, node)));
}

Value make_lookups(const Value& gradient) {
  const Node& node = *producer_of(gradient);
  if (is_of_lookup(gradient, node)) {
    const ir::SourceScope scope(gradient.graph(), node.source, node.forward);
    const Value ids = operand(gradient, node, 1);
    const Value none = ops::fill(gradient.graph(), {gradient.shape()[0]}, 0);
    return ops::scatter_add(none, ids, ops::fill(gradient.graph(), ids.shape(), 1));
  }
  if (is_sum(gradient, node)) {
    return ops::add(make_lookups(operand(gradient, node, 0)), make_lookups(operand(gradient, node, 1)));
  }
  if (sums_over_ranks(node)) {
    return ops::apply1(node.op, {make_lookups(operand(gradient, node, 0))}, node.attributes);
  }
  return make_lookups(operand(gradient, node, *passed_operand(gradient, node)));
}

}  // namespace

std::optional<int64_t> num_looked_up(const Value& gradient) {
  const auto nothing_else = [](const Node&) { return false; };
  if (gradient.ndim() == 0 || !consists_of(gradient, is_of_lookup, nothing_else)) return std::nullopt;
  return count_rows(gradient);
}

bool looks_up_data_only(const Value& gradient) {
  std::set<ir::ValueId> seen;
  const auto leaf = [&](const Value& value, const Node& node) {
    return is_of_lookup(value, node) && is_made_of_data(value.graph(), node.inputs[1], seen);
  };
  return consists_of(gradient, leaf, [](const Node&) { return false; });
}

RowGradient row_gradient_of(const Value& gradient) { return make_rows(gradient); }

std::optional<Value> lookups_of(const Value& gradient) {
  if (gradient.ndim() == 0 || !consists_of(gradient, is_of_lookup, sums_over_ranks)) return std::nullopt;
  return make_lookups(gradient);
}

}  // namespace tessera::nn
