// OpDef: all that anyone knows about one operator, in one place: shape inference, gradient, sharding rule, linearity,
// cost. Text form, functions, documentation, partitioning and the law tests come from it. OpRegistry: all of them by
// name; built once, with those that a program adds, and never changed once it is read.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"
#include "tessera/mesh/strategy.h"
#include "tessera/ops/registry/index_rule.h"
#include "tessera/tensor/kernel.h"

namespace tessera::ops {

using ir::Value;

struct AttributeDef {
  std::string name;
  std::optional<AttributeValue> default_value;  // absent: must be given
  std::string doc;
  bool may_be_absent = false;  // then it is not filled in
  bool is_of_network = true;   // false: follows from the batch, the precision, the ranks or the seed
};
// The attribute as one that says nothing of the network.
AttributeDef of_run(AttributeDef attribute);

// What a gradient function sees. It adds nodes to `graph` and returns one cotangent per input; a null Value where there
// is none (integer inputs, or no dependence).
struct GradientContext {
  ir::Graph& graph;
  const Attributes& attributes;
  std::vector<Value> inputs;
  std::vector<Value> outputs;
  std::vector<Value> cotangents;  // the cotangents of the outputs; null where nothing flows back
  // The cotangent of output i, or zeros of its type where it is null.
  Value cotangent(int i) const;
};

// Where the node's values lie, for operators that reach over to other ranks.
struct Placement {
  const mesh::Mesh& mesh;
  int rank;
  std::vector<mesh::Sharding> inputs;
  std::vector<mesh::Sharding> outputs;
  std::map<std::string, std::vector<int>> factor_axes;  // the axes that split a factor, outer first
  // The attributes ranks, group and rank_in_group of a collective over these axes, in the order of the parts that they
  // make of a dim.
  std::function<Attributes(const std::vector<int>& axes)> group_over;
};

// What localize sees: one node of the logical graph, to be written into one rank's graph.
struct LocalizeContext {
  ir::Graph& graph;  // the local graph
  const std::string& op;
  const Attributes& attributes;  // the attributes of the logical node
  std::vector<Value> inputs;     // local values, already in the shardings the plan asks for
  std::vector<Type> global_inputs;
  std::vector<Type> global_outputs;
  std::vector<Type> local_outputs;                     // what the shardings say the results' types are
  std::vector<std::vector<mesh::Range>> input_slices;  // which piece of each global input this rank holds
  std::vector<std::vector<mesh::Range>> output_slices;
  bool is_split(const std::string& factor) const { return parts.contains(factor); }
  std::map<std::string, int> parts;  // factor of the rule -> number of parts, for those that are split
  // Factors of the rule whose dims are dealt in blocks: how many elements the dims have, and a block.
  struct Blocks {
    int64_t size = 0;
    int64_t block = 1;
  };
  std::map<std::string, Blocks> blocks;
  const Placement* placement = nullptr;
};

struct Cost {
  double flops = 0;
  double bytes = 0;  // read and written once
};

// What the elements of an example's input may be, for the generated tests.
enum class Domain {
  kAny,          // about (-2, 2), no two equal, none near 0: safe for kinks
  kPositive,     // (0.5, 2)
  kUnit,         // (-0.9, 0.9)
  kOneInfinite,  // any value, as with kAny, but for one element
  kBool,         // 0 or 1
  kIndex         // integers in [0, limit)
};
struct ExampleInput {
  Type type;
  Domain domain = Domain::kAny;
  int64_t limit = 0;
};
// A call that the generated tests make: shape inference against execution, reference against fast kernels, gradients
// against finite differences (for f32/f64 inputs with Domain other than kBool and kIndex, run in f64).
struct Example {
  std::vector<ExampleInput> inputs;
  Attributes attributes = {};
  bool check_gradient = true;
};

// What an operator computes in where a network is traced in f32 and computed in a half type, the low dtype; see
// compiler/mixed_precision.h.
enum class MixedPrecision {
  kFollows,    // in what its operands are, in f32 where they differ
  kLow,        // in the low dtype: products of matrices, convolutions
  kWide,       // in f32: what loses too many digits or overflows
  kWideSums,   // reads its operand as it is, adds in f32 and keeps that (attribute result_dtype)
  kWideParams  // reads and writes its data, operand 0, as it is; statistics, scales and shifts are f32
};

// What an operator does with the elements of operand 0, where the others are no tensors that it computes with.
enum class Elements {
  kComputed,    // its results are something else
  kKept,        // each stands where it stood, perhaps in another dtype
  kRelabelled,  // all of them, in row-major order under another shape
  kMoved        // the result's elements are elements of it, at other places
};

// At which of a machine's speeds an operator does its arithmetic.
enum class Arithmetic { kVector, kProduct, kConvolution };

// In which order of memory an operator's kernels have images, which are operands and results of four dims [n,c,h,w].
enum class ImageOrder {
  kAsTheyCome,        // the results have the order of the operands
  kBestChannelsLast,  // the same, but kernels rearrange images that are not channels-last
  kChannelsLast       // channels-last, wherever operands come from; weights are row-major all the same
};

// Names one of a node's operands or results.
struct OperandOrResult {
  bool is_result = false;
  size_t index = 0;
  bool operator==(const OperandOrResult&) const = default;
};
// Which operands and results of a convolution, or of a gradient of one, are what. Any other is the images that the
// convolution reads, or their cotangent.
struct ConvolutionValues {
  OperandOrResult weight;   // or its cotangent
  OperandOrResult results;  // the images that the convolution makes, or their cotangent
};

// Good indices are in [begin, end). The first row of the whole table, or the first class of all, has the index `begin`:
// a rank that holds rows 10 to 19 of 30 counts them from 0 and finds the others at -10 to -1 and 10 to 19.
struct IndexRange {
  int operand = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

struct CollectiveDef;  // ops/registry/collective_def.h

struct OpDef {
  std::string name;
  std::string doc;                  // one sentence or more: what it computes, shapes, source
  std::vector<std::string> inputs;  // names; a last name "values..." takes any number
  std::vector<AttributeDef> attributes = {};
  std::vector<std::string> outputs = {"result"};
  // Types of the results. Throws InvalidArgument saying what does not fit; apply() puts the operator's name and source
  // before the message and the operands' types after it.
  std::function<std::vector<Type>(const Attributes&, std::span<const Type>)> infer;
  // Empty: not differentiable; nothing flows back through it.
  std::function<std::vector<Value>(const GradientContext&)> gradient = {};
  // Empty: nothing can be split.
  std::function<IndexRule(const Attributes&, std::span<const Type> inputs, std::span<const Type> outputs)> rule = {};
  // Sets of operands in which it is jointly linear (the others fixed): matmul {{0},{1}}, add {{0,1}}, neg {{0}}.
  std::vector<std::vector<int>> linear_in = {};
  // Empty: no arithmetic worth counting; bytes are then those of the operands and results.
  std::function<double(const Attributes&, std::span<const Type> inputs, std::span<const Type> outputs)> flops = {};
  // Writes the node for one rank. Empty: the same operator with the same attributes on the local inputs.
  std::function<std::vector<Value>(const LocalizeContext&)> localize = {};
  // A split factor leaves a sum of which all terms but one are zero: in half types that sum is exact.
  bool disjoint_parts = false;
  // Touches each element once at one place, without looking at its neighbours: may be fused with others.
  bool elementwise = false;
  // Updates a parameter and its states, element by element: (parameter, states..., gradient, scalars...) ->
  // (parameter, states...).
  bool update = false;
  // How it communicates; null: it does not. Nodes that communicate are never merged, moved or dropped.
  const CollectiveDef* collective = nullptr;
  // Which operand holds indices, and which of them are good; nullopt where every index is. Empty: it reads none.
  // Whether the attribute "valid" narrows them down is looked at by index_range().
  std::function<std::optional<IndexRange>(const Attributes&, std::span<const Type> inputs)> indices = {};
  Elements elements = Elements::kComputed;
  Arithmetic arithmetic = Arithmetic::kVector;
  ImageOrder images = ImageOrder::kAsTheyCome;
  std::optional<ConvolutionValues> convolution = {};  // of a convolution and its gradients
  MixedPrecision precision = MixedPrecision::kFollows;
  std::vector<Example> examples = {};

  bool is_variadic() const { return !inputs.empty() && inputs.back().ends_with("..."); }
  // Whether it multiplies its two operands as matrices, and does no more.
  bool is_matrix_product() const {
    return arithmetic == Arithmetic::kProduct && linear_in == std::vector<std::vector<int>>{{0}, {1}};
  }
};

class OpRegistry {
 public:
  // All operators of Tessera, and those that the program has added: from the first call on none is added any more.
  static const OpRegistry& instance();

  // Throws InvalidArgument naming the closest known name.
  const OpDef& get(const std::string& name) const;
  const OpDef* find(const std::string& name) const;
  const std::map<std::string, OpDef>& all() const { return defs_; }
  // How the host computes the operators that the program has added.
  const KernelRegistry& own_kernels() const { return own_kernels_; }
  void add(OpDef def);

 private:
  friend void add_operator(OpDef def, KernelFactory kernel);

  std::map<std::string, OpDef> defs_;
  KernelRegistry own_kernels_;
};

// Adds an operator of the program's own, with its kernel for the host; networks call it by apply() and apply1(). It is
// differentiated, split, planned and simulated as its definition says, as any other. Call it at the beginning of main,
// before cluster::run, in every process alike. A kernel is asked for any strides, and may decline. A GPU computes no
// such operator: SessionOptions::cpu_fallback has the host do it. Throws InvalidArgument for a name that is taken or
// has other characters than letters, digits and underscores, without `infer` or a kernel, for a definition with
// `update` or `collective`, which the compiler knows by more than their definition, and where operators have been used
// before.
//     ops::add_operator({.name = "squared_distance", ...}, prepare_squared_distance);
void add_operator(OpDef def, KernelFactory kernel);

// Adds a node of operator `op`: fills in default attributes, refuses unknown or missing ones and a wrong number of
// inputs, infers the types. Throws InvalidArgument: `matmul "ffn/up": contracted dims differ ...: lhs f32[8,16], rhs
// ...`. Operators without inputs need the graph.
std::vector<Value> apply(ir::Graph& graph, const std::string& op, std::span<const Value> inputs,
                         Attributes attributes = {});
std::vector<Value> apply(const std::string& op, std::initializer_list<Value> inputs, Attributes attributes = {});
// The first result, for operators with one.
Value apply1(const std::string& op, std::initializer_list<Value> inputs, Attributes attributes = {});

// Fixes how the operator that makes this value is split: one tuple of counts per operand, one count per dim:
//   shard(matmul(x, w), {{2, 1}, {1, 4}})
// Returns the value. What does not fit the operator or the mesh is refused when the graph is planned, by name. Throws
// InvalidArgument for a value that no operator makes. grid: where the parts lie; empty: in the order of the counts.
Value shard(Value value, const mesh::Strategy& strategy, mesh::StrategyGrid grid = {});

// The same elements, split into so many parts per dim, on this grid, whatever makes and reads the value: a cast to its
// own dtype with a strategy. So neighbours of either side are split each as it says itself; see
// plan/strategy_propagation.h.
Value lay_out(Value value, const std::vector<int64_t>& counts, mesh::StrategyGrid grid = {});

// The attributes with defaults filled in. Throws as apply does.
Attributes complete_attributes(const OpDef& def, Attributes attributes);
IndexRule rule_of(const OpDef& def, const Attributes& attributes, std::span<const Type> inputs,
                  std::span<const Type> outputs);
// The rule of a node of a graph.
IndexRule rule_of(const ir::Graph& graph, ir::NodeId node);
Cost cost_of(const OpDef& def, const Attributes& attributes, std::span<const Type> inputs,
             std::span<const Type> outputs);

}  // namespace tessera::ops
