// Claims about choosing a network's parameters by pattern.
#include "tessera/nn/tuning/parameter_patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/optimizers/momentum.h"

namespace tessera::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

struct Backbone : Cell {
  Dense& first = child<Dense>("first", 2, 3);
  BatchNorm1d& norm = child<BatchNorm1d>("norm", 3);
};
struct Network : Cell {
  Backbone& backbone = child<Backbone>("backbone");
  Dense& head = child<Dense>("head", 3, 1);
};

std::vector<std::string> names_of(const auto& parameters) {
  std::vector<std::string> names;
  for (const Parameter* parameter : parameters) names.push_back(parameter->full_name());
  return names;
}

TEST(ParameterPatterns, StarsStandForAnyTextAndCellsForAllBelow) {
  for (const char* pattern : {"*", "a.b.c", "a.*", "*.c", "a*c", "a.?.c", "a", "a.b", "*b*", "?.b", "**c", "a.?"}) {
    EXPECT_TRUE(matches_pattern(pattern, "a.b.c")) << pattern;
  }
  for (const char* pattern : {"", "b", "a.b.c.d", "a.", "*.d", "c", "?b", "a.b.c?"}) {
    EXPECT_FALSE(matches_pattern(pattern, "a.b.c")) << pattern;
  }
  // A star that must give back what it took.
  EXPECT_TRUE(matches_pattern("*ab*abc", "aababxabababc"));
  EXPECT_FALSE(matches_pattern("*ab*abd", "aababxabababc"));
}

TEST(ParameterPatterns, FreezingLeavesTheRestTrainable) {
  Network network;
  EXPECT_THAT(names_of(freeze(network, "backbone.first")), ElementsAre("backbone.first.weight", "backbone.first.bias"));
  EXPECT_THAT(names_of(network.trainable_parameters()),
              ElementsAre("backbone.norm.gamma", "backbone.norm.beta", "head.weight", "head.bias"));
  freeze(network, "*");
  EXPECT_THAT(names_of(network.trainable_parameters()), ElementsAre());
  EXPECT_EQ(unfreeze(network, "*.bias").size(), 2);
  EXPECT_THAT(names_of(network.trainable_parameters()), ElementsAre("backbone.first.bias", "head.bias"));
}

TEST(ParameterPatterns, MovingStatisticsAreNotUnfrozen) {
  Network network;
  const auto before = names_of(network.trainable_parameters());
  freeze(network, "backbone.*");
  unfreeze(network, "backbone.*");
  EXPECT_EQ(names_of(network.trainable_parameters()), before);
}

TEST(ParameterPatterns, NamesBeginAtTheCellThatIsAsked) {
  Network network;
  EXPECT_THAT(names_of(matching_parameters(network.backbone, "first.weight")), ElementsAre("backbone.first.weight"));
  EXPECT_THROW(matching_parameters(network.backbone, "backbone.first.weight"), InvalidArgument);
}

TEST(ParameterPatterns, WhatMatchesNothingNamesWhatIsNear) {
  Network network;
  EXPECT_THAT([&] { freeze(network, "backbon.*"); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("pattern \"backbon.*\" matches none of the 8 parameters; did you mean backbone?")));
  EXPECT_THAT([&] { freeze(network, "head.wieght"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("did you mean head.weight?")));
  EXPECT_THAT([&] { freeze(network, "somewhere_else_entirely"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("they are backbone.first.weight, ")));
}

TEST(ParameterPatterns, TheFirstPatternThatMatchesDecides) {
  Network network;
  const auto groups = group_parameters(
      network, {{.pattern = "*.bias", .weight_decay = 0.0}, {.pattern = "backbone", .learning_rate = 1e-4}});
  ASSERT_EQ(groups.size(), 2);
  EXPECT_THAT(names_of(groups[0].parameters), ElementsAre("backbone.first.bias", "head.bias"));
  EXPECT_THAT(names_of(groups[1].parameters),
              ElementsAre("backbone.first.weight", "backbone.norm.gamma", "backbone.norm.beta"));
  EXPECT_EQ(groups[0].weight_decay, 0.0);
  EXPECT_FALSE(groups[0].learning_rate);
  EXPECT_EQ(groups[1].learning_rate->values()[0], 1e-4);
  const Momentum optimizer({.learning_rate = 0.1, .groups = groups});
  const auto trained = network.trainable_parameters();
  std::vector<std::string> states;
  for (const auto& state : optimizer.states(trained)) states.push_back(state.full_name());
  EXPECT_THAT(states, testing::IsSupersetOf({"learning_rate", "learning_rate_group_1"}));
}

TEST(ParameterPatterns, AGroupWithoutParametersIsRefused) {
  Network network;
  EXPECT_THAT(
      [&] {
        group_parameters(network, {{.pattern = "head"}, {.pattern = "head.bias"}});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("pattern \"head.bias\" gets no parameters: \"head\" in front of it has")));
  freeze(network, "head");
  EXPECT_THAT([&] { group_parameters(network, {{.pattern = "head.*"}}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("matches only parameters that are not trained")));
}

}  // namespace
}  // namespace tessera::nn
