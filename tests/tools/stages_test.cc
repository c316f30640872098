// `tessera plan --stages` and `tessera simulate --stages`, run as their users run them.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"
#include "tessera/base/strings.h"
#include "tessera/pipeline/search/named.h"
#include "tessera/testing/test_folder.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

struct Outcome {
  int code = 0;
  std::string text;
};

Outcome run(const std::string& arguments) {
  const auto command = std::string(TESSERA_BINARY_DIR) + "/bin/tessera " + arguments + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  check(pipe != nullptr, "cannot start a process");
  Outcome outcome;
  std::array<char, 4096> part{};
  for (size_t n = 0; (n = fread(part.data(), 1, part.size(), pipe)) > 0;) outcome.text.append(part.data(), n);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

Json planned(const std::string& arguments) {
  const auto outcome = run("plan " + arguments + " --quiet --json");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  return Json::parse(outcome.text);
}

std::string scratch(const std::string& name) {
  static const TestFolder folder("stages-test");
  return folder.in(name);
}

// Links so slow that what is sent counts for much.
std::string slow_profile() {
  const auto path = scratch("slow_profile");
  std::ofstream(path) << R"({"name": "slow", "flops_per_second": {"f32": 1e12}, "memory_bytes_per_second": 1e11,
    "kernel_overhead_seconds": 1e-6, "ranks_per_host": 1,
    "intra_host": {"latency_seconds": 1e-5, "bytes_per_second": 1e9},
    "inter_host": {"latency_seconds": 1e-5, "bytes_per_second": 1e9}})";
  return path;
}

TEST(PlanStages, FiguresOfStagesAndCutsBelongTogether) {
  const auto plan = planned("lenet5 --devices 4 --batch_size 64 --stages 2 --micro_batches 8").at("pipeline");
  EXPECT_GE(plan.at("step_seconds").get<double>(), plan.at("bound_seconds").get<double>());
  ASSERT_EQ(plan.at("stages").size(), 2U);
  ASSERT_EQ(plan.at("cuts").size(), 1U);
  double longest = 0;
  for (const auto& stage : plan.at("stages")) {
    EXPECT_EQ(stage.at("num_ranks"), 2);
    const auto& chunk = stage.at("chunks")[0];
    const int64_t slots = chunk.at("slots").get<int64_t>() * chunk.at("slot_bytes").get<int64_t>();
    EXPECT_EQ(stage.at("memory_bytes"),
              stage.at("persistent_bytes").get<int64_t>() + stage.at("arena_bytes").get<int64_t>() + slots);
    longest = std::max(longest, chunk.at("forward_seconds").get<double>() + chunk.at("backward_seconds").get<double>() +
                                    chunk.at("weight_gradient_seconds").get<double>());
  }
  // All micro-batches pass through the longest stage.
  EXPECT_GE(plan.at("step_seconds").get<double>(), 8 * longest);
  const auto& cut = plan.at("cuts")[0];
  EXPECT_EQ(cut.at("after"), plan.at("stages")[0].at("chunks")[0].at("last_layer"));
  EXPECT_EQ(cut.at("before"), plan.at("stages")[1].at("chunks")[0].at("first_layer"));
  EXPECT_EQ(cut.at("forward_messages"), 8);
  EXPECT_EQ(plan.at("cells").at(cut.at("after").get<std::string>()), 0);
  EXPECT_EQ(plan.at("cells").at(cut.at("before").get<std::string>()), 1);
}

TEST(PlanStages, SegmentsAreWhatSetStageIsTold) {
  for (const auto& [schedule, last] : {std::pair{"interleaved_1f1b", 1}, std::pair{"zb_v", 0}}) {
    const auto plan =
        planned(fmt::format("lenet5 --devices 2 --batch_size 64 --stages 2 --micro_batches 4 --schedule {}", schedule))
            .at("pipeline");
    EXPECT_EQ(plan.at("num_segments"), 2);
    EXPECT_EQ(plan.at("cells").at("conv1"), (Json{0, 0})) << schedule;
    EXPECT_EQ(plan.at("cells").at("loss"), (Json{last, 1})) << schedule;
    for (const auto& stage : plan.at("stages")) {
      int64_t slots = 0;
      for (const auto& chunk : stage.at("chunks")) {
        slots += chunk.at("slots").get<int64_t>() * chunk.at("slot_bytes").get<int64_t>();
      }
      EXPECT_EQ(stage.at("chunks").size(), 2U);
      EXPECT_EQ(stage.at("memory_bytes"),
                stage.at("persistent_bytes").get<int64_t>() + stage.at("arena_bytes").get<int64_t>() + slots);
    }
  }
}

TEST(PlanStages, TheSearchedScheduleIsNoSlowerThanAnyThatHasAName) {
  const std::string step = "lenet5 --devices 4 --batch_size 64 --stages 2 --micro_batches 8 --schedule ";
  const double best = planned(step + "auto").at("pipeline").at("step_seconds");
  for (const char* name : {"gpipe", "1f1b", "zb_h1"}) {
    EXPECT_LE(best, planned(step + name).at("pipeline").at("step_seconds").get<double>()) << name;
  }
}

// What a plan prints as its schedule can be given back; a name that does not fit is refused for what it wants.
TEST(PlanStages, EveryScheduleThatHasANameIsTakenOrRefusedForWhatItWants) {
  const std::string step = "lenet5 --batch_size 64 --stages 2 --micro_batches 4 --schedule ";
  int num_taken = 0;
  for (const std::string& name : pipeline::schedule_names()) {
    for (const auto* command : {"plan --devices 2 --quiet ", "simulate --ranks 2 "}) {
      const auto outcome = run(command + step + name);
      if (outcome.code == 0) {
        EXPECT_NE(outcome.text.find(", schedule " + name + "\n"), std::string::npos) << outcome.text;
        ++num_taken;
      } else {
        EXPECT_EQ(outcome.text.find("error: pipeline schedule \"" + name + "\": "), 0U) << outcome.text;
      }
    }
  }
  EXPECT_GE(num_taken, 8);
  const auto found = planned("--devices 2 " + step + "auto").at("pipeline");
  const auto again = planned("--devices 2 " + step + found.at("schedule").get<std::string>()).at("pipeline");
  EXPECT_EQ(found.at("schedule"), "auto");
  EXPECT_EQ(again.at("step_seconds"), found.at("step_seconds"));
  EXPECT_EQ(again.at("found_by"), found.at("found_by"));
}

TEST(PlanStages, GpipeKeepsEveryMicroBatchAnd1f1bAsManyAsThereAreStagesFromHereOn) {
  const std::string step = "lenet5 --devices 2 --batch_size 64 --stages 2 --micro_batches 8 --schedule ";
  EXPECT_EQ(planned(step + "gpipe").at("pipeline").at("stages")[0].at("chunks")[0].at("slots"), 8);
  // Two in flight, and one that is received ahead.
  EXPECT_EQ(planned(step + "1f1b").at("pipeline").at("stages")[0].at("chunks")[0].at("slots"), 3);
  EXPECT_EQ(planned(step + "1f1b").at("pipeline").at("stages")[1].at("chunks")[0].at("slots"), 2);
}

TEST(PlanStages, EveryMemoryLimitIsKeptOrRefused) {
  const std::string step = "lenet5 --devices 2 --batch_size 256 --stages 2 --micro_batches 8 --memory_limit ";
  int num_kept = 0;
  int num_refused = 0;
  for (int64_t kib = 1024; kib <= 32768; kib = kib * 5 / 4) {
    const auto outcome = run(fmt::format("plan {}{}KiB --quiet --json", step, kib));
    if (outcome.code != 0) {
      EXPECT_EQ(outcome.code, 1) << outcome.text;
      EXPECT_NE(outcome.text.find("higher memory limit"), std::string::npos) << outcome.text;
      ++num_refused;
      continue;
    }
    const auto plan = Json::parse(outcome.text).at("pipeline");
    for (const auto& stage : plan.at("stages")) EXPECT_LE(stage.at("memory_bytes").get<int64_t>(), kib * 1024);
    ++num_kept;
  }
  EXPECT_GT(num_kept, 2);
  EXPECT_GT(num_refused, 2);
}

TEST(PlanStages, AutoIsNeverSlowerThanOneStageOrDataParallel) {
  for (const std::string& step :
       {std::string("mlp --devices 4 --batch_size 64"), std::string("lenet5 --devices 4 --batch_size 64"),
        std::string("mlp --devices 2 --batch_size 64 --num_classes 20000 --profile ") + slow_profile(),
        std::string("resnet50 --devices 2 --batch_size 16 --max_axes 1 --rounds 2 --profile ") + slow_profile()}) {
    const auto json = planned(step + " --stages auto");
    const auto& plan = json.at("pipeline");
    const double one_stage = json.at("one_stage_seconds");
    EXPECT_LE(one_stage, json.at("data_parallel_seconds").get<double>() * (1 + 1e-12)) << step;
    if (!plan.is_null()) {
      EXPECT_LT(plan.at("step_seconds").get<double>(), one_stage) << step;
    }
    for (const auto& candidate : json.at("candidates")) {
      if (!candidate.contains("step_seconds")) continue;
      const double seconds = candidate.at("step_seconds");
      if (plan.is_null()) {
        EXPECT_GE(seconds, 0.95 * one_stage) << step;
      } else {
        EXPECT_GE(seconds, plan.at("step_seconds").get<double>()) << step;
      }
    }
  }
}

TEST(PlanStages, WhyComparesTheCutWithItsNeighbours) {
  const auto outcome = run("plan lenet5 --devices 2 --batch_size 64 --stages 2 --quiet --why 0 --choices 2");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_TRUE(outcome.text.starts_with("cut 0 lies between ")) << outcome.text;
  EXPECT_EQ(std::count(outcome.text.begin(), outcome.text.end(), '\n'), 5) << outcome.text;
}

// A network whose last layer has most parameters: replicas of it cost more than all else.
std::string uneven_step() {
  return "mlp --devices 4 --batch_size 96 --num_classes 2000 --algorithm recursive_programming --profile " +
         slow_profile();
}

TEST(PlanStages, AutoDealsTheRanksUnequallyWhereThatIsFaster) {
  const auto json = planned(uneven_step() + " --stages auto");
  const auto& plan = json.at("pipeline");
  EXPECT_EQ(plan.at("stage_ranks"), (Json{3, 1}));
  EXPECT_GE(plan.at("dealt_gap").get<double>(), 0);
  int num_equal = 0;
  for (const auto& candidate : json.at("candidates")) {
    if (!candidate.contains("step_seconds") || candidate.at("stage_ranks") != Json{2, 2}) continue;
    EXPECT_GT(candidate.at("step_seconds").get<double>(), 2 * plan.at("step_seconds").get<double>());
    ++num_equal;
  }
  EXPECT_GT(num_equal, 2);
  // What was found is what its ranks come to when they are given.
  const auto again = planned(fmt::format("{} --stage_ranks 3,1 --micro_batches {}", uneven_step(),
                                         plan.at("micro_batches").get<int>()))
                         .at("pipeline");
  EXPECT_EQ(again.at("step_seconds"), plan.at("step_seconds"));
  EXPECT_EQ(again.at("cells"), plan.at("cells"));
  // The number of stages alone may be given.
  const auto of_two = planned(uneven_step() + " --stages 2 --stage_ranks auto");
  EXPECT_EQ(of_two.at("pipeline").at("stage_ranks"), (Json{3, 1}));
  EXPECT_TRUE(of_two.at("pipeline").contains("dealt_gap"));
  for (const auto& candidate : of_two.at("candidates")) EXPECT_EQ(candidate.at("num_stages"), 2);
  const auto text = run("plan " + uneven_step() + " --stages auto --quiet").text;
  EXPECT_NE(text.find("2 stages of 3 + 1 ranks, "), std::string::npos) << text;
  EXPECT_NE(text.find("\nranks     "), std::string::npos) << text;
}

TEST(PlanStages, WhyRanksSaysWhatOtherNumbersOfRanksCost) {
  const auto outcome = run("plan " + uneven_step() + " --stages auto --quiet --why ranks --choices 1");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_TRUE(outcome.text.starts_with("ranks 3 + 1: a step of ")) << outcome.text;
  EXPECT_NE(outcome.text.find("  stage 1: "), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find(" a micro-batch with 1 rank; "), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find("\n  ranks 2 each: a step of "), std::string::npos) << outcome.text;
  const auto of_given = run("plan lenet5 --devices 2 --batch_size 64 --stages 2 --quiet --why ranks");
  EXPECT_TRUE(of_given.text.starts_with("ranks 1 each: a step of ")) << of_given.text;
}

TEST(PlanStages, DiffSaysWhatTwoPipelinesDoDifferently) {
  const auto save = [](const std::string& name, const std::string& arguments) {
    const auto path = scratch(name);
    std::ofstream(path) << run("plan " + arguments + " --quiet --json").text;
    return path;
  };
  const auto equal = save("equal.json", "lenet5 --devices 4 --batch_size 96 --stages 2 --micro_batches 4");
  const auto unequal = save("unequal.json", "lenet5 --devices 4 --batch_size 96 --stage_ranks 1,3 --micro_batches 4");
  const auto outcome = run(fmt::format("plan lenet5 --diff {} {}", equal, unequal));
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_NE(outcome.text.find(": 2 stages of 2 + 2 ranks, 4 micro-batches, "), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find(": 2 stages of 1 + 3 ranks, 4 micro-batches, "), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find("\nstage 1: 2 ranks, "), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find("\ncells on other stages: "), std::string::npos) << outcome.text;
  EXPECT_NE(run(fmt::format("plan lenet5 --diff {0} {0}", equal)).text.find("cells on other stages: none\n"),
            std::string::npos);
  // What cannot be compared.
  const auto of_one_stage = save("one_stage.json", "mlp --devices 2 --batch_size 64 --stages auto");
  EXPECT_NE(run(fmt::format("plan lenet5 --diff {} {}", equal, of_one_stage)).text.find("one stage was taken"),
            std::string::npos);
  const auto plan = scratch("plan.json");
  run("plan mlp --devices 2 --batch_size 64 --quiet --out " + plan);
  EXPECT_NE(run(fmt::format("plan lenet5 --diff {} {}", equal, plan)).text.find("compare two of a kind"),
            std::string::npos);
  for (const auto& path : {equal, unequal, of_one_stage, plan}) std::filesystem::remove(path);
}

TEST(PlanStages, ThePageDrawsEveryPhaseAndAsksForNothing) {
  const auto path = scratch("page.html");
  const std::string step = "lenet5 --devices 2 --batch_size 64 --stages 2 --micro_batches 4 --schedule 1f1b";
  EXPECT_EQ(run("plan " + step + " --quiet --html " + path).code, 0);
  const auto page = FileSystem::local().read_text(path);
  size_t phases = 0;
  for (size_t at = 0; (at = page.find("<rect ", at)) != std::string::npos; ++at) ++phases;
  EXPECT_EQ(phases, 2U * (4 + 4 + 1));
  EXPECT_EQ(page.find("http"), std::string::npos);
  EXPECT_NE(page.find("forward of micro-batch 3"), std::string::npos);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tessera
