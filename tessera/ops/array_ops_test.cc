// Claims about elementwise operators, reductions, shapes, creation, indexing and collectives: refusals, index rules and
// what localize writes. That their numbers and gradients are right is laws_test's business.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;

struct Call {
  std::string op;
  std::vector<std::string> inputs;
  std::string attributes = "{}";
};

std::vector<Value> call(ir::Graph& graph, const Call& c) {
  std::vector<Value> values;
  for (const auto& type : c.inputs) {
    values.push_back(graph.add_input(ir::InputKind::kInput, fmt::format("x{}", values.size()), parse_type(type)));
  }
  return apply(graph, c.op, values, parse_attributes(c.attributes));
}

// The results' types, or the error.
std::string types_of(const Call& c) {
  ir::Graph graph;
  try {
    std::string text;
    for (const Value& value : call(graph, c)) text += (text.empty() ? "" : " ") + value.type().to_string();
    return text;
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

std::string rule_of(const Call& c) {
  ir::Graph graph;
  const auto outputs = call(graph, c);
  std::vector<Type> in;
  std::vector<Type> out;
  for (const auto& input : graph.inputs()) in.push_back(graph.type(input.value));
  for (const Value& value : outputs) out.push_back(value.type());
  return ops::rule_of(OpRegistry::instance().get(c.op), graph.node(0).attributes, in, out).to_string();
}

TEST(ArrayOps, ShapesAndDtypesOfResults) {
  EXPECT_EQ(types_of({"add", {"f32[2,1]", "f32[3]"}}), "f32[2,3]");
  EXPECT_EQ(types_of({"less", {"i32[2]", "i32[]"}}), "bool[2]");
  EXPECT_EQ(types_of({"select", {"bool[2,1]", "bf16[3]", "bf16[]"}}), "bf16[2,3]");
  EXPECT_EQ(types_of({"cast", {"u16[2]"}, "{dtype=f32}"}), "f32[2]");
  EXPECT_EQ(types_of({"reduce_sum", {"i64[2,3,4]"}, "{axes=[0,2]}"}), "i64[3]");
  EXPECT_EQ(types_of({"reduce_max", {"f32[2,3,4]"}, "{axes=[0,2], keep_dims}"}), "f32[1,3,1]");
  EXPECT_EQ(types_of({"top_k", {"f16[2,5]"}, "{k=3}"}), "f16[2,3] i32[2,3]");
  EXPECT_EQ(types_of({"split", {"f32[2,5]"}, "{axis=1, sizes=[2,0,3]}"}), "f32[2,2] f32[2,0] f32[2,3]");
  EXPECT_EQ(types_of({"strided_slice", {"f32[10,4]"}, "{begin=[9,0], end=[-1,3], strides=[-3,2]}"}), "f32[4,2]");
  EXPECT_EQ(types_of({"range", {}, "{start=0, limit=7, delta=3, dtype=i32}"}), "i32[3]");
  EXPECT_EQ(types_of({"one_hot", {"i32[2,3]", "f32[]", "f32[]"}, "{depth=5, axis=1}"}), "f32[2,5,3]");
  EXPECT_EQ(types_of({"gather", {"f32[7,8,9]", "i64[2,3]"}, "{axis=1}"}), "f32[7,2,3,9]");
}

TEST(ArrayOps, RefusalsSayWhatMustHold) {
  const std::pair<Call, const char*> table[] = {
      {{"add", {"f32[2]", "i32[2]"}},
       "add: operands must have one dtype, got f32 and i32; cast one: x f32[2], y i32[2]"},
      {{"add", {"f32[2]", "f32[3]"}}, "add: shapes [2] and [3] do not broadcast: dim 0 is 2 and 3: x f32[2], y f32[3]"},
      {{"mul", {"bool[2]", "bool[2]"}}, "mul: the operands must be numeric (f32 f64 bf16 f16 i32 i64 u8), got bool[2]"},
      {{"exp", {"i32[2]"}}, "exp: the operand must be floating (f32 f64 bf16 f16), got i32[2]; cast it"},
      {{"logical_not", {"f32[]"}}, "logical_not: the operand must be bool, got f32[]"},
      {{"equal", {"i8[2]", "i8[2]"}}, "equal: the operands must be a compute dtype"},
      {{"select", {"f32[2]", "f32[2]", "f32[2]"}}, "select: the condition must be bool, got f32[2]"},
      {{"cast", {"f32[2]"}}, "cast: attribute \"dtype\" must be given"},
      {{"reduce_sum", {"f32[2,3]"}, "{axes=[2]}"}, "reduce_sum: axes [2] must be in [0, 2)"},
      {{"reduce_sum", {"f32[2,3]"}, "{axes=[1,0]}"}, "reduce_sum: axes [1,0] must be sorted and different"},
      {{"argmax", {"f32[2,0]"}, "{axis=1}"}, "argmax: dim 1 is empty and has no largest element"},
      {{"top_k", {"f32[2,3]"}, "{k=4}"}, "top_k: k=4 must be in [0, 3], the size of the last dim"},
      {{"reshape", {"f32[2,3]"}, "{shape=[4,2]}"}, "reshape: cannot reshape 6 elements to [4,2]: x f32[2,3]"},
      {{"reshape", {"f32[2,3]"}, "{shape=[-1,6]}"}, "reshape: shape [-1,6] must not have negative sizes"},
      {{"transpose", {"f32[2,3]"}, "{perm=[0,0]}"}, "transpose: perm [0,0] must be a permutation of the 2 dims"},
      {{"squeeze", {"f32[2,1]"}, "{axes=[0]}"}, "squeeze: dim 0 must have size 1 to be dropped, it has 2"},
      {{"concat", {"f32[2,3]", "f32[3,3]"}, "{axis=1}"},
       "concat: operands must agree in all dims but 1, got [2,3] and [3,3]: #0 f32[2,3], #1 f32[3,3]"},
      {{"split", {"f32[5]"}, "{axis=0, sizes=[2,2]}"},
       "split: sizes [2,2] must not be negative and add up to 5, the size of dim 0"},
      {{"strided_slice", {"f32[5]"}, "{begin=[0], end=[6], strides=[1]}"},
       "strided_slice: slice 0:6:1 of dim 0 with size 5 must have a stride other than 0 and ends in [0, 5]"},
      {{"strided_slice_grad", {"f32[2]"}, "{begin=[0], end=[3], strides=[1], shape=[5]}"},
       "strided_slice_grad: a slice of [5] has shape [3], dy has [2]"},
      {{"pad", {"f32[2]"}, "{before=[-1], after=[0]}"}, "pad: padding of dim 0 must not be negative, got -1 and 0"},
      {{"tile", {"f32[2]"}, "{multiples=[1,2]}"}, "tile: multiples must have one entry for each of the 1 dims, got 2"},
      // Wrapped round, these would be sizes that fit.
      {{"pad", {"f32[2]"}, "{before=[9223372036854775807], after=[9223372036854775807]}"},
       "pad: 9223372036854775807 and 9223372036854775807 are more than an int64 counts"},
      {{"tile", {"f32[4]"}, "{multiples=[4611686018427387904]}"},
       "tile: 4 times 4611686018427387904 is more than an int64 counts"},
      {{"split", {"f32[5]"}, "{axis=0, sizes=[9223372036854775807, 9223372036854775807, 7]}"},
       "split: sizes [9223372036854775807,9223372036854775807,7] must not be negative and add up to 5"},
      {{"random_uniform",
        {"i64[]"},
        "{shape=[4], dtype=f32, seed=1, stream=2, global_shape=[5], offset=[9223372036854775807]}"},
       "random_uniform: 9223372036854775807 and 4 are more than an int64 counts"},
      {{"all_gather", {"f32[2]"}, "{ranks=[0,1], group=\"g\", sizes=[2,9223372036854775807]}"},
       "all_gather: 2 and 9223372036854775807 are more than an int64 counts"},
      {{"broadcast_to", {"f32[2]"}, "{shape=[1]}"}, "broadcast_to: cannot stretch [2] to [1]"},
      {{"constant", {}, "{dtype=f32, shape=[2], values=[1.0]}"},
       "constant: f32[2] has 2 elements, 1 values were given"},
      {{"range", {}, "{start=0, limit=5, delta=0, dtype=i32}"}, "range: start 0, limit 5 and delta 0 must be finite"},
      {{"dropout", {"f32[2]", "i64[]"}, "{keep_prob=0.0, seed=1, stream=2}"},
       "dropout: keep_prob must be in (0, 1], got 0"},
      {{"dropout", {"f32[2]", "i32[]"}, "{keep_prob=0.5, seed=1, stream=2}"}, "dropout: step must be i64, got i32[]"},
      {{"random_uniform", {"i64[]"}, "{shape=[4], dtype=f32, seed=1, stream=2, global_shape=[5], offset=[2]}"},
       "random_uniform: dim 0: [2, 6) must lie inside the global size 5"},
      {{"random_normal", {"i64[]"}, "{shape=[4], dtype=i32, seed=1, stream=2}"},
       "random_normal: the result must be floating"},
      {{"one_hot", {"f32[2]", "f32[]", "f32[]"}, "{depth=3}"}, "one_hot: indices must be i32, i64 or u8, got f32[2]"},
      {{"gather", {"f32[2]", "i32[]"}, "{axis=1}"}, "gather: axis: axis 1 is outside [-1, 1) of a tensor with 1 dims"},
      {{"scatter_add", {"f32[5,3]", "i32[2]", "f32[2,4]"}}, "scatter_add: updates must have shape [2,3], got [2,4]"},
      {{"all_reduce", {"f32[2]"}, "{ranks=[0,1], group=\"g\", reduction=\"avg\"}"},
       "all_reduce: reduction must be sum, max, min or prod, got \"avg\""},
      {{"all_reduce", {"bool[2]"}, "{ranks=[0,1], group=\"g\"}"},
       "all_reduce: a sum of bool is not defined; use max for any"},
      {{"all_gather", {"f32[2]"}, "{ranks=[0,1], group=\"g\", sizes=[3,2]}"},
       "all_gather: sizes say that rank 0 of the group has 3 along dim 0, the operand has 2"},
      {{"reduce_scatter", {"f32[5]"}, "{ranks=[0,1], group=\"g\"}"},
       "reduce_scatter: dim 0 has size 5, which 2 ranks cannot share as [2,2]; give sizes"},
      {{"all_to_all", {"f32[5,2]"}, "{ranks=[0,1], group=\"g\", split_dim=0, concat_dim=1}"},
       "all_to_all: dim 0 has size 5, which 2 ranks cannot share equally"},
      {{"broadcast", {"f32[5]"}, "{ranks=[0,1], group=\"g\", root=2}"}, "broadcast: root=2 must be in [0, 2)"},
      {{"send", {"f32[5]"}, "{ranks=[0,1], group=\"g\", peer=-1}"}, "send: peer=-1 must be in [0, 2)"},
      {{"all_reduce", {"f32[5]"}, "{ranks=[], group=\"g\"}"}, "all_reduce: group \"g\" must have at least one rank"},
  };
  for (const auto& [c, message] : table) EXPECT_THAT(types_of(c), HasSubstr(message));
}

TEST(ArrayOps, IndexRules) {
  const std::pair<Call, const char*> table[] = {
      {{"add", {"f32[2,3]", "f32[3]"}}, "d0 d1, d1 -> d0 d1"},
      {{"mul", {"f32[2,1]", "f32[1,3]"}}, "d0 _, _ d1 -> d0 d1"},
      {{"select", {"bool[]", "f32[4]", "f32[4]"}}, "., d0, d0 -> d0"},
      {{"relu", {"f32[4]"}}, "d0 -> d0"},
      {{"cast", {"f32[4]"}, "{dtype=f16}"}, "d0 -> d0"},
      {{"reduce_sum", {"f32[2,3]"}, "{axes=[0]}"}, "d0 d1 -> d1"},
      {{"reduce_mean", {"f32[2,3]"}, "{axes=[0,1]}"}, "d0 d1 -> . : d0=mean, d1=mean"},
      {{"reduce_max", {"f32[2,3]"}, "{axes=[1], keep_dims}"}, "d0 d1 -> d0 _ : d1=max"},
      {{"reduce_all", {"bool[2,3]"}, "{axes=[1]}"}, "d0 d1 -> d0 : d1=min"},
      {{"reduce_any", {"bool[2,3]"}, "{axes=[1]}"}, "d0 d1 -> d0 : d1=max"},
      {{"reduce_prod", {"f32[2]"}, "{axes=[0]}"}, "d0 -> . : d0=prod"},
      {{"argmax", {"f32[2,3,4]"}, "{axis=1}"}, "d0 s d2 -> d0 d2 : s=min"},
      {{"top_k", {"f32[2,5]"}, "{k=3}"}, "d0 s -> d0 _, d0 _ : s=whole"},
      {{"top_k_grad", {"f32[2,3]", "i32[2,3]"}, "{size=5}"}, "d0 k, d0 k -> d0 s"},
      {{"cumsum", {"f32[2,5]"}, "{axis=0}"}, "s d1 -> s d1"},
      {{"reshape", {"f32[4,3,2]"}, "{shape=[4,6]}"}, "d0 d1 _ -> d0 d1"},
      {{"reshape", {"f32[8,5]"}, "{shape=[2,4,5]}"}, "d0 d1 -> d0 _ d1"},
      {{"reshape", {"f32[4,6]"}, "{shape=[3,8]}"}, "d0 _ -> d0 _"},
      {{"reshape", {"f32[7,64,1,1]"}, "{shape=[7,64]}"}, "d0 d1 _ _ -> d0 d1"},
      {{"reshape", {"f32[6,4,3]"}, "{shape=[24,3]}"}, "d0 _ d2 -> d0 d2"},
      {{"reshape", {"f32[0,3]"}, "{shape=[0,5]}"}, "d0 _ -> d0 _"},
      {{"transpose", {"f32[2,3,4]"}, "{perm=[2,0,1]}"}, "d0 d1 d2 -> d2 d0 d1"},
      {{"squeeze", {"f32[2,1,3]"}, "{axes=[1]}"}, "d0 _ d2 -> d0 d2"},
      {{"expand_dims", {"f32[2,3]"}, "{axes=[0,2]}"}, "d0 d1 -> _ d0 _ d1"},
      {{"concat", {"f32[2,3]", "f32[2,4]"}, "{axis=1}"}, "d0 d1, d0 d1 -> d0 d1"},
      {{"split", {"f32[2,4]"}, "{axis=1, sizes=[1,3]}"}, "d0 d1 -> d0 d1, d0 d1"},
      {{"strided_slice", {"f32[5,6]"}, "{begin=[0,1], end=[5,6], strides=[1,1]}"}, "d0 d1 -> d0 d1"},
      {{"strided_slice_grad", {"f32[5,5]"}, "{begin=[0,1], end=[5,6], strides=[1,1], shape=[5,6]}"}, "d0 d1 -> d0 d1"},
      {{"strided_slice", {"f32[5]"}, "{begin=[4], end=[-1], strides=[-2]}"}, "d0 -> d0"},
      {{"pad", {"f32[5,6]"}, "{before=[0,1], after=[0,0]}"}, "d0 d1 -> d0 d1"},
      {{"tile", {"f32[5,6]"}, "{multiples=[2,1]}"}, "d0 d1 -> d0 d1"},
      {{"broadcast_to", {"f32[3,1]"}, "{shape=[2,3,4]}"}, "d1 _ -> d0 d1 d2"},
      {{"fill", {}, "{shape=[2,3], value=1.0, dtype=f32}"}, " -> d0 d1"},
      {{"random_uniform", {"i64[]"}, "{shape=[2,3], dtype=f32, seed=1, stream=2}"}, ". -> d0 d1"},
      {{"range", {}, "{start=0, limit=3, delta=1, dtype=i32}"}, " -> d0"},
      {{"zeros_like", {"f32[2,3]"}}, "d0 d1 -> d0 d1"},
      {{"dropout", {"f32[2,3]", "i64[]"}, "{keep_prob=0.5, seed=1, stream=2}"}, "d0 d1, . -> d0 d1"},
      {{"one_hot", {"i32[2,3]", "f32[]", "f32[]"}, "{depth=4, axis=1}"}, "d0 d1, ., . -> d0 v d1"},
      {{"gather", {"f32[7,8]", "i32[2,3]"}}, "d0 d1, i0 i1 -> i0 i1 d1"},
      {{"gather", {"bool[7]", "i32[2]"}}, "d0, i0 -> i0 : d0=max"},
      {{"scatter_add", {"f32[7,8]", "i32[2]", "f32[2,8]"}}, "d0 d1, i0, i0 d1 -> d0 d1"},
      {{"all_reduce", {"f32[7]"}, "{ranks=[0,1], group=\"g\"}"}, "_ -> _"},
  };
  for (const auto& [c, rule] : table) EXPECT_EQ(rule_of(c), rule) << c.op << c.attributes;
}

// The local graph of part `part` of `parts` of one factor, as text.
std::string localized(const Call& c, const std::string& factor, int parts, int part) {
  ir::Graph global;
  const auto outputs = call(global, c);
  const OpDef& def = OpRegistry::instance().get(c.op);
  const Attributes attributes = global.node(0).attributes;
  ir::Graph local("local");
  LocalizeContext context{local, c.op, attributes, {}, {}, {}, {}, {}, {}, {{factor, parts}}};
  for (const auto& input : global.inputs()) context.global_inputs.push_back(global.type(input.value));
  for (const Value& value : outputs) context.global_outputs.push_back(value.type());
  const IndexRule rule = ops::rule_of(def, attributes, context.global_inputs, context.global_outputs);
  const auto cut = [&](const Type& type, const IndexRule::Dims& dims, std::vector<mesh::Range>& ranges) {
    Type result = type;
    for (int d = 0; d < type.shape.ndim(); ++d) {
      ranges.push_back(dims[static_cast<size_t>(d)] == factor ? mesh::balanced_part(type.shape[d], parts, part)
                                                              : mesh::Range{0, type.shape[d]});
      result.shape[d] = ranges.back().size;
    }
    return result;
  };
  for (size_t i = 0; i < context.global_inputs.size(); ++i) {
    const Type type = cut(context.global_inputs[i], rule.inputs[i], context.input_slices.emplace_back());
    context.inputs.push_back(local.add_input(ir::InputKind::kInput, fmt::format("x{}", i), type));
  }
  for (size_t o = 0; o < context.global_outputs.size(); ++o) {
    context.local_outputs.push_back(
        cut(context.global_outputs[o], rule.outputs[o], context.output_slices.emplace_back()));
  }
  const auto results = def.localize ? def.localize(context) : apply(local, c.op, context.inputs, attributes);
  for (size_t o = 0; o < results.size(); ++o) local.add_output(fmt::format("y{}", o), results[o]);
  return ir::print(local);
}

TEST(ArrayOps, AMeanOverASplitDimIsALocalSumOverTheGlobalCount) {
  EXPECT_EQ(localized({"reduce_mean", {"f32[7]"}, "{axes=[0]}"}, "d0", 4, 3),
            "graph local\n"
            "  input x0 f32[1]\n"
            "  %1 = reduce_sum x0 {axes=[0], keep_dims=false} : f32[]\n"
            "  %2 = fill {dtype=f32, shape=[], value=0.14285714285714285} : f32[]\n"
            "  %3 = mul %1, %2 : f32[]\n"
            "  return y0 = %3\n");
  // A half sum would overflow: the mean of the part, scaled.
  EXPECT_THAT(localized({"reduce_mean", {"f16[4,3]"}, "{axes=[0]}"}, "d0", 2, 0),
              testing::AllOf(HasSubstr("reduce_mean x0"), HasSubstr("value=0.5")));
  // Only a kept dim is split: nothing to scale.
  EXPECT_THAT(localized({"reduce_mean", {"f32[4,3]"}, "{axes=[0]}"}, "d1", 3, 0), testing::Not(HasSubstr("mul")));
}

TEST(ArrayOps, LocalizeGivesRandomNodesTheirCoordinates) {
  EXPECT_THAT(localized({"random_normal", {"i64[]"}, "{shape=[7,2], dtype=f32, seed=1, stream=2}"}, "d0", 3, 1),
              testing::AllOf(HasSubstr("global_shape=[7,2]"), HasSubstr("offset=[3,0]"), HasSubstr(" shape=[2,2]")));
  EXPECT_THAT(
      localized({"dropout", {"f32[4]", "i64[]"}, "{keep_prob=0.5, seed=1, stream=2, global_shape=[8], offset=[4]}"},
                "d0", 2, 1),
      testing::AllOf(HasSubstr("global_shape=[8]"), HasSubstr("offset=[6]")));
}

TEST(ArrayOps, LocalizeShiftsIndicesIntoTheRanksPiece) {
  EXPECT_EQ(localized({"gather", {"f32[5,2]", "i32[3]"}, "{axis=0}"}, "d0", 2, 1),
            "graph local\n"
            "  input x0 f32[2,2]\n"
            "  input x1 i32[3]\n"
            "  %1 = fill {dtype=i32, shape=[], value=3.0} : i32[]\n"
            "  %2 = sub x1, %1 : i32[3]\n"
            "  %3 = gather x0, %2 {axis=0, valid=[-3,2]} : f32[3,2]\n"
            "  return y0 = %3\n");
  // The index that names no row is shifted, too, and is good.
  EXPECT_THAT(localized({"gather", {"f32[5,2]", "i32[3]"}, "{axis=0, skipped=-1}"}, "d0", 2, 1),
              HasSubstr("gather x0, %2 {axis=0, skipped=-4, valid=[-4,2]} : f32[3,2]"));
  EXPECT_THAT(localized({"one_hot", {"u8[3]", "f32[]", "f32[]"}, "{depth=5}"}, "v", 2, 1),
              testing::AllOf(HasSubstr("cast x0 {dtype=i32}"), HasSubstr("depth=2")));
  // Only one rank adds the base.
  const Call scatter{"scatter_add", {"f32[5]", "i32[4]", "f32[4]"}, "{axis=0}"};
  EXPECT_THAT(localized(scatter, "i0", 2, 0), testing::Not(HasSubstr("zeros_like")));
  EXPECT_THAT(localized(scatter, "i0", 2, 1), HasSubstr("zeros_like x0"));
}

TEST(ArrayOps, AReshapeMovesNothingWherePartsDivideBothSides) {
  const Call merge{"reshape", {"f32[6,4]"}, "{shape=[24]}"};
  EXPECT_THAT(localized(merge, "d0", 3, 2), HasSubstr("reshape x0 {shape=[8]} : f32[8]"));
}

// Gradients of collectives, for a loss that is the sum of the ranks' losses: as text, since no single process runs
// them.
std::string gradient_of(const Call& c) {
  ir::Graph graph("gradient");
  const auto outputs = call(graph, c);
  const Attributes attributes = graph.node(0).attributes;
  std::vector<Value> inputs;
  for (const auto& input : graph.inputs()) inputs.push_back(graph.value(input.value));
  const std::vector<Value> dy = {graph.add_input(ir::InputKind::kInput, "dy", outputs[0].type())};
  const auto gradients = OpRegistry::instance().get(c.op).gradient({graph, attributes, inputs, outputs, dy});
  std::string text;
  for (ir::NodeId n = 1; n < graph.num_nodes(); ++n) {
    const auto& node = graph.node(n);
    text += text.empty() ? "" : "; ";
    text += node.op;
    for (const auto v : node.inputs) text += " " + graph.value_name(v);
    for (const char* name : {"reduction", "dim", "sizes", "split_dim", "concat_dim", "peer"}) {
      if (const auto* value = node.attributes.find(name)) text += fmt::format(" {}={}", name, to_string(*value));
    }
  }
  for (size_t i = 0; i < gradients.size(); ++i) EXPECT_EQ(gradients[i].type(), inputs[i].type());
  return text;
}

TEST(Collectives, GradientsAreTransposes) {
  const std::string group = "ranks=[4,5], group=\"g\", rank_in_group=1";
  EXPECT_EQ(gradient_of({"all_reduce", {"f32[3]"}, "{" + group + "}"}), "all_reduce dy reduction=\"sum\"");
  EXPECT_EQ(gradient_of({"all_reduce", {"f32[3]"}, "{" + group + ", reduction=\"max\"}"}),
            "all_reduce dy reduction=\"sum\"; equal x0 %1; cast %3; all_reduce %4 reduction=\"sum\"; div %2 %5; "
            "mul %4 %6");
  EXPECT_THAT(gradient_of({"all_reduce", {"f32[3]"}, "{" + group + ", reduction=\"prod\"}"}), HasSubstr("all_gather"));
  EXPECT_EQ(gradient_of({"all_gather", {"f32[3]"}, "{" + group + ", sizes=[4,3]}"}),
            "reduce_scatter dy reduction=\"sum\" dim=0 sizes=[4,3]");
  EXPECT_EQ(gradient_of({"reduce_scatter", {"f32[7]"}, "{" + group + ", sizes=[4,3]}"}),
            "all_gather dy dim=0 sizes=[4,3]");
  EXPECT_EQ(gradient_of({"broadcast", {"f32[7]"}, "{" + group + ", root=1}"}), "all_reduce dy reduction=\"sum\"");
  EXPECT_EQ(gradient_of({"broadcast", {"f32[7]"}, "{" + group + ", root=0}"}),
            "all_reduce dy reduction=\"sum\"; zeros_like %2");
  EXPECT_EQ(gradient_of({"all_to_all", {"f32[4,3]"}, "{" + group + ", split_dim=0, concat_dim=1}"}),
            "all_to_all dy split_dim=1 concat_dim=0");
  EXPECT_EQ(gradient_of({"send", {"f32[4]"}, "{" + group + ", peer=0}"}), "receive peer=0; add %2 dy");
  EXPECT_EQ(gradient_of({"receive", {}, "{" + group + ", peer=0, shape=[2], dtype=f32}"}), "send dy peer=0");
  EXPECT_THAT(
      [&] {
        gradient_of({"reduce_scatter", {"f32[8]"}, "{" + group + ", reduction=\"max\"}"});
      },
      testing::ThrowsMessage<InvalidArgument>(HasSubstr("reduce_scatter: no gradient for reduction \"max\"")));
}

TEST(ArrayOps, AGatherSkipsOnlyAnIndexOfNoRow) {
  EXPECT_EQ(types_of({"gather", {"f32[5,2]", "i32[3]"}, "{axis=0, skipped=-1}"}), "f32[3,2]");
  EXPECT_THAT(types_of({"gather", {"f32[5,2]", "i32[3]"}, "{axis=0, skipped=2}"}),
              HasSubstr("skipped must be negative, so that it names no row, got 2"));
  EXPECT_THAT(
      [] {
        gradient_of({"gather", {"f32[5,2]", "i32[3]"}, "{axis=0, skipped=-1}"});
      },
      testing::ThrowsMessage<InvalidArgument>(HasSubstr("gather: no gradient where an index is skipped")));
}

TEST(ArrayOps, NothingFlowsBackToIntegers) {
  const Call sum{"reduce_sum", {"i32[3]"}, "{axes=[0]}"};
  ir::Graph graph;
  const auto outputs = call(graph, sum);
  const Attributes attributes = graph.node(0).attributes;
  const std::vector<Value> inputs = {graph.value(graph.inputs()[0].value)};
  EXPECT_FALSE(OpRegistry::instance().get("reduce_sum").gradient({graph, attributes, inputs, outputs, {Value{}}})[0]);
}

}  // namespace
}  // namespace tessera::ops
