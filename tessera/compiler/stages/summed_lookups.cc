#include "tessera/compiler/stages/summed_lookups.h"

#include <tuple>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/compiler/passes/rewrite.h"
#include "tessera/mesh/mesh.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;

const Node* node_making(const Graph& graph, ValueId v) {
  const NodeId n = graph.info(v).node;
  return n == ir::kNone ? nullptr : &graph.node(n);
}

// Gradients of rows, with their numbers.
struct Lookup {
  ValueId rows = ir::kNone;
  ValueId ids = ir::kNone;
  std::string table;
};

// Who reads a value: an operand of a node, or an output of the graph.
struct Reader {
  NodeId node = ir::kNone;
  size_t operand = 0;
  std::string output = {};
  bool operator<(const Reader& other) const {
    return std::tie(node, operand, output) < std::tie(other.node, other.operand, other.output);
  }
};

class LookupSummer {
 public:
  LookupSummer(const Graph& graph, const SummedLookups& lookups)
      : graph_(graph), lookups_(lookups), rewriter_(graph), rows_of_batch_(rows_of_batch(graph)) {}

  Graph run() {
    find();
    if (summed_.empty()) return graph_;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) copy(n);
    std::map<std::string, ValueId> replaced;
    for (const auto& [reader, sum] : readers_) {
      if (reader.node == ir::kNone) replaced[reader.output] = result(sum).id();
    }
    Graph made = rewriter_.finish();
    const auto outputs = made.outputs();
    made.clear_outputs();
    for (const auto& output : outputs) {
      const auto it = replaced.find(output.name);
      made.add_output(output.name, made.value(it == replaced.end() ? output.value : it->second));
    }
    return made;
  }

 private:
  // The sums of a lookup, or their numbers.
  struct Sum {
    size_t lookup = 0;
    size_t result = 0;
  };

  void find() {
    struct Kept {
      const ir::Output* rows = nullptr;
      const ir::Output* ids = nullptr;
    };
    std::map<std::string, Kept> kept;
    for (const auto& output : graph_.outputs()) {
      const auto accumulator = lookups_.accumulators.find(output.name);
      if (accumulator == lookups_.accumulators.end()) continue;
      const Type& type = graph_.type(output.value);
      Kept& of_table = kept[accumulator->second];
      if (is_floating(type.dtype)) {
        of_table.rows = &output;
      } else if (type.shape.ndim() == 1) {
        of_table.ids = &output;
      }
    }
    for (const auto& [table, outputs] : kept) {
      if (outputs.rows == nullptr || outputs.ids == nullptr) continue;
      const auto [rows, reader_of_rows] = added(*outputs.rows);
      const auto [ids, reader_of_ids] = added(*outputs.ids);
      find_in({rows, ids, table}, reader_of_rows, reader_of_ids);
    }
  }

  // What a micro-batch brings to an accumulator: all of it, or what is put behind what it has.
  std::pair<ValueId, Reader> added(const ir::Output& output) const {
    const Node* node = node_making(graph_, output.value);
    const ir::Input* held = graph_.find_input(output.name);
    if (node != nullptr && node->op == "scatter_add" && held != nullptr && node->inputs[0] == held->value) {
      return {node->inputs[2], {graph_.info(output.value).node, 2}};
    }
    return {output.value, {ir::kNone, 0, output.name}};
  }

  // The dims of a lookup's numbers may have become one.
  void find_in(const Lookup& lookup, const Reader& of_rows, const Reader& of_ids) {
    const Node* rows = node_making(graph_, lookup.rows);
    const Node* ids = node_making(graph_, lookup.ids);
    if (rows != nullptr && ids != nullptr && joins_dims(*rows) && joins_dims(*ids)) {
      const Lookup with_dims{rows->inputs[0], ids->inputs[0], lookup.table};
      if (is_worth_it(with_dims)) {
        return add(with_dims, {graph_.info(lookup.rows).node, 0}, {graph_.info(lookup.ids).node, 0});
      }
    }
    const bool are_joined = rows != nullptr && rows->op == "concat";
    if (!are_joined && is_worth_it(lookup)) add(lookup, of_rows, of_ids);
  }

  // Whether the node was made for the rows of a lookup: a network's own reshape has other readers, too.
  bool joins_dims(const Node& node) const {
    return node.op == "reshape" && node.forward != ir::kNone && graph_.node(node.forward).op == "gather";
  }

  void add(const Lookup& lookup, const Reader& of_rows, const Reader& of_ids) {
    check(!readers_.contains(of_rows) && !readers_.contains(of_ids), "each accumulator has rows of its own");
    readers_[of_rows] = {summed_.size(), 0};
    readers_[of_ids] = {summed_.size(), 1};
    summed_.push_back({lookup, {}});
  }

  bool is_worth_it(const Lookup& lookup) const {
    const Type& rows = graph_.type(lookup.rows);
    const Type& ids = graph_.type(lookup.ids);
    const bool are_wide = rows.dtype == DType::kF32 || rows.dtype == DType::kF64;
    const int lead = ids.shape.ndim();
    if (!are_wide || lead > rows.shape.ndim()) return false;
    for (int dim = 0; dim < lead; ++dim) {
      if (ids.shape[dim] != rows.shape[dim]) return false;
    }
    return is_shared_lookup(rows, ids, rows_of_batch_, kBytesOfSmallRow) && is_of_workers(lookup.rows);
  }

  // Whether workers make the gradient: what belongs to a lookup itself is made on servers. A cast that belongs to
  // nothing is the accumulator's, of half types.
  bool is_of_workers(ValueId v) const {
    for (const Node* node = node_making(graph_, v); node != nullptr; node = node_making(graph_, node->inputs[0])) {
      if (node->forward != ir::kNone) return graph_.node(node->forward).stage != 0;
      if (node->op == "cast") return false;
      if (node->op != "reshape") return true;
    }
    return true;
  }

  // Two operands of a node may be one value, of which each reader gets another sum.
  void copy(NodeId n) {
    std::vector<std::pair<size_t, ValueId>> sums;
    for (size_t i = 0; i < graph_.node(n).inputs.size(); ++i) {
      const auto it = readers_.find({n, i});
      if (it != readers_.end()) sums.emplace_back(i, result(it->second).id());
    }
    rewriter_.copy(n);
    for (const auto& [i, sum] : sums) rewriter_.graph().mutable_node(rewriter_.new_node(n)).inputs[i] = sum;
  }

  Value result(const Sum& sum) {
    auto& [lookup, made] = summed_[sum.lookup];
    if (made.empty()) made = make(lookup);
    return made[sum.result];
  }

  // It belongs to no node of forward: it is made where the rows are.
  std::vector<Value> make(const Lookup& lookup) {
    Graph& graph = rewriter_.graph();
    const Ints bounds = bounds_of_workers(graph_.type(lookup.ids), rows_of_batch_, lookups_.num_workers);
    graph.set_origin({lookup.table});
    const Value operands[] = {rewriter_.at(lookup.rows), rewriter_.at(lookup.ids)};
    auto made = ops::apply(graph, "add_up_rows", operands,
                           {{"bounds", bounds},
                            {"num_rows", graph_.type(graph_.find_input(lookup.table)->value).shape[0]},
                            {"table", lookup.table},
                            {"clears", lookups_.clears}});
    graph.set_origin({});
    return made;
  }

  const Graph& graph_;
  const SummedLookups& lookups_;
  Rewriter rewriter_;
  int64_t rows_of_batch_;
  std::map<Reader, Sum> readers_;
  std::vector<std::pair<Lookup, std::vector<Value>>> summed_;
};

}  // namespace

int64_t rows_of_batch(const Graph& micro) {
  for (const auto& input : micro.inputs()) {
    const Shape& shape = micro.type(input.value).shape;
    if (input.kind == ir::InputKind::kInput && shape.ndim() > 0) return shape[0];
  }
  return 0;
}

bool is_shared_lookup(const Type& rows, const Type& ids, int64_t rows_of_batch, int64_t small_row_bytes) {
  if (ids.dtype != DType::kI32 && ids.dtype != DType::kI64) return false;
  if (ids.shape.ndim() == 0 || ids.shape.num_elements() == 0) return false;
  if (rows_of_batch == 0 || ids.shape[0] % rows_of_batch != 0) return false;
  return rows.size_bytes() / ids.shape.num_elements() > small_row_bytes;
}

Ints bounds_of_workers(const Type& ids, int64_t rows_of_batch, int num_workers) {
  const int64_t factor = ids.shape[0] / rows_of_batch;
  Ints bounds = {0};
  for (const int64_t size : mesh::balanced_sizes(rows_of_batch, num_workers)) {
    bounds.push_back(bounds.back() + size * factor);
  }
  return bounds;
}

Graph sum_lookups(const Graph& micro, const SummedLookups& lookups) { return LookupSummer(micro, lookups).run(); }

}  // namespace tessera::compiler
