// The functions of functions.h: the graphs they write.
#include "tessera/ops/functions/functions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tessera/base/error.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;

// A graph with inputs by type; text() is its nodes, one a line.
struct Written {
  ir::Graph graph;
  Value operator()(const std::string& type) {
    return graph.add_input(ir::InputKind::kInput, fmt::format("x{}", graph.inputs().size()), parse_type(type));
  }
  std::string text() const {
    std::string result;
    const std::string all = ir::print(graph);
    for (size_t at = all.find("  %"); at != std::string::npos; at = all.find("  %", at + 1)) {
      result += all.substr(at + 2, all.find('\n', at) - at - 1);
    }
    return result;
  }
};

template <typename F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "not refused";
}

TEST(Functions, OperatorsPromoteAndNumbersTakeTheTensorsDtype) {
  Written w;
  const Value x = w("f32[2]");
  const Value sum = x * w("f64[2]") + 1;
  EXPECT_EQ(sum.dtype(), DType::kF64);
  EXPECT_EQ(w.text(),
            "%1 = cast x0 {dtype=f64} : f64[2]\n"
            "%2 = mul %1, x1 : f64[2]\n"
            "%3 = fill {dtype=f64, shape=[], value=1.0} : f64[]\n"
            "%4 = add %2, %3 : f64[2]\n");
  Written half;
  EXPECT_EQ((1.0 - half("bf16[2]")).dtype(), DType::kBF16);
  EXPECT_EQ((half("bf16[2]") / half("f16[2]")).dtype(), DType::kF32);
  EXPECT_EQ((half("bool[2]") + half("u8[2]")).dtype(), DType::kU8);
}

TEST(Functions, IntegerDivisionIsReal) {
  Written w;
  EXPECT_EQ((w("i32[2]") / 2).type(), parse_type("f32[2]"));
  EXPECT_EQ((1.0 / w("i64[2]")).type(), parse_type("f32[2]"));
  EXPECT_EQ((w("i64[2]") / w("u8[1]")).type(), parse_type("f32[2]"));
}

TEST(Functions, ANumberThatADtypeCannotHoldIsRefused) {
  Written w;
  const Value x = w("i32[2]");
  EXPECT_THAT(refusal([&] { x * 0.5; }), HasSubstr("mul: the number 0.5 is no i32; cast the other operand"));
  EXPECT_THAT(refusal([&] { w("u8[2]") + -1.0; }), HasSubstr("add: the number -1 is no u8"));
  EXPECT_EQ((x * 2).dtype(), DType::kI32);
  EXPECT_THAT(refusal([&] { add(1, 2); }), HasSubstr("add: needs at least one value"));
}

TEST(Functions, ComparisonsAndSelect) {
  Written w;
  const Value x = w("f32[2,3]");
  EXPECT_EQ((x > 0.0).type(), parse_type("bool[2,3]"));
  EXPECT_EQ(select(x > w("i32[3]"), x, 0).type(), parse_type("f32[2,3]"));
  EXPECT_EQ(equal(x, 1).dtype(), DType::kBool);
  EXPECT_EQ(cast(x, DType::kF32), x);
}

TEST(Functions, ErrorsNameTheCell) {
  Written w;
  const ir::SourceScope scope(w.graph, "layer1.up");
  EXPECT_THAT(refusal([&] { w("f32[2]") + w("f32[3]"); }),
              HasSubstr("add \"layer1.up\": shapes [2] and [3] do not broadcast"));
}

TEST(Functions, ReductionsTakeNegativeAxesAndNoneMeansAll) {
  Written w;
  const Value x = w("f32[2,3,4]");
  EXPECT_EQ(reduce_sum(x).shape(), Shape({}));
  EXPECT_EQ(reduce_mean(x, {-1, 0}).shape(), Shape({3}));
  EXPECT_EQ(reduce_max(x, {1}, true).shape(), Shape({2, 1, 4}));
  EXPECT_EQ(reduce_sum(w("bool[5]")).type(), parse_type("i32[]"));
  EXPECT_EQ(reduce_mean(w("u8[5]")).type(), parse_type("f32[]"));
  EXPECT_EQ(argmax(x).type(), parse_type("i32[2,3]"));
  EXPECT_EQ(top_k(x, 2).indices.type(), parse_type("i32[2,3,2]"));
  for (const int64_t axis : {0, -1}) {
    EXPECT_EQ(reduce_sum(w("f32[]"), {axis}).shape(), Shape({}));
    EXPECT_EQ(argmax(w("f32[]"), axis).shape(), Shape({}));
  }
  EXPECT_THAT(refusal([&] { reduce_sum(w("f32[]"), {1}); }), HasSubstr("axis 1 is outside"));
  EXPECT_THAT(refusal([&] { reduce_sum(x, {0, -3}); }), HasSubstr("reduce_sum: axis 0 is named twice in [0,-3]"));
  EXPECT_THAT(refusal([&] { reduce_sum(x, {3}); }), HasSubstr("reduce_sum: axis 3 is outside [-3, 3)"));
}

TEST(Functions, ReshapeInfersOneSize) {
  Written w;
  const Value x = w("f32[2,3,4]");
  EXPECT_EQ(reshape(x, {-1, 6}).shape(), Shape({4, 6}));
  EXPECT_EQ(flatten(x).shape(), Shape({2, 12}));
  EXPECT_THAT(refusal([&] { reshape(x, {-1, -1}); }), HasSubstr("only one size of [-1,-1] may be -1"));
  EXPECT_THAT(refusal([&] { reshape(x, {-1, 7}); }), HasSubstr("leave no size for -1 in [-1,7]"));
  EXPECT_THAT(refusal([&] { reshape(w("f32[0]"), {-1, 0}); }), HasSubstr("leave no size for -1"));
}

TEST(Functions, DimsAreMovedDroppedAndAdded) {
  Written w;
  const Value x = w("f32[2,1,4]");
  EXPECT_EQ(transpose(x).shape(), Shape({4, 1, 2}));
  EXPECT_EQ(transpose(x, {0, -1, 1}).shape(), Shape({2, 4, 1}));
  EXPECT_EQ(squeeze(x).shape(), Shape({2, 4}));
  EXPECT_EQ(squeeze(x, {-2}).shape(), Shape({2, 4}));
  EXPECT_EQ(expand_dims(x, {-1}).shape(), Shape({2, 1, 4, 1}));
  EXPECT_EQ(stack({x, x, x}, -1).shape(), Shape({2, 1, 4, 3}));
  EXPECT_EQ(concat({x, w("f64[2,2,4]")}, 1).type(), parse_type("f64[2,3,4]"));
  EXPECT_EQ(tile(x, {2, 3}).shape(), Shape({2, 2, 12}));
  EXPECT_EQ(tile(w("f32[3]"), {2, 2}).shape(), Shape({2, 6}));
  EXPECT_EQ(broadcast_to(x, {5, -1, 3, -1}).shape(), Shape({5, 2, 3, 4}));
  EXPECT_EQ(split(x, 2, -1)[1].shape(), Shape({2, 1, 2}));
  EXPECT_EQ(split_sizes(x, {1, 3}, -1)[1].shape(), Shape({2, 1, 3}));
  EXPECT_THAT(refusal([&] { split(x, 3, 0); }), HasSubstr("split: dim 0 of f32[2,1,4] cannot be cut into 3 equal"));
  EXPECT_THAT(refusal([&] { broadcast_to(x, {-1, 2, 1, 4}); }), HasSubstr("dim 0 of [-1,2,1,4] is new"));
  EXPECT_THAT(refusal([&] { concat({}, 0); }), HasSubstr("concat: needs at least one value"));
}

TEST(Functions, SlicesAreAsInPython) {
  struct Case {
    Ints begin, end, strides;
    const char* text;
  };
  const Case cases[] = {
      {{1}, {3}, {}, "begin=[1,0], end=[3,4], strides=[1,1]} : f32[2,4]"},
      {{-2}, {kToEnd}, {}, "begin=[3,0], end=[5,4], strides=[1,1]} : f32[2,4]"},
      {{0, 1}, {100, -1}, {2}, "begin=[0,1], end=[5,3], strides=[2,1]} : f32[3,2]"},
      {{-1}, {kToEnd}, {-1}, "begin=[4,0], end=[-1,4], strides=[-1,1]} : f32[5,4]"},
      {{100}, {1}, {-2}, "begin=[4,0], end=[1,4], strides=[-2,1]} : f32[2,4]"},
      {{4}, {2}, {}, "begin=[4,0], end=[2,4], strides=[1,1]} : f32[0,4]"},
      // Steps beyond the dim take its first element.
      {{0}, {kToEnd}, {std::numeric_limits<int64_t>::max()}, "begin=[0,0], end=[5,4], strides=[5,1]} : f32[1,4]"},
      {{-1}, {kToEnd}, {std::numeric_limits<int64_t>::min()}, "begin=[4,0], end=[-1,4], strides=[-5,1]} : f32[1,4]"},
      {{std::numeric_limits<int64_t>::min()}, {kToEnd}, {3}, "begin=[0,0], end=[5,4], strides=[3,1]} : f32[2,4]"},
      {{-100}, {-100}, {-1}, "begin=[-1,0], end=[-1,4], strides=[-1,1]} : f32[0,4]"},
  };
  for (const auto& [begin, end, strides, text] : cases) {
    Written w;
    slice(w("f32[5,4]"), begin, end, strides);
    EXPECT_THAT(w.text(), HasSubstr(text));
  }
  Written w;
  EXPECT_THAT(refusal([&] { slice(w("f32[5]"), {0}, {5}, {0}); }),
              HasSubstr("slice: the stride of dim 0 must not be 0"));
  EXPECT_THAT(refusal([&] { slice(w("f32[5]"), {0, 0}, {5, 5}); }), HasSubstr("slice: begin and end must have"));
}

TEST(Functions, MatmulTakesVectorsMatricesAndBatches) {
  const auto product = [](const char* lhs, const char* rhs, bool a = false, bool b = false) {
    Written w;
    return matmul(w(lhs), w(rhs), a, b).type().to_string();
  };
  EXPECT_EQ(product("f32[2,3]", "f32[3,4]"), "f32[2,4]");
  EXPECT_EQ(product("f32[3,2]", "f32[4,3]", true, true), "f32[2,4]");
  EXPECT_EQ(product("f32[3]", "f32[3]"), "f32[]");
  EXPECT_EQ(product("f32[3]", "f32[3,4]"), "f32[4]");
  EXPECT_EQ(product("f32[2,3]", "f32[3]"), "f32[2]");
  EXPECT_EQ(product("f32[5,2,3]", "f32[3,4]"), "f32[5,2,4]");
  EXPECT_EQ(product("f32[5,1,2,3]", "f32[6,3,4]"), "f32[5,6,2,4]");
  EXPECT_EQ(product("f32[3]", "f32[6,3,4]"), "f32[6,4]");
  EXPECT_EQ(product("bf16[2,3]", "f32[3,4]"), "f32[2,4]");
  EXPECT_THAT(refusal([&] { product("f32[]", "f32[3]"); }), HasSubstr("matmul: operands must have at least one dim"));
  EXPECT_THAT(refusal([&] { product("f32[2,3]", "f32[4,3]"); }), HasSubstr("matmul: "));
}

TEST(Functions, ConvolutionPadsAsAsked) {
  const auto convolution = [](const char* x, const char* weight, const ConvolutionOptions& options) {
    Written w;
    conv2d(w(x), w(weight), options);
    return w.text();
  };
  EXPECT_THAT(
      convolution("f32[2,3,32,32]", "f32[8,3,7,7]", {.stride = {2}, .pad_mode = PadMode::kSame}),
      testing::AllOf(HasSubstr("padding=[2,3,2,3]"), HasSubstr("strides=[2,2]"), HasSubstr(": f32[2,8,16,16]")));
  EXPECT_THAT(convolution("f32[2,3,9,8]", "f32[8,3,3,3]", {.stride = {4, 1}, .pad_mode = PadMode::kSame}),
              testing::AllOf(HasSubstr("padding=[1,1,1,1]"), HasSubstr(": f32[2,8,3,8]")));
  EXPECT_THAT(convolution("f32[2,4,9,9]", "f32[8,2,3,3]",
                          {.pad_mode = PadMode::kPad, .padding = {1, 0, 2, 0}, .dilation = {2}, .groups = 2}),
              testing::AllOf(HasSubstr("padding=[1,0,2,0]"), HasSubstr("dilation=[2,2]"), HasSubstr(": f32[2,8,6,7]")));
  EXPECT_THAT(convolution("f32[2,3,9,9]", "f32[8,3,3,3]", {}), HasSubstr(": f32[2,8,7,7]"));
  EXPECT_THAT(refusal([&] { convolution("f32[2,3,9,9]", "f32[8,3,3,3]", {.padding = {1}}); }),
              HasSubstr("conv2d: padding [1] needs pad_mode kPad"));
  EXPECT_THAT(refusal([&] {
                convolution("f32[2,3,9,9]", "f32[8,3,3,3]", {.stride = {1, 2, 3}});
              }),
              HasSubstr("conv2d: stride must have 1 or 2 entries, got [1,2,3]"));
}

TEST(Functions, PoolingAndNormalisation) {
  Written w;
  const Value x = w("f32[2,3,7,7]");
  EXPECT_EQ(max_pool2d(x, {.kernel = {3}, .stride = {2}, .pad_mode = PadMode::kSame}).shape(), Shape({2, 3, 4, 4}));
  EXPECT_EQ(avg_pool2d(x, {.kernel = {7}}).shape(), Shape({2, 3, 1, 1}));
  EXPECT_EQ(softmax(x, 1).shape(), Shape({2, 3, 7, 7}));
  EXPECT_EQ(log_softmax(x).shape(), Shape({2, 3, 7, 7}));
  EXPECT_EQ(softmax_cross_entropy(w("f32[4,10]"), w("i32[4]")).shape(), Shape({4}));
  EXPECT_EQ(layer_norm(w("f32[4,10]"), w("f32[10]"), w("f32[10]")).shape(), Shape({4, 10}));
}

TEST(Functions, CreationAndIndexing) {
  Written w;
  EXPECT_EQ(fill(w.graph, {2}, 3, DType::kI32).type(), parse_type("i32[2]"));
  EXPECT_EQ(range(w.graph, 0, 5, 2).type(), parse_type("i32[3]"));
  for (const double beyond : {0x1p53, 0x1p62, 0x1p63, 1e300}) {
    EXPECT_EQ(range(w.graph, 0, 10, beyond).type(), parse_type("i32[1]"));
    EXPECT_EQ(range(w.graph, 10, 0, -beyond).type(), parse_type("i32[1]"));
    EXPECT_EQ(range(w.graph, 10, 0, beyond).type(), parse_type("i32[0]"));
  }
  EXPECT_THAT(refusal([&] { range(w.graph, 0, 10, HUGE_VAL); }), HasSubstr("must be finite"));
  EXPECT_THAT(refusal([&] { range(w.graph, 0, 1e300, 0x1p62, DType::kI64); }),
              HasSubstr("has elements that are no int64"));
  EXPECT_THAT(refusal([&] { range(w.graph, -1e300, 0, 0x1p62, DType::kI64); }),
              HasSubstr("has elements that are no int64"));
  EXPECT_EQ(range(w.graph, 0, 1, 0.25, DType::kF32).type(), parse_type("f32[4]"));
  EXPECT_EQ(constant(w.graph, Tensor::of<int64_t>({2}, {1, -2})).type(), parse_type("i64[2]"));
  EXPECT_THAT(w.text(), HasSubstr("constant {dtype=i64, shape=[2], values=[1.0,-2.0]}"));
  EXPECT_THAT(refusal([&] { constant(w.graph, Tensor::scalar(int64_t{1} << 54)); }), HasSubstr("beyond 2^53"));
  EXPECT_THAT(refusal([&] { range(w.graph, 0, 5, 0.5); }), HasSubstr("range: start 0 and delta 0.5 must be whole"));
  const Value indices = w("i32[4]");
  EXPECT_EQ(one_hot(indices, 10).type(), parse_type("f32[4,10]"));
  EXPECT_EQ(one_hot(indices, 10, DType::kBF16, 0).type(), parse_type("bf16[10,4]"));
  EXPECT_EQ(gather(w("f32[7,8]"), indices, -1).type(), parse_type("f32[7,4]"));
  const Value step = w("i64[]");
  const RandomSource source{.seed = ~uint64_t{0}, .stream = 3};
  EXPECT_EQ(random_uniform(step, {2, 3}, source).type(), parse_type("f32[2,3]"));
  EXPECT_THAT(w.text(), HasSubstr("seed=-1"));
  const Value x = w("f32[2]");
  EXPECT_EQ(dropout(x, step, 1, source), x);
  EXPECT_EQ(dropout(x, step, 0.5, source).type(), parse_type("f32[2]"));
}

TEST(Functions, CollectivesCarryTheirGroup) {
  Written w;
  const RankGroup group{.name = "model", .ranks = {2, 5, 7}, .own = 1};
  const Type type = parse_type("f32[3,2]");
  const Value x = w("f32[3,2]");
  all_reduce(x, group, mesh::Reduction::kMax);
  EXPECT_EQ(all_gather(x, group, -1).shape(), Shape({3, 6}));
  EXPECT_EQ(all_gather(x, group, 0, {4, 3, 3}).shape(), Shape({10, 2}));
  EXPECT_EQ(reduce_scatter(x, group).shape(), Shape({1, 2}));
  EXPECT_EQ(all_to_all(x, group, 0, 1).shape(), Shape({1, 6}));
  EXPECT_EQ(broadcast(x, group, 2).type(), type);
  EXPECT_EQ(send(x, group, 0).type(), type);
  EXPECT_EQ(receive(w.graph, group, 0, type).type(), type);
  EXPECT_THAT(w.text(),
              HasSubstr("all_reduce x0 {bucket=-1, group=\"model\", lane=0, order=0, rank_in_group=1, ranks=[2,5,7], "
                        "reduction=\"max\"} : f32[3,2]"));
}

}  // namespace
}  // namespace tessera::ops
