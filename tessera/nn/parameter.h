// Parameter: a named tensor that outlives a step: a weight, a moving statistic, an optimizer's state. Here it is only
// declared (name, type, how it starts); its values live in a session. Read inside construct() it is a Value: the latest
// assigned one of the graph being traced.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tessera/ir/graph.h"
#include "tessera/tensor/tensor.h"

namespace tessera::nn {

class Cell;

// What an initializer is told. `name` is the parameter's full name: random values are a function of (seed, name,
// element), so they depend on no order of creation and no layout.
struct InitContext {
  ir::Graph& graph;
  const Type& type;
  std::string name;
  uint64_t seed = 0;
};
// Adds nodes that make the initial value.
using Initializer = std::function<ir::Value(const InitContext&)>;

struct Parameter {
  std::string name;  // within its cell; full_name() has the path
  Type type;
  Initializer init;
  bool requires_grad = true;
  ir::InputKind kind = ir::InputKind::kParameter;
  // false: the replicas keep it whole, also where the optimizer's work is shared between them.
  bool parallel_optimizer = true;
  // Its gradient, and its shards, travel only with those of parameters of an equal id; 0: alone.
  int comm_fusion = 1;
  // Hybrid parallel: each rank has a slice of its own, of its own shape, which the network combines by hand. Neither
  // its gradient nor its initial value is shared between ranks. Optimizer states are as their parameter.
  bool layerwise_parallel = false;
  // In a job with parameter servers: the servers keep it, with its optimizer's states, and update it.
  bool on_servers = false;
  // A moving statistic of batches. Where groups of ranks normalise their batches by themselves, each has a row of it.
  bool is_statistic = false;
  // Where it is set, it is the initial value instead of what `init` makes. Must have the type's shape.
  std::optional<Tensor> data = {};
  const Cell* owner = nullptr;
  // Where it is not empty: what full_name() says. See Cell::prefix_parameters().
  std::string given_name = {};
  // What a binding to another language keeps with it, and nobody else reads. Copies share it.
  std::shared_ptr<const void> attached = {};

  // "layer1.0.conv1.weight": the attribute path of its cell, then its name; or its given name.
  std::string full_name() const;
  // The latest value in `graph`; the parameter becomes an input of the graph at its first use.
  ir::Value in(ir::Graph& graph) const;
  // The value in the graph that the owner cell is being traced into. Only inside construct().
  operator ir::Value() const;  // NOLINT: a parameter is used like a value
  // Makes `value` the parameter's value from here on; becomes an output of the graph.
  void assign(ir::Value value) const;
};

}  // namespace tessera::nn
