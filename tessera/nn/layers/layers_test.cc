#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/nn/gradients/clipping.h"
#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/convolution.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/layers/pooling.h"
#include "tessera/testing/traced_cells.h"

namespace tessera::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr DType kF32 = DType::kF32;

// A network with one layer at "block.layer", so that errors have a path to name.
template <typename Layer>
struct Net : Cell {
  struct Block : Cell {
    template <typename... Args>
    explicit Block(Args&&... args) : layer(child<Layer>("layer", std::forward<Args>(args)...)) {}
    Value construct(Value x) override { return layer(x); }
    Layer& layer;
  };
  template <typename... Args>
  explicit Net(Args&&... args) : block(child<Block>("block", std::forward<Args>(args)...)) {}
  Value construct(Value x) override { return block(x); }
  Block& block;
};

const ir::Node& only_node(const ir::Graph& graph, const std::string& op) {
  const ir::Node* found = nullptr;
  for (ir::NodeId id = 0; id < graph.num_nodes(); ++id) {
    if (graph.node(id).op != op) continue;
    EXPECT_EQ(found, nullptr) << "two nodes of " << op;
    found = &graph.node(id);
  }
  if (found == nullptr) throw InvalidArgument("no node of {}", op);
  return *found;
}

TEST(Conv2d, SamePaddingKeepsTheCeilingOfSizeOverStride) {
  struct Row {
    int64_t size, kernel, stride, dilation, result, before, after;
  };
  for (const Row& row :
       {Row{224, 7, 2, 1, 112, 2, 3}, Row{32, 3, 1, 1, 32, 1, 1}, Row{7, 3, 2, 1, 4, 1, 1}, Row{8, 3, 2, 1, 4, 0, 1},
        Row{5, 1, 2, 1, 3, 0, 0}, Row{9, 3, 1, 2, 9, 2, 2}, Row{1, 3, 2, 1, 1, 1, 1}}) {
    Conv2d conv(2, 4, {.kernel = row.kernel, .stride = row.stride, .dilation = row.dilation});
    const auto graph = trace(conv, {kF32, {2, 2, row.size, 10}});
    const auto& padding = only_node(graph, "conv2d").attributes.get_ints("padding");
    EXPECT_EQ(graph.type(graph.find_output("y")->value).shape[2], row.result) << row.size;
    EXPECT_EQ(padding[0], row.before) << row.size;
    EXPECT_EQ(padding[1], row.after) << row.size;
  }
}

TEST(Conv2d, ValidAndPadModes) {
  Conv2d valid(3, 6, {.kernel = 5, .pad_mode = "valid"});
  EXPECT_EQ(result_of(valid, {kF32, {2, 3, 32, 32}}).shape, (Shape{2, 6, 28, 28}));
  Conv2d padded(3, 6, {.kernel = {3, 5}, .stride = {1, 2}, .pad_mode = "pad", .padding = {1, 0, 2, 3}});
  EXPECT_EQ(result_of(padded, {kF32, {2, 3, 9, 10}}).shape, (Shape{2, 6, 8, 6}));
}

TEST(Conv2d, GroupsAndBiasShapeTheParameters) {
  Conv2d conv(4, 8, {.kernel = {3, 5}, .group = 2, .has_bias = true});
  ASSERT_THAT(names_of(conv.parameters()), ElementsAre("weight", "bias"));
  EXPECT_EQ(conv.parameters()[0]->type.shape, (Shape{8, 2, 3, 5}));
  EXPECT_THAT(ops_of(trace(conv, {kF32, {2, 4, 6, 6}})), ElementsAre("conv2d", "bias_add"));
}

TEST(Conv1d, IsAConvolutionOfImagesOfOneRow) {
  Conv1d conv(4, 6, {.kernel = 3, .stride = 2, .group = 2, .has_bias = true});
  ASSERT_THAT(names_of(conv.parameters()), ElementsAre("weight", "bias"));
  EXPECT_EQ(conv.parameters()[0]->type.shape, (Shape{6, 2, 1, 3}));
  EXPECT_EQ(result_of(conv, {kF32, {2, 4, 9}}).shape, (Shape{2, 6, 5}));
  Conv1d padded(4, 6, {.kernel = 3, .pad_mode = "pad", .padding = 2, .dilation = 2});
  EXPECT_EQ(result_of(padded, {kF32, {2, 4, 9}}).shape, (Shape{2, 6, 9}));
  EXPECT_THAT(
      [&] {
        result_of(conv, {kF32, {2, 4, 9, 1}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("Conv1d \".\": takes [n,c,l], got f32[2,4,9,1]")));
}

TEST(Conv2dTranspose, MakesAsMuchAsItsConvolutionReads) {
  struct Row {
    int64_t size, kernel, stride, dilation;
    const char* mode;
    int64_t padding, more, result;
  };
  for (const Row& row :
       {Row{5, 3, 2, 1, "same", 0, 0, 10}, Row{5, 3, 2, 1, "valid", 0, 0, 11}, Row{5, 1, 2, 1, "valid", 0, 0, 10},
        Row{5, 3, 2, 2, "pad", 1, 0, 11}, Row{5, 3, 2, 1, "pad", 1, 1, 10}}) {
    Conv2dTranspose conv(4, 6,
                         {.kernel = row.kernel,
                          .stride = row.stride,
                          .pad_mode = row.mode,
                          .padding = row.padding,
                          .output_padding = row.more,
                          .dilation = row.dilation,
                          .group = 2});
    EXPECT_EQ(conv.parameters()[0]->type.shape, (Shape{4, 3, row.kernel, row.kernel}));
    EXPECT_EQ(result_of(conv, {kF32, {2, 4, row.size, row.size}}).shape, (Shape{2, 6, row.result, row.result}))
        << row.mode << " " << row.kernel;
  }
  EXPECT_THAT([] { Conv2dTranspose conv(4, 6, {.kernel = 3, .output_padding = 1}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("0 unless pad_mode is \"pad\"; got 1 and 1")));
  Conv1dTranspose row(4, 6, {.kernel = 4, .stride = 2});
  EXPECT_EQ(row.parameters()[0]->type.shape, (Shape{4, 6, 1, 4}));
  EXPECT_EQ(result_of(row, {kF32, {2, 4, 5}}).shape, (Shape{2, 6, 10}));
}

TEST(Conv2d, ErrorsNameThePathAndBothTypes) {
  Net<Conv2d> net(3, 8, Conv2dOptions{.kernel = 3});
  EXPECT_THAT(
      [&] {
        trace(net, {kF32, {2, 4, 8, 8}});
      },
      ThrowsMessage<InvalidArgument>(
          testing::AllOf(HasSubstr("conv2d \"block.layer\""), HasSubstr("f32[2,4,8,8]"), HasSubstr("f32[8,3,3,3]"))));
  EXPECT_THAT(
      [&] {
        trace(net, {kF32, {2, 4}});
      },
      ThrowsMessage<InvalidArgument>("conv2d \"block.layer\": takes images [n,c,h,w], got f32[2,4]"));
}

TEST(Conv2d, SettingsThatCannotWorkAreRefused) {
  EXPECT_THAT([] { Conv2d(3, 8, {.kernel = 3, .pad_mode = "full"}); },
              ThrowsMessage<InvalidArgument>("Conv2d: pad_mode \"full\" is not one of same, valid, pad"));
  EXPECT_THAT([] { Conv2d(3, 8, {.kernel = 3, .padding = 1}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("padding is given, but pad_mode is \"same\"")));
  EXPECT_THAT([] { Conv2d(3, 8, {.kernel = 3, .group = 2}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("got 3 -> 8, group 2")));
  EXPECT_THROW(Conv2d(3, 8, {.kernel = 0}), InvalidArgument);
  EXPECT_THROW(Conv2d(3, 8, {.kernel = 3, .stride = 0}), InvalidArgument);
  EXPECT_THROW(Conv2d(3, 8, {.kernel = 3, .pad_mode = "pad", .padding = -1}), InvalidArgument);
}

TEST(Layers, InitialValuesOfABiasThatThereIsNotAreRefused) {
  const auto refuses = [](const auto& make, const char* who) {
    EXPECT_THAT(
        make, ThrowsMessage<InvalidArgument>(
                  std::string(who) + ": bias_init has no effect without a bias: set has_bias, or leave bias_init out"));
  };
  refuses([] { Dense(3, 2, {.bias_init = "ones", .has_bias = false}); }, "Dense");
  refuses([] { Conv2d(3, 8, {.kernel = 3, .bias_init = "ones"}); }, "Conv2d");
  refuses([] { Conv2dTranspose(3, 8, {.kernel = 3, .bias_init = "ones"}); }, "Conv2dTranspose");
  refuses([] { Conv1d(3, 8, {.kernel = 3, .bias_init = "ones"}); }, "Conv1d");
  refuses([] { Conv1dTranspose(3, 8, {.kernel = 3, .bias_init = "ones"}); }, "Conv1dTranspose");
  EXPECT_NO_THROW(Conv1d(3, 8, {.kernel = 3}));
  EXPECT_NO_THROW(Conv1d(3, 8, {.kernel = 3, .has_bias = true, .bias_init = "ones"}));
}

TEST(Dense, MultipliesTheLastDim) {
  Dense dense(4, 3);
  EXPECT_EQ(result_of(dense, {kF32, {5, 4}}).shape, (Shape{5, 3}));
  EXPECT_EQ(result_of(dense, {kF32, {2, 5, 4}}).shape, (Shape{2, 5, 3}));
  EXPECT_EQ(result_of(dense, {kF32, {4}}).shape, (Shape{3}));
  EXPECT_EQ(result_of(dense, {kF32, {0, 4}}).shape, (Shape{0, 3}));
  Dense plain(4, 3, {.has_bias = false, .activation = "gelu"});
  EXPECT_THAT(ops_of(trace(plain, {kF32, {5, 4}})), ElementsAre("matmul", "gelu"));
}

TEST(Dense, ErrorsNameThePathAndTheWeight) {
  Net<Dense> net(4, 3);
  EXPECT_THAT(
      [&] {
        trace(net, {kF32, {5, 6}});
      },
      ThrowsMessage<InvalidArgument>("Dense \"block.layer\": takes [...,4], got f32[5,6]; its weight is f32[3,4]"));
  EXPECT_THAT([] { Dense(4, 3, {.activation = "swish"}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("activation \"swish\" is not known; there are: gelu, relu")));
  EXPECT_THROW(Dense(0, 3), InvalidArgument);
}

TEST(Embedding, ReadsRowsByNumber) {
  Embedding embedding(100, 8);
  ASSERT_THAT(names_of(embedding.parameters()), ElementsAre("embedding_table"));
  EXPECT_EQ(result_of(embedding, {DType::kI32, {2, 5}}), (Type{kF32, {2, 5, 8}}));
  EXPECT_THROW(result_of(embedding, {kF32, {2, 5}}), InvalidArgument);
}

TEST(Pooling, ShapesFollowThePadMode) {
  MaxPool2d same({.kernel = 3, .stride = 2, .pad_mode = "same"});
  EXPECT_EQ(result_of(same, {kF32, {2, 4, 112, 7}}).shape, (Shape{2, 4, 56, 4}));
  AvgPool2d valid({.kernel = 2, .stride = 2});
  EXPECT_EQ(result_of(valid, {kF32, {2, 4, 8, 7}}).shape, (Shape{2, 4, 4, 3}));
  AvgPool2d counted({.kernel = 3, .pad_mode = "pad", .padding = 1, .count_include_pad = true});
  EXPECT_TRUE(only_node(trace(counted, {kF32, {2, 4, 8, 8}}), "avg_pool2d").attributes.get_bool("count_include_pad"));
  EXPECT_THROW(MaxPool2d({.count_include_pad = true}), InvalidArgument);
  EXPECT_THROW(result_of(same, {kF32, {2, 4}}), InvalidArgument);
}

TEST(Activations, KeepTheType) {
  const Type type{kF32, {2, 5}};
  ReLU relu;
  Sigmoid sigmoid;
  Tanh tanh;
  GELU gelu(/*approximate=*/false);
  Softmax softmax;
  for (Cell* cell : std::initializer_list<Cell*>{&relu, &sigmoid, &tanh, &gelu, &softmax}) {
    EXPECT_EQ(result_of(*cell, type), type);
  }
  EXPECT_FALSE(only_node(trace(gelu, type), "gelu").attributes.get_bool("approximate"));
  EXPECT_EQ(only_node(trace(softmax, type), "softmax").attributes.get_int("axis"), 1);
  Softmax out_of_range(2);
  EXPECT_THROW(trace(out_of_range, type), InvalidArgument);
}

TEST(BatchNorm2d, ParametersAreInTheOrderOfTheReference) {
  BatchNorm2d norm(4);
  EXPECT_THAT(names_of(norm.parameters()), ElementsAre("moving_mean", "moving_variance", "gamma", "beta"));
  EXPECT_THAT(names_of(norm.trainable_parameters()), ElementsAre("gamma", "beta"));
  BatchNorm2d fixed(4, {.affine = false});
  EXPECT_TRUE(fixed.trainable_parameters().empty());
}

TEST(BatchNorm2d, TrainingUsesTheBatchAndMovesTheStatistics) {
  BatchNorm2d norm(4, {.momentum = 0.75});
  norm.apply_settings({.training = true});
  EXPECT_EQ(text_of(norm, {kF32, {2, 4, 3, 1}}), R"(graph forward
  input x f32[2,4,3,1]
  param moving_mean f32[4]
  param moving_variance f32[4]
  param gamma f32[4]
  param beta f32[4]
  %1 = batch_norm_mean x {counts=[6], grouped=false} : f32[4] @ .
  %2 = batch_norm_variance x, %1 {counts=[6], grouped=false} : f32[4] @ .
  %3 = moving_average moving_mean, %1 {momentum=0.75, scales=[1.0]} : f32[4] @ .
  %4 = moving_average moving_variance, %2 {momentum=0.75, scales=[1.2]} : f32[4] @ .
  %5 = batch_norm x, %1, %2, gamma, beta {batch_stats, counts=[6], eps=1e-05, grouped=false} : f32[2,4,3,1] @ .
  return y = %5, moving_mean = %3, moving_variance = %4
)");
}

TEST(BatchNorm2d, EvaluationUsesTheMovingStatistics) {
  BatchNorm2d norm(4);
  EXPECT_EQ(text_of(norm, {kF32, {2, 4, 3, 1}}), R"(graph forward
  input x f32[2,4,3,1]
  param moving_mean f32[4]
  param moving_variance f32[4]
  param gamma f32[4]
  param beta f32[4]
  %1 = batch_norm x, moving_mean, moving_variance, gamma, beta {batch_stats=false, counts=[6], eps=1e-05, grouped=false} : f32[2,4,3,1] @ .
  return y = %1
)");
}

TEST(BatchNorm2d, GroupsHaveStatisticsOfTheirBalancedPartsOfTheBatch) {
  BatchNorm2d norm(4);
  norm.apply_settings({.training = true, .batch_norm_groups = 2});
  EXPECT_EQ(text_of(norm, {kF32, {5, 4, 3, 1}}), R"(graph forward
  input x f32[5,4,3,1]
  param moving_mean f32[2,4]
  param moving_variance f32[2,4]
  param gamma f32[4]
  param beta f32[4]
  %1 = batch_norm_mean x {counts=[9,6], grouped} : f32[2,4] @ .
  %2 = batch_norm_variance x, %1 {counts=[9,6], grouped} : f32[2,4] @ .
  %3 = moving_average moving_mean, %1 {momentum=0.9, scales=[1.0]} : f32[2,4] @ .
  %4 = moving_average moving_variance, %2 {momentum=0.9, scales=[1.125,1.2]} : f32[2,4] @ .
  %5 = batch_norm x, %1, %2, gamma, beta {batch_stats, counts=[9,6], eps=1e-05, grouped} : f32[5,4,3,1] @ .
  return y = %5, moving_mean = %3, moving_variance = %4
)");
  norm.apply_settings({.training = true});
  EXPECT_EQ(norm.find_parameter("moving_mean").type.shape, (Shape{4}));
}

TEST(BatchNorm2d, EvaluationTakesABatchOfFewerRowsThanGroups) {
  BatchNorm2d norm(4);
  norm.apply_settings({.training = false, .batch_norm_groups = 3});
  EXPECT_EQ(only_node(trace(norm, {kF32, {2, 4, 3, 1}}), "batch_norm").attributes.get_ints("counts"), (Ints{3, 3, 0}));
}

TEST(BatchNorm2d, UseBatchStatisticsOverridesTheMode) {
  const Type type{kF32, {2, 4, 3, 1}};
  BatchNorm2d always(4, {.use_batch_statistics = true});
  EXPECT_THAT(ops_of(trace(always, type)), ElementsAre("batch_norm_mean", "batch_norm_variance", "batch_norm"));
  BatchNorm2d never(4, {.use_batch_statistics = false});
  never.apply_settings({.training = true});
  EXPECT_THAT(ops_of(trace(never, type)), ElementsAre("batch_norm"));
}

TEST(BatchNorm2d, HalfImagesHaveF32Statistics) {
  BatchNorm2d norm(4);
  norm.apply_settings({.training = true});
  const auto graph = trace(norm, {DType::kBF16, {2, 4, 3, 3}});
  EXPECT_EQ(graph.type(graph.find_output("y")->value).dtype, DType::kBF16);
  EXPECT_EQ(graph.type(graph.find_output("moving_mean")->value).dtype, kF32);
  set_parameter_dtype(norm, DType::kF64);
  const auto wide = trace(norm, {DType::kF64, {2, 4, 3, 3}});
  EXPECT_EQ(wide.type(wide.find_output("moving_mean")->value).dtype, DType::kF64);
}

TEST(BatchNorm2d, ABatchThatLeavesAGroupEmptyIsRefused) {
  Net<BatchNorm2d> net(4);
  net.apply_settings({.training = true, .batch_norm_groups = 4});
  EXPECT_THAT(
      [&] {
        trace(net, {kF32, {3, 4, 2, 2}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("batch_norm \"block.layer\": f32[3,4,2,2] leaves nothing")));
  EXPECT_THAT(
      [&] {
        trace(net, {kF32, {8, 5, 2, 2}});
      },
      ThrowsMessage<InvalidArgument>("batch_norm \"block.layer\": has 4 channels, got f32[8,5,2,2]"));
  EXPECT_THROW(BatchNorm2d(0), InvalidArgument);
  EXPECT_THROW(BatchNorm2d(4, {.momentum = 1.5}), InvalidArgument);
  EXPECT_THROW(BatchNorm2d(4, {.eps = 0}), InvalidArgument);
}

TEST(LayerNorm, NormalisesTheTrailingDims) {
  LayerNorm norm({3, 4});
  EXPECT_EQ(result_of(norm, {kF32, {2, 5, 3, 4}}), (Type{kF32, {2, 5, 3, 4}}));
  EXPECT_THAT(names_of(norm.parameters()), ElementsAre("gamma", "beta"));
  EXPECT_THROW(trace(norm, {kF32, {2, 4}}), InvalidArgument);
  EXPECT_THROW(trace(norm, {kF32, {4}}), InvalidArgument);
}

TEST(Dropout, DrawsAnewForEveryCallAndFromTheStep) {
  struct Two : Cell {
    Dropout& drop = child<Dropout>("drop", 0.8);
    Value construct(Value x) override { return drop(drop(x)); }
  };
  Two net;
  net.apply_settings({.training = true, .seed = 3});
  const auto graph = trace(net, {kF32, {2, 4}});
  ASSERT_THAT(ops_of(graph), ElementsAre("dropout", "dropout"));
  EXPECT_EQ(graph.find_input("random_step")->kind, ir::InputKind::kState);
  EXPECT_EQ(graph.node(0).attributes.get_int("seed"), 3);
  EXPECT_NE(graph.node(0).attributes.get_int("stream"), graph.node(1).attributes.get_int("stream"));
  EXPECT_EQ(ir::print(graph), text_of(net, {kF32, {2, 4}})) << "a second trace draws the same";
}

TEST(Dropout, DoesNothingInEvaluation) {
  Dropout drop(0.5);
  EXPECT_TRUE(ops_of(trace(drop, {kF32, {2, 4}})).empty());
  EXPECT_THROW(Dropout(0), InvalidArgument);
  EXPECT_THROW(Dropout(1.5), InvalidArgument);
}

TEST(AdaptiveAvgPool2d, MakesAResultOfAnySize) {
  AdaptiveAvgPool2d whole(1, 1);
  EXPECT_EQ(result_of(whole, {kF32, {2, 3, 7, 5}}), (Type{kF32, {2, 3, 1, 1}}));
  EXPECT_THAT(ops_of(trace(whole, {kF32, {2, 3, 7, 5}})), ElementsAre("avg_pool2d"));
  AdaptiveAvgPool2d uneven(3, std::nullopt);
  EXPECT_EQ(result_of(uneven, {kF32, {2, 3, 7, 5}}), (Type{kF32, {2, 3, 3, 5}}));
  AdaptiveAvgPool2d larger(4, 4);
  EXPECT_EQ(result_of(larger, {kF32, {2, 3, 3, 3}}), (Type{kF32, {2, 3, 4, 4}}));
  EXPECT_THROW(AdaptiveAvgPool2d(0, 1), InvalidArgument);
}

TEST(BatchNorm1d, NormalisesColumns) {
  Net<BatchNorm1d> net(3);
  EXPECT_EQ(result_of(net, {kF32, {8, 3}}), (Type{kF32, {8, 3}}));
  EXPECT_THAT(names_of(net.parameters()), ElementsAre("block.layer.moving_mean", "block.layer.moving_variance",
                                                      "block.layer.gamma", "block.layer.beta"));
  EXPECT_THAT(
      [&] {
        trace(net, {kF32, {8, 3, 2, 2}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("batch_norm \"block.layer\": x must be [n,c], got f32[8,3,2,2]")));
}

TEST(Clipping, KeepsTypesAndRefusesWhatCannotBound) {
  ir::Graph graph("clipping");
  const Value x = graph.add_input(ir::InputKind::kInput, "x", {DType::kBF16, {4, 3}});
  const Value y = graph.add_input(ir::InputKind::kInput, "y", {kF32, {5}});
  EXPECT_EQ(clip_by_value(x, -1, std::nullopt).type(), x.type());
  EXPECT_EQ(clip_by_norm(x, 1, {1}).type(), x.type());
  const auto clipped = clip_by_global_norm(std::vector{x, y}, 1);
  EXPECT_EQ(clipped[0].type(), x.type());
  EXPECT_EQ(clipped[1].type(), y.type());
  EXPECT_THROW(clip_by_value(x, std::nullopt, std::nullopt), InvalidArgument);
  EXPECT_THROW(clip_by_norm(x, 0), InvalidArgument);
  EXPECT_THROW(clip_by_global_norm({}, 1), InvalidArgument);
}

}  // namespace
}  // namespace tessera::nn
