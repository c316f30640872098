#include "tessera/nn/initializers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/random.h"

namespace tessera::nn {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// The node that makes the value of parameter "w".
ir::Node made_by(const Initializer& init, const Type& type, const std::string& name = "w", uint64_t seed = 5) {
  ir::Graph graph;
  const ir::Value value = init({.graph = graph, .type = type, .name = name, .seed = seed});
  EXPECT_EQ(value.type(), type);
  return graph.node(graph.info(value.id()).node);
}

double bound_of(const Initializer& init, const Shape& shape) {
  return made_by(init, {DType::kF32, shape}).attributes.get_double("high");
}

TEST(Initializers, ConstantsFill) {
  for (const auto& [init, value] : {std::pair{zeros(), 0.0}, std::pair{ones(), 1.0}, std::pair{constant(0.25), 0.25}}) {
    const auto node = made_by(init, {DType::kF32, {3}});
    EXPECT_EQ(node.op, "fill");
    EXPECT_EQ(node.attributes.get_double("value"), value);
  }
}

TEST(Initializers, DefaultsAreTheReferences) {
  const Type type{DType::kF32, {4, 3}};
  const auto gaussian = made_by(normal(), type);
  EXPECT_EQ(gaussian.op, "random_normal");
  EXPECT_EQ(gaussian.attributes.get_double("sigma"), 0.01);
  EXPECT_EQ(gaussian.attributes.get_double("mean"), 0.0);
  const auto even = made_by(uniform(), type);
  EXPECT_EQ(even.op, "random_uniform");
  EXPECT_EQ(even.attributes.get_double("low"), -0.07);
  EXPECT_EQ(even.attributes.get_double("high"), 0.07);
  const auto truncated = made_by(truncated_normal(), type);
  EXPECT_EQ(truncated.op, "random_truncated_normal");
  EXPECT_EQ(truncated.attributes.get_double("sigma"), 0.01);
}

TEST(Initializers, BoundsFollowTheFansOfDenseAndConvolution) {
  EXPECT_DOUBLE_EQ(bound_of(xavier_uniform(), {10, 64}), std::sqrt(6.0 / 74));
  EXPECT_DOUBLE_EQ(bound_of(xavier_uniform(2), {64, 3, 7, 5}), 2 * std::sqrt(6.0 / (3 * 35 + 64 * 35)));
  EXPECT_DOUBLE_EQ(bound_of(he_uniform(), {10, 64}), std::sqrt(6.0 / 64));
  EXPECT_DOUBLE_EQ(made_by(xavier_normal(2), {DType::kF32, {10, 64}}).attributes.get_double("sigma"),
                   2 * std::sqrt(2.0 / 74));
  EXPECT_DOUBLE_EQ(made_by(he_normal(), {DType::kF32, {64, 3, 7, 7}}).attributes.get_double("sigma"),
                   std::sqrt(2.0 / (64 * 49)));
}

TEST(Initializers, DrawsDependOnSeedAndNameOnly) {
  const Type type{DType::kF32, {4, 3}};
  const auto a = made_by(normal(), type, "a", 1).attributes;
  EXPECT_EQ(a.get_int("stream"), static_cast<int64_t>(hash_name("a")));
  EXPECT_EQ(a.get_int("seed"), 1);
  EXPECT_EQ(a, made_by(normal(), type, "a", 1).attributes);
  EXPECT_FALSE(a == made_by(normal(), type, "b", 1).attributes);
  EXPECT_FALSE(a == made_by(normal(), type, "a", 2).attributes);
}

TEST(Initializers, AreKnownByNameInAnyCase) {
  const Type type{DType::kF32, {4, 3}};
  for (const char* name : {"XavierUniform", "xavier_uniform", "XAVIER_UNIFORM"}) {
    EXPECT_EQ(made_by(initializer(name), type).attributes, made_by(xavier_uniform(), type).attributes);
  }
  EXPECT_EQ(made_by(initializer("TruncatedNormal"), type).op, "random_truncated_normal");
  EXPECT_EQ(made_by(initializer("Ones"), type).op, "fill");
}

TEST(Initializers, AnUnknownNameIsAnsweredWithTheList) {
  EXPECT_THAT([] { initializer("gaussian"); },
              ThrowsMessage<InvalidArgument>(
                  "initializer \"gaussian\" is not known; there are: he_normal, he_uniform, normal, ones, "
                  "truncated_normal, uniform, xavier_normal, xavier_uniform, zeros"));
}

TEST(Initializers, WhatDoesNotFitTheParameterIsRefusedByItsName) {
  EXPECT_THAT(
      [] {
        made_by(xavier_uniform(), {DType::kF32, {4}}, "fc.bias");
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("parameter \"fc.bias\" f32[4]: xavier_uniform needs at least")));
  EXPECT_THAT(
      [] {
        made_by(normal(), {DType::kI32, {4}}, "ids");
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("parameter \"ids\" is i32[4]")));
  EXPECT_THROW(normal(-1), InvalidArgument);
  EXPECT_THROW(uniform(std::nan("")), InvalidArgument);
}

}  // namespace
}  // namespace tessera::nn
