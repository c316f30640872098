#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/models/gpt.h"
#include "tessera/nn/models/llama.h"
#include "tessera/nn/models/models.h"
#include "tessera/nn/models/resnet.h"
#include "tessera/nn/models/small.h"
#include "tessera/testing/traced_cells.h"

namespace tessera::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::ThrowsMessage;

constexpr DType kF32 = DType::kF32;

int64_t num_elements(const std::vector<Parameter*>& parameters) {
  int64_t total = 0;
  for (const Parameter* parameter : parameters) total += parameter->type.shape.num_elements();
  return total;
}

TEST(ResNet50, HasTheKnownNumberOfParameters) {
  EXPECT_EQ(num_elements(resnet50(1000)->trainable_parameters()), 25'557'032);
  const auto net = resnet50(10);
  EXPECT_EQ(num_elements(net->trainable_parameters()), 23'528'522);
  // 53 convolutions, 53 batch norms, one dense layer.
  EXPECT_EQ(net->trainable_parameters().size(), 53u + 2 * 53 + 2);
  EXPECT_EQ(net->parameters().size(), 53u + 4 * 53 + 2);
}

TEST(ResNet50, ParametersAreNamedAsTheTutorialsSampleNamesThem) {
  const auto net = resnet50(10);
  const auto names = names_of(net->parameters());
  EXPECT_EQ(names[0], "head.conv1.weight");
  EXPECT_EQ(names[1], "head.bn1.moving_mean");
  EXPECT_EQ(names[4], "head.bn1.beta");
  EXPECT_EQ(names.back(), "fc.bias");
  EXPECT_THAT(
      names, IsSupersetOf({"layer1.a.conv1.weight", "layer1.a.conv_down_sample.weight", "layer1.a.bn_down_sample.gamma",
                           "layer1.c.bn3.moving_variance", "layer2.a.conv_down_sample.weight", "layer2.d.conv2.weight",
                           "layer3.f.conv3.weight", "layer4.c.bn1.gamma", "fc.weight"}));
  EXPECT_THAT(names, testing::Not(testing::Contains("layer1.b.conv_down_sample.weight")));
}

TEST(ResNet50, WorksAtAnySize) {
  const auto net = resnet50(10);
  net->apply_settings({.training = true});
  for (const int64_t size : {32, 64, 224, 33, 1}) {
    EXPECT_EQ(result_of(*net, {kF32, {4, 3, size, size}}).shape, (Shape{4, 10})) << size;
  }
  EXPECT_EQ(result_of(*net, {kF32, {1, 3, 48, 96}}).shape, (Shape{1, 10}));
}

// The tutorials' sample puts a block's stride on its first convolution, not on the 3x3 one.
TEST(ResNet50, TheFirstConvolutionOfAStageCarriesTheStride) {
  const auto net = resnet50(10);
  const auto graph = trace(*net, {kF32, {2, 3, 224, 224}});
  std::vector<std::string> strided;
  for (ir::NodeId id = 0; id < graph.num_nodes(); ++id) {
    const auto& node = graph.node(id);
    if (node.op == "conv2d" && node.attributes.get_ints("strides") == Ints{2, 2}) strided.push_back(node.source);
  }
  EXPECT_THAT(strided, ElementsAre("head.conv1", "layer2.a.conv1", "layer2.a.conv_down_sample", "layer3.a.conv1",
                                   "layer3.a.conv_down_sample", "layer4.a.conv1", "layer4.a.conv_down_sample"));
}

TEST(ResNet50, TrainingMovesTheStatisticsOfEveryBatchNorm) {
  const auto net = resnet50(10);
  net->apply_settings({.training = true});
  EXPECT_EQ(trace(*net, {kF32, {2, 3, 32, 32}}).outputs().size(), 1u + 2 * 53);
  net->apply_settings({.training = false});
  EXPECT_EQ(trace(*net, {kF32, {2, 3, 32, 32}}).outputs().size(), 1u);
}

TEST(ResNet50, InitialValuesAreTheReferencesOrTheUsual) {
  const auto node_of = [](Cell& net, const std::string& name) {
    const Parameter& parameter = net.find_parameter(name);
    ir::Graph graph;
    parameter.init({.graph = graph, .type = parameter.type, .name = name});
    return graph.node(graph.num_nodes() - 1);
  };
  const auto reference = resnet50(10);
  EXPECT_EQ(node_of(*reference, "layer1.a.bn1.gamma").attributes.get_double("high"), 0.07);
  EXPECT_EQ(node_of(*reference, "layer1.a.bn1.beta").op, "fill");
  EXPECT_EQ(node_of(*reference, "layer1.a.conv1.weight").op, "random_uniform");
  EXPECT_EQ(node_of(*reference, "fc.bias").attributes.get_double("high"), 0.07);
  const auto usual = resnet50(10, {.initial_values = InitialValues::kUsual});
  EXPECT_EQ(node_of(*usual, "layer1.a.bn1.gamma").attributes.get_double("value"), 1.0);
  EXPECT_EQ(node_of(*usual, "layer1.a.conv1.weight").op, "random_normal");
}

TEST(ResNet50, AnImageOfOtherChannelsIsRefusedByTheFirstConvolution) {
  const auto net = resnet50(10);
  EXPECT_THAT(
      [&] {
        trace(*net, {kF32, {4, 1, 32, 32}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("conv2d \"head.conv1\"")));
  EXPECT_EQ(result_of(*resnet50(10, {.image_channels = 1}), {kF32, {4, 1, 32, 32}}).shape, (Shape{4, 10}));
}

TEST(Mlp, ForwardAndLossReadAsTheNetworkIsWritten) {
  const auto net = mlp(10);
  SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  ir::Graph graph("train_step");
  const Value x = graph.add_input(ir::InputKind::kInput, "x", {kF32, {32, 64}});
  const Value label = graph.add_input(ir::InputKind::kInput, "label", {DType::kI32, {32}});
  graph.add_output("loss", loss((*net)(x), label));
  EXPECT_EQ(ir::print(graph), R"(graph train_step
  input x f32[32,64]
  input label i32[32]
  param up.weight f32[256,64]
  param up.bias f32[256]
  param down.weight f32[10,256]
  param down.bias f32[10]
  %1 = matmul x, up.weight {transpose_a=false, transpose_b} : f32[32,256] @ up
  %2 = bias_add %1, up.bias : f32[32,256] @ up
  %3 = relu %2 : f32[32,256] @ .
  %4 = matmul %3, down.weight {transpose_a=false, transpose_b} : f32[32,10] @ down
  %5 = bias_add %4, down.bias : f32[32,10] @ down
  %6, %7 = softmax_cross_entropy %5, label : f32[32], f32[32,10] in f32 @ loss
  %8 = reduce_mean %6 {axes=[0], keep_dims=false} : f32[] in f32 @ loss
  return loss = %8
)");
  EXPECT_EQ(ir::print(ir::parse(ir::print(graph))), ir::print(graph));
}

TEST(LeNet5, TakesImagesOf32By32) {
  const auto net = lenet5(10);
  EXPECT_EQ(result_of(*net, {kF32, {4, 3, 32, 32}}).shape, (Shape{4, 10}));
  EXPECT_THAT(
      [&] {
        trace(*net, {kF32, {4, 3, 28, 28}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("Dense \"fc1\": takes [...,400], got f32[4,256]")));
}

// Shapes alone are counted: no machine could hold the values of the largest.
TEST(LanguageModels, HaveTheKnownNumberOfParameters) {
  const auto parameters_of = [](const char* name) {
    const auto& model = find_model(name);
    return num_elements(model.make(model.num_classes)->trainable_parameters());
  };
  EXPECT_EQ(parameters_of("gpt2_small"), 124'439'808);
  EXPECT_EQ(parameters_of("gpt3_96"), 174'604'259'328);
  EXPECT_EQ(parameters_of("llama_8b"), 8'030'261'248);
}

TEST(LanguageModels, RefuseHeadsThatDoNotFit) {
  EXPECT_THAT([] { llama({.num_heads = 32, .num_key_value_heads = 5}); },
              ThrowsMessage<InvalidArgument>("llama: num_key_value_heads 5 must divide num_heads 32"));
  EXPECT_THAT([] { llama({.hidden_size = 32, .num_heads = 32}); },
              ThrowsMessage<InvalidArgument>("llama: 2 * num_heads 64 must divide hidden_size 32"));
  EXPECT_THAT([] { gpt({.num_layers = 0}); }, ThrowsMessage<InvalidArgument>("gpt: needs at least one layer, got 0"));
  const auto net = gpt({.max_length = 8, .hidden_size = 4, .num_layers = 1, .num_heads = 1});
  EXPECT_THAT(
      [&] {
        result_of(*net, {DType::kI32, {2, 9}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("more tokens than the 8")));
}

TEST(Models, AreMadeByNameAndTakeTheirInput) {
  for (const auto& model : models()) {
    const auto net = make_model(model.name, 7);
    ir::Graph graph("model");
    std::vector<Value> inputs;
    for (const auto& input : model.batch_inputs(2)) {
      inputs.push_back(graph.add_input(ir::InputKind::kInput, input.name, input.type));
    }
    EXPECT_EQ((*net)(inputs).shape(), (Shape{2 * model.labels, 7})) << model.name;
  }
  EXPECT_THAT([] { make_model("resnet51", 10); },
              ThrowsMessage<InvalidArgument>(
                  "model \"resnet51\" is not known; there are: resnet50, resnet50_usual, lenet5, mlp, transformer, "
                  "gpt2_small, gpt3_96, llama_8b"));
  EXPECT_THROW(make_model("mlp", 0), InvalidArgument);
}

}  // namespace
}  // namespace tessera::nn
