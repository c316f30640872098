// The figures of `tessera plan --memory`, run as its users run it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/ir/graph.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

std::string run(const std::string& arguments) {
  FILE* pipe = popen((std::string(TESSERA_BINARY_DIR) + "/bin/tessera " + arguments + " 2>&1").c_str(), "r");
  check(pipe != nullptr, "cannot start a process");
  std::string text;
  std::array<char, 4096> part{};
  for (size_t n = 0; (n = fread(part.data(), 1, part.size(), pipe)) > 0;) text.append(part.data(), n);
  EXPECT_EQ(pclose(pipe), 0) << text;
  return text;
}

Json memory_of(const std::string& arguments) { return Json::parse(run("plan --memory --json " + arguments)); }

TEST(PlanMemory, WhatLivesAtThePeakComesToIt) {
  for (const char* arguments :
       {"lenet5", "lenet5 --ranks 3 --rank 2", "resnet50 --batch_size 16 --recompute auto --memory_limit 1GiB"}) {
    const auto json = memory_of(arguments);
    int64_t bytes = 0;
    for (const auto& value : json.at("at_peak")) bytes += value.at("bytes").get<int64_t>();
    EXPECT_EQ(bytes, json.at("peak_bytes")) << arguments;
    const auto alive = json.at("alive_bytes").get<std::vector<int64_t>>();
    EXPECT_EQ(*std::max_element(alive.begin(), alive.end()), bytes) << arguments;
    EXPECT_EQ(alive.at(json.at("peak_step").get<size_t>()), bytes) << arguments;
    EXPECT_GE(json.at("planned_bytes").get<int64_t>(), bytes) << arguments;
  }
}

// Of what a rank keeps from step to step, not of its batch.
TEST(PlanMemory, TheCopyOfAnAsyncSaveHasEachParameterAndState) {
  for (const std::string arguments : {"lenet5", "lenet5 --mesh data=2,model=2 --rank 3"}) {
    const auto graph = ir::parse(run("graph --stage local " + arguments));
    int64_t parameters = 0;
    int64_t states = 0;
    for (const auto& input : graph.inputs()) {
      const auto bytes = graph.type(input.value).size_bytes();
      if (input.kind == ir::InputKind::kParameter) parameters += bytes;
      if (input.kind == ir::InputKind::kState) states += bytes;
    }
    const auto json = memory_of(arguments);
    EXPECT_EQ(json.at("parameter_bytes"), parameters) << arguments;
    EXPECT_EQ(json.at("state_bytes"), states) << arguments;
    EXPECT_EQ(json.at("snapshot_bytes"), parameters + states) << arguments;
    EXPECT_THAT(run("plan --memory " + arguments),
                HasSubstr("a save with async_save keeps a copy of up to " + format_bytes(parameters + states)));
  }
}

}  // namespace
}  // namespace tessera
