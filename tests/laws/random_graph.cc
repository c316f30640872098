#include "tests/laws/random_graph.h"

#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::laws {
namespace {

using ir::Value;

class Builder {
 public:
  Builder(uint64_t seed, const RandomGraphOptions& options)
      : options_(options), graph_(fmt::format("random_{}", seed)), stream_{.seed = seed, .stream = 1} {}

  ir::Graph build() {
    const Type data{options_.dtype, {options_.rows, 6}};
    values_.push_back(graph_.add_input(ir::InputKind::kInput, "x", data));
    values_.push_back(graph_.add_input(ir::InputKind::kInput, "y", data));
    const Value w = graph_.add_input(ir::InputKind::kParameter, "w", {options_.dtype, {6, 6}});
    const Value b = graph_.add_input(ir::InputKind::kParameter, "b", {options_.dtype, {6}});
    values_.push_back(w);
    values_.push_back(b);
    // One reader at least of everything that is given.
    values_.push_back(ops::apply1("add", {ops::apply1("matmul", {values_[0], w}), b}));
    for (int i = 0; i < options_.num_nodes; ++i) values_.push_back(next());
    const Value last = values_.back();
    for (int i = 0; i < 3; ++i) graph_.add_output(fmt::format("out{}", i), pick());
    if (options_.with_updates) {
      Ints axes;
      for (int axis = 0; axis < last.ndim(); ++axis) axes.push_back(axis);
      graph_.add_output("loss", ops::apply1("reduce_sum", {tame(last)}, {{"axes", axes}}));
      const Value product = ops::apply1("matmul", {values_[0], values_[1]}, {{"transpose_a", true}});
      graph_.assign("w", ops::apply1("sub", {w, ops::apply1("tanh", {product})}));
      graph_.assign("b", ops::apply1("sub", {b, ops::apply1("reduce_sum", {values_[4]}, {{"axes", Ints{0}}})}));
    }
    graph_.finish_assignments();
    return std::move(graph_);
  }

 private:
  int64_t below(int64_t limit) { return random_below(stream_, draws_++, limit); }
  // Late values more often than early ones, so that chains grow.
  Value pick() {
    const auto n = static_cast<int64_t>(values_.size());
    return values_[static_cast<size_t>(std::max(below(n), below(n)))];
  }
  // Within (-1, 1), so that nothing overflows on the way.
  static Value tame(Value v) { return ops::apply1("tanh", {v}); }

  Value next() {
    const Value v = pick();
    switch (below(11)) {
      case 0:
      case 1:
      case 2: {
        static const char* const unary[] = {"neg", "abs", "tanh", "relu", "sigmoid", "square", "sin", "floor"};
        return ops::apply1(unary[below(8)], {below(2) == 0 ? v : tame(v)});
      }
      case 3:
      case 4:
      case 5: {
        static const char* const binary[] = {"add", "sub", "mul", "maximum", "minimum"};
        return ops::apply1(binary[below(5)], {v, of_shape(v.shape())});
      }
      case 6: return matmul(v);
      case 7:
        if (v.ndim() == 0) return ops::apply1("neg", {v});
        return ops::apply1("reduce_sum", {v}, {{"axes", Ints{below(v.ndim())}}, {"keep_dims", below(2) == 0}});
      case 8:
        if (!options_.with_reshapes) return ops::apply1("neg", {v});
        return ops::apply1("reshape", {v}, {{"shape", Ints{v.shape().num_elements()}}});
      case 9: {
        const Value condition = ops::apply1("greater", {v, of_shape(v.shape())});
        return ops::apply1("select", {condition, v, of_shape(v.shape())});
      }
      default: {
        if (v.ndim() != 2) return ops::apply1("exp", {tame(v)});
        return ops::apply1("transpose", {v}, {{"perm", Ints{1, 0}}});
      }
    }
  }

  // An earlier value of this shape, or a constant.
  Value of_shape(const Shape& shape) {
    for (int attempt = 0; attempt < 4; ++attempt) {
      const Value v = pick();
      if (v.shape() == shape) return v;
    }
    return ops::apply(graph_, "fill", {}, {{"shape", Ints{}}, {"value", 0.25}, {"dtype", options_.dtype}})[0];
  }

  Value matmul(Value v) {
    if (v.ndim() != 2) return ops::apply1("add", {v, v});
    for (int attempt = 0; attempt < 6; ++attempt) {
      const Value other = pick();
      if (other.ndim() != 2) continue;
      if (other.shape()[0] == v.shape()[1]) return tame(ops::apply1("matmul", {v, other}));
      if (other.shape()[1] == v.shape()[1]) return tame(ops::apply1("matmul", {v, other}, {{"transpose_b", true}}));
    }
    return tame(ops::apply1("matmul", {v, v}, {{"transpose_b", true}}));
  }

  RandomGraphOptions options_;
  ir::Graph graph_;
  RandomStream stream_;
  uint64_t draws_ = 0;
  std::vector<Value> values_;
};

}  // namespace

ir::Graph random_graph(uint64_t seed, const RandomGraphOptions& options) { return Builder(seed, options).build(); }

std::map<std::string, Tensor> random_inputs(const ir::Graph& graph, uint64_t seed) {
  std::map<std::string, Tensor> inputs;
  for (const auto& input : graph.inputs()) {
    const Type& type = graph.type(input.value);
    Tensor tensor(DType::kF64, type.shape);
    const auto values = tensor.values<double>();
    const RandomStream stream{.seed = seed, .stream = hash_name(input.name)};
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = is_floating(type.dtype) ? random_normal(stream, i) : static_cast<double>(random_below(stream, i, 3));
    }
    inputs[input.name] = tensor.cast(type.dtype);
  }
  return inputs;
}

}  // namespace tessera::laws
