// Runs the golden files of this folder: a case's input is the file INPUT of its commands. `tools_test --update`
// rewrites the files with what the command gives now: read the difference before you keep it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"
#include "tessera/compiler/choose_plan.h"
#include "tessera/testing/golden.h"
#include "tessera/testing/test_folder.h"

namespace tessera::testing_support {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/tools";
const std::string kCommand = std::string(TESSERA_BINARY_DIR) + "/bin/tessera ";

std::string path_of(const std::string& name) { return (kFolder / (name + ".golden")).string(); }

std::filesystem::path scratch(const std::string& name) {
  static const TestFolder folder("tools-test");
  return folder.in(name);
}

// What the command prints. Throws InvalidArgument with what it prints instead when it fails.
std::string run_tool(const std::string& arguments, const std::string& before = "") {
  FILE* pipe = popen((before + kCommand + arguments + " 2>&1").c_str(), "r");
  check(pipe != nullptr, "cannot start a process");
  std::string text;
  std::array<char, 4096> part{};
  for (size_t n = 0; (n = fread(part.data(), 1, part.size(), pipe)) > 0;) text.append(part.data(), n);
  const int status = pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text;
  throw InvalidArgument(text);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// A command on a folder of files: each begins with a line `file NAME`.
std::string run_tool_on_folder(const std::string& input, const std::string& command) {
  const auto folder = scratch("folder");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream file;
  std::istringstream lines(input);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("file ")) {
      file = std::ofstream(folder / line.substr(5));
    } else {
      file << line << "\n";
    }
  }
  file.close();
  return replaced(run_tool(replaced(command, "FOLDER", folder.string())), folder.string(), "FOLDER");
}

std::string run_tool_on(const std::string& input, const std::string& command) {
  if (command.find("FOLDER") != std::string::npos) return run_tool_on_folder(input, command);
  const auto file = scratch("input").string();
  std::ofstream(file) << input;
  try {
    return replaced(run_tool(replaced(command, "INPUT", file)), file, "INPUT");
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(replaced(error.what(), file, "INPUT"));
  }
}

class ToolGoldens : public testing::TestWithParam<const char*> {};

TEST_P(ToolGoldens, GiveWhatIsWritten) {
  const auto text = FileSystem::local().read_text(path_of(GetParam()));
  const auto file = parse_golden(text, GetParam());
  EXPECT_EQ(print(file), text);
  for (const auto& expected : file.cases) {
    const auto actual = run_golden(expected, run_tool_on);
    for (size_t i = 0; i < expected.runs.size(); ++i) {
      EXPECT_EQ(actual.runs[i].refused, expected.runs[i].refused) << expected.claim << "\n" << expected.runs[i].command;
      EXPECT_EQ(actual.runs[i].output, expected.runs[i].output) << expected.claim << "\n" << expected.runs[i].command;
    }
  }
}

constexpr std::array kFiles = {"graph", "plan", "planning", "report", "simulate", "stages", "why"};
INSTANTIATE_TEST_SUITE_P(All, ToolGoldens, testing::ValuesIn(kFiles),
                         [](const auto& info) { return std::string(info.param); });

TEST(Graph, EveryStageOfEveryNetworkPrintsAsTextAndForGraphviz) {
  for (const char* model : {"mlp", "lenet5"}) {
    for (const char* stage : {"forward", "backward", "logical", "plan", "local", "schedule"}) {
      const auto arguments = fmt::format("graph {} --mesh data=2,model=2 --stage {} {} ", model, stage,
                                         std::string_view(stage) == "schedule" ? "--fake_kernels" : "");
      const auto dot = run_tool(arguments + "--format dot");
      EXPECT_TRUE(dot.starts_with("digraph ") && dot.ends_with("}\n")) << dot;
      EXPECT_EQ(std::count(dot.begin(), dot.end(), '{'), std::count(dot.begin(), dot.end(), '}')) << arguments;
      EXPECT_FALSE(run_tool(arguments).empty());
    }
  }
}

TEST(Graph, TheTextOfAStepIsAModelAgain) {
  const auto file = scratch("step");
  std::ofstream(file) << run_tool("graph mlp --batch_size 12");
  for (const char* stage :
       {"logical", "plan --ranks 3", "local --ranks 3 --rank 2", "schedule --ranks 3 --fake_kernels"}) {
    const auto arguments = fmt::format(" --stage {}", stage);
    EXPECT_EQ(run_tool("graph " + file.string() + arguments), run_tool("graph mlp --batch_size 12" + arguments));
  }
}

TEST(Simulate, TheJsonSaysWhatTheTableRounds) {
  const auto json = nlohmann::json::parse(run_tool("simulate mlp --ranks 8 --batch_size 100 --json"));
  EXPECT_EQ(json.at("num_ranks"), 8);
  ASSERT_EQ(json.at("classes").size(), 2U);
  for (const auto& c : json.at("classes")) {
    EXPECT_EQ(c.at("step_seconds").get<double>(),
              c.at("compute_seconds").get<double>() + c.at("exposed_seconds").get<double>());
    EXPECT_EQ(c.at("groups").at("data").at("received_bytes"), c.at("received_bytes"));
  }
}

// Two nodes of two choices; apart they would take 0 and 0, which is forbidden.
std::string small_problem(int64_t usage_limit) {
  return fmt::format(R"({{"problem": {{"name": "small",
      "nodes": {{"intervals": [[0, 2], [1, 3]], "costs": [[1, 2], [1, 5]], "usages": [[3, 4], [3, 1]]}},
      "edges": {{"nodes": [[0, 1]], "costs": [[1000000000000000000, 0, 0, 0]]}}, "usage_limit": {}}}}})",
                     usage_limit);
}

TEST(Solve, TheLastLineIsTheChoices) {
  const auto file = scratch("problem");
  std::ofstream(file) << small_problem(7);
  const auto text = run_tool("solve --quiet " + file.string());
  EXPECT_TRUE(text.starts_with("small: 2 nodes, 1 edge: optimal after ")) << text;
  EXPECT_TRUE(text.ends_with("cost 3, bound 3, gap 0.000 %\npeak usage 7 at 1 of 7\n[1, 0]\n")) << text;
  const auto json = run_tool("solve --quiet --json " + file.string());
  const auto result = nlohmann::json::parse(json);  // one object, and nothing else
  EXPECT_EQ(result.at("status"), "optimal");
  EXPECT_EQ(result.at("cost"), 3);
  EXPECT_EQ(result.at("bound"), 3);
  EXPECT_EQ(result.at("choices"), nlohmann::json({1, 0}));
}

TEST(Solve, WithoutASolutionItFails) {
  const auto file = scratch("problem");
  std::ofstream(file) << small_problem(3);
  try {
    run_tool("solve --quiet " + file.string());
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("small: 2 nodes, 1 edge: infeasible")) << error.what();
  }
}

TEST(Simulate, TheTraceHoldsEveryStepOnItsLane) {
  const auto file = scratch("trace");
  run_tool("simulate mlp --ranks 2 --trace " + file.string());
  const auto json = nlohmann::json::parse(FileSystem::local().read_text(file.string()));
  double compute_end = 0;
  int num_collectives = 0;
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    if (event.at("tid") == 1) {
      ++num_collectives;
      continue;
    }
    EXPECT_NEAR(event.at("ts").get<double>(), compute_end, 1e-6);
    compute_end = event.at("ts").get<double>() + event.at("dur").get<double>();
  }
  EXPECT_GT(num_collectives, 0);
  const auto simulated = nlohmann::json::parse(run_tool("simulate mlp --ranks 2 --json"));
  EXPECT_NEAR(compute_end, simulated.at("step_seconds").get<double>() * 1e6, 1e-6);
}

// The failing command's text.
std::string refusal_of(const std::string& arguments) {
  try {
    return "accepted: " + run_tool(arguments);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

constexpr const char* kPlanMlp = "plan mlp --devices 4 --batch_size 4096 --quiet ";

TEST(Plan, WhatIsWrittenIsLoadedAndCostsTheSame) {
  const auto file = scratch("plan").string();
  const auto searched = nlohmann::json::parse(run_tool(kPlanMlp + ("--json --out " + file)));
  const auto loaded = nlohmann::json::parse(run_tool(kPlanMlp + ("--json --load " + file)));
  EXPECT_EQ(loaded.at("plan"), searched.at("plan"));
  EXPECT_EQ(loaded.at("operators"), searched.at("operators"));
  EXPECT_FALSE(loaded.contains("search"));
  EXPECT_TRUE(
      run_tool(kPlanMlp + fmt::format("--diff {} {}", file, file)).ends_with("all operators are split alike\n"));
  EXPECT_EQ(refusal_of("plan mlp --quiet --devices 8 --load " + file),
            "error: " + file + " is for 4 ranks, --ranks says 8\n");
}

TEST(Plan, WhatProvesNoBoundIsWrittenWithoutOne) {
  const auto bound_in = [](const std::string& file) {
    const auto predicted = nlohmann::json::parse(FileSystem::local().read_text(file)).at("predicted");
    EXPECT_GT(predicted.at("seconds").get<double>(), 0);
    return predicted.value("bound", nlohmann::json());
  };
  const auto proven = scratch("proven").string();
  run_tool(kPlanMlp + ("--out " + proven));
  EXPECT_GT(bound_in(proven).get<double>(), 0);
  const auto unproven = scratch("unproven").string();
  run_tool(kPlanMlp + ("--algorithm recursive_programming --out " + unproven));
  EXPECT_TRUE(bound_in(unproven).is_null()) << bound_in(unproven);
  // Loaded and written again it says no more.
  const auto again = scratch("again").string();
  run_tool(kPlanMlp + fmt::format("--load {} --out {}", unproven, again));
  EXPECT_EQ(FileSystem::local().read_text(again), FileSystem::local().read_text(unproven));
}

TEST(Plan, CostsTheSumOfItsOperatorsWhichIsNoLessThanTheBoundAsASearchCounts) {
  const auto json = nlohmann::json::parse(run_tool(kPlanMlp + std::string("--json")));
  const auto& search = json.at("search");
  EXPECT_LE(search.at("bound_seconds").get<double>(), search.at("cost_seconds").get<double>());
  double seconds = json.at("output_seconds").get<double>();
  for (const auto& op : json.at("operators")) {
    for (const char* part : {"compute_seconds", "own_seconds", "way_seconds"}) seconds += op.at(part).get<double>();
  }
  EXPECT_NEAR(seconds, json.at("plan").at("seconds").get<double>(), 1e-9 * seconds);
  const double searched = json.at("plan").at("searched_seconds").get<double>();
  EXPECT_GE(searched, seconds * (1 - 1e-9));
  EXPECT_GE(searched, search.at("bound_seconds").get<double>() * (1 - 1e-9));
}

// LeNet-5's best plan on two ranks is the search's.
TEST(Plan, OfTheSearchHasOneFigure) {
  const auto json = nlohmann::json::parse(run_tool("plan lenet5 --batch_size 8 --devices 2 --quiet --json"));
  ASSERT_EQ(json.at("taken").at("plan"), "search");
  const auto& search = json.at("search");
  const auto& plan = json.at("plan");
  EXPECT_EQ(search.at("seconds"), plan.at("seconds"));
  const double cost = search.at("cost_seconds").get<double>();
  EXPECT_NEAR(plan.at("searched_seconds").get<double>(), cost, 1e-9 * cost);
}

TEST(Plan, ADifferenceNamesWhatAnEditChanged) {
  const auto first = scratch("first").string();
  const auto second = scratch("second").string();
  run_tool(kPlanMlp + ("--out " + first));
  auto plan = nlohmann::ordered_json::parse(FileSystem::local().read_text(first));
  for (auto& op : plan.at("operators")) {
    if (op.at("operator") == "up:matmul" && !op.contains("gradient")) op.erase("split");
  }
  std::ofstream(second) << plan.dump();
  const auto text = run_tool(kPlanMlp + fmt::format("--diff {} {}", first, second));
  // Plans that cost the same may split it along another factor.
  const auto at = text.find("  up:matmul: ");
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_TRUE(text.substr(at, text.find('\n', at) - at).ends_with("=x -> not split")) << text;
}

// What `tessera simulate` says of plain data parallel is no better, whatever the algorithm that found the plan.
TEST(Plan, IsNeverSlowerThanDataParallelAsItIsSimulated) {
  struct Sample {
    const char* step;
    int num_ranks;
  };
  constexpr std::array kSamples = {Sample{"mlp --batch_size 4096", 2},
                                   Sample{"mlp --batch_size 4096", 7},
                                   Sample{"mlp --batch_size 512", 8},
                                   Sample{"lenet5", 3},
                                   Sample{"lenet5", 4},
                                   Sample{"resnet50", 8}};
  for (const auto& [step, num_ranks] : kSamples) {
    const auto by_batch =
        nlohmann::json::parse(run_tool(fmt::format("simulate {} --ranks {} --json", step, num_ranks)));
    for (const char* algorithm : {"certified", "dynamic_programming", "recursive_programming"}) {
      const auto command = fmt::format("plan {} --devices {} --algorithm {} --rounds 4 --max_axes 1 --quiet --json",
                                       step, num_ranks, algorithm);
      const auto json = nlohmann::json::parse(run_tool(command));
      const auto& taken = json.at("taken");
      const double seconds = taken.at("step_seconds").get<double>();
      EXPECT_LE(seconds, taken.at("data_parallel_step_seconds").get<double>()) << command;
      EXPECT_LE(seconds, by_batch.at("step_seconds").get<double>() * (1 + 1e-9)) << command;
      for (const auto& candidate : json.at("candidates")) {
        EXPECT_GE(candidate.at("step_seconds").get<double>(), (1 - compiler::kWorthwhile) * seconds) << command;
      }
    }
  }
}

TEST(Plan, TextJsonPageAndFileSayWhichPlanWasTaken) {
  const auto file = scratch("taken").string();
  const auto page = scratch("taken_page").string();
  const auto json = nlohmann::json::parse(run_tool(kPlanMlp + fmt::format("--json --out {} --html {}", file, page)));
  const auto reason = json.at("taken").at("reason").get<std::string>();
  EXPECT_NE(run_tool(kPlanMlp).find("taken: " + reason), std::string::npos) << reason;
  EXPECT_NE(FileSystem::local().read_text(page).find("taken: " + reason), std::string::npos) << reason;
  const auto record = nlohmann::json::parse(FileSystem::local().read_text(file));
  EXPECT_EQ(record.at("predicted").at("seconds"), json.at("taken").at("step_seconds"));
  EXPECT_EQ(record.at("predicted").at("added_up"), json.at("plan").at("seconds"));
  EXPECT_EQ(record.at("predicted").at("added_up_by_search"), json.at("plan").at("searched_seconds"));
}

TEST(Plan, ABudgetIsMetUntilAFigureGrowsByMoreThanItsTolerance) {
  const auto file = scratch("budget").string();
  run_tool(kPlanMlp + ("--write_budget " + file));
  const auto met = run_tool(kPlanMlp + ("--check " + file));
  EXPECT_EQ(met.find("FAIL"), std::string::npos) << met;
  EXPECT_NE(met.find("ok    step_seconds "), std::string::npos) << met;

  auto budget = nlohmann::ordered_json::parse(FileSystem::local().read_text(file));
  auto& most = budget.at("budget").at("peak_bytes").at("most");
  most = most.get<int64_t>() * 9 / 10;
  std::ofstream(file) << budget.dump();
  const auto text = refusal_of(kPlanMlp + ("--check " + file));
  EXPECT_NE(text.find("FAIL  peak_bytes "), std::string::npos) << text;
  EXPECT_NE(text.find("ok    received_bytes "), std::string::npos) << text;
  // What is within the tolerance is met again.
  budget.at("budget").at("peak_bytes").at("tolerance") = 0.2;
  std::ofstream(file) << budget.dump();
  run_tool(kPlanMlp + ("--check " + file));
}

TEST(Plan, ABudgetThatIsCheckedIsNotReplaced) {
  const auto file = scratch("budget").string();
  run_tool(kPlanMlp + ("--write_budget " + file));
  const auto before = FileSystem::local().read_text(file);
  const auto text = refusal_of(kPlanMlp + ("--check " + file + " --write_budget " + file));
  EXPECT_NE(text.find("--write_budget would replace " + file + ", which --check reads"), std::string::npos) << text;
  EXPECT_EQ(FileSystem::local().read_text(file), before);
  run_tool(kPlanMlp + ("--check " + file + " --write_budget " + scratch("other_budget").string()));
}

TEST(Plan, ABudgetOfAnotherStepIsRefused) {
  const auto file = scratch("budget").string();
  run_tool(kPlanMlp + ("--write_budget " + file));
  EXPECT_EQ(refusal_of("plan mlp --devices 2 --quiet --check " + file),
            "error: " + file + ": the budget is for num_ranks 4, this plan is for 2\n");
  EXPECT_EQ(refusal_of("plan lenet5 --devices 4 --quiet --check " + file),
            "error: " + file + ": the budget is for model \"mlp\", this plan is for \"lenet5\"\n");
  std::ofstream(file) << "{}";
  EXPECT_EQ(refusal_of(kPlanMlp + ("--check " + file)),
            "error: " + file + ": is no budget; tessera plan --write_budget makes one\n");
}

TEST(Plan, ThePageHoldsEveryOperatorAndAsksForNothing) {
  const auto file = scratch("page").string();
  run_tool(kPlanMlp + ("--simulate --html " + file));
  const auto page = FileSystem::local().read_text(file);
  const std::string begin = R"(<script type="application/json" id="plan">)";
  const auto at = page.find(begin) + begin.size();
  const auto data = nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
  EXPECT_EQ(data.at("operators").size(),
            nlohmann::json::parse(run_tool(kPlanMlp + std::string("--json"))).at("operators").size());
  EXPECT_FALSE(data.at("lanes").at("steps").empty());
  // It opens with what was taken, over what, and with numbers that have names and units.
  const auto verdict = data.at("verdict").get<std::string>();
  EXPECT_EQ(verdict.rfind("Taken: ", 0), 0U) << verdict;
  EXPECT_NE(verdict.find(fmt::format("compared: {}.", data.at("candidates").size())), std::string::npos) << verdict;
  EXPECT_GE(data.at("facts").size(), 6U) << data.at("facts");
  int num_taken = 0;
  for (const auto& candidate : data.at("candidates")) num_taken += candidate.at("taken").get<bool>() ? 1 : 0;
  EXPECT_EQ(num_taken, 1) << data.at("candidates");
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_EQ(page.find("href="), std::string::npos);
  EXPECT_EQ(page.find("fetch("), std::string::npos);
}

struct Refusal {
  int code;
  std::string text;
};

Refusal refused_with_code(const std::string& shell_command) {
  FILE* pipe = popen((shell_command + " 2>&1").c_str(), "r");
  check(pipe != nullptr, "cannot start a process");
  Refusal refusal{};
  std::array<char, 4096> part{};
  for (size_t n = 0; (n = fread(part.data(), 1, part.size(), pipe)) > 0;) refusal.text.append(part.data(), n);
  const int status = pclose(pipe);
  refusal.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return refusal;
}

TEST(ClusterCheck, RanksAskEachOther) {
  const auto json =
      nlohmann::json::parse(replaced(run_tool("run -n 3 " + kCommand + "cluster check --mib 1 --json"), "[0] ", ""));
  ASSERT_EQ(json["hosts"].size(), 1);
  EXPECT_EQ(json["hosts"][0]["ranks"], (std::vector{0, 1, 2}));
  ASSERT_EQ(json["pairs"].size(), 1);
  EXPECT_GT(json["pairs"][0]["latency_s"], 0);
  EXPECT_GT(json["pairs"][0]["bytes_per_second"], 1e6);
  EXPECT_THAT(run_tool("cluster check"), testing::HasSubstr("1 rank on 1 host\n"));
}

TEST(ClusterCheck, HostsFindHowLargePacketsMayBe) {
  const auto text = run_tool(
      fmt::format("run -n 2 -- sh -c 'TESSERA_HOST_ID=$TESSERA_RANK {} cluster check --mib 1 --json'", kCommand));
  const auto json = nlohmann::json::parse(replaced(text, "[0] ", ""));
  ASSERT_EQ(json["hosts"].size(), 2);
  for (const auto& interface : json["hosts"][0]["interfaces"]) {
    for (const auto& address : interface["addresses"]) {
      if (address != json["hosts"][0]["address"]) continue;
      EXPECT_EQ(json["pairs"][0]["path_mtu"], std::min(interface["mtu"].get<int64_t>(), int64_t{65535}));
    }
  }
}

TEST(ClusterCheck, AFaultIsAnExitCode) {
  const auto file = scratch("rank_table.json");
  std::ofstream(file) << R"({"server_list": [{"server_id": "192.0.2.77", "device": [{"rank_id": "0"}]}]})";
  try {
    run_tool("cluster check --rank_table " + file.string());
    FAIL() << "a table of another host";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("rank 0 is at 192.0.2.77 there, but on"),
                                             testing::HasSubstr("1 fault to be mended")));
  }
}

TEST(Usage, AnUnknownWordIsNamedWithTheNearestKnownOne) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"plan mlp --devces 8",
       "error: unknown option --devces; did you mean --devices?\nusage: tessera plan [OPTIONS] model\n"
       "tessera plan --help lists the options\n"},
      {"run --x 3 ./program",
       "error: unknown option --x\nusage: tessera run [OPTIONS] program...\n"
       "tessera run --help lists the options\n"},
      {"run -n4 --timout=3 ./program", "error: unknown option --timout; did you mean --timeout?\n"},
      {"plann mlp",
       "error: unknown command plann; did you mean plan?\nusage: tessera [OPTIONS] SUBCOMMAND\n"
       "tessera --help lists the commands\n"},
      {"runn -n 2 ./program", "error: unknown command runn; did you mean run?\n"},
      {"ckpt inspct x.ckpt", "error: unknown command inspct; did you mean inspect?\n"},
      {"rnu -n 2 ./program", "error: unknown command rnu; did you mean run?\n"},
      {"cluster wy reports", "error: unknown command wy; did you mean why?\n"},
      {"run -m 2 ./program", "error: unknown option -m\n"},
      {"-n 4 run ./program", "error: -n stands before the command that takes it; write it behind \"tessera run\"\n"},
      {"--max_restarts 1 run ./program",
       "error: --max_restarts stands before the command that takes it; write it behind \"tessera run\"\n"},
      {"run -np 2 ./program", "error: unknown option -np; the number of ranks is -n\n"},
      {"run --nprocs=2 ./program", "error: unknown option --nprocs; the number of ranks is -n\n"},
      {"run --hostfile hosts ./program", "error: unknown option --hostfile; on several hosts tessera run --join"},
      {"run --log_format json ./program",
       "error: unknown option --log_format; what a script prints is its own: ProgressBar(log_format=\"json\") prints "
       "lines of JSON\n"},
      {"ckpt export a b.ckpt", "error: file: the name of the file must end in .safetensors, got \"b.ckpt\"\n"},
      {"info here", "error: tessera info takes no argument \"here\" here\n"},
      {"plan", "error: model is required\n"},
      {"plan lenet5 --devices 0", "error: --devices: must be from 1 to 65536, got 0\n"},
      {"plan lenet5 --devices=0", "error: --devices: must be from 1 to 65536, got 0\n"},
      {"plan lenet5 --ranks 0", "error: --ranks: must be from 1 to 65536, got 0\n"},
      {"report a b c", "error: runs: at most 2 can be given, got 3\n"},
      {"solve --rounds 0 x", "error: --rounds: Value 0 not in range 1 to 1073741824\n"},
      {"run --timeout 0 ./program",
       "error: --timeout: must be a number of seconds above 0, up to 2147483.647, got 0\n"},
      {"run --timeout 1e17 ./program",
       "error: --timeout: must be a number of seconds above 0, up to 2147483.647, got 1e17\n"},
      {"run --timeout 3e6 ./program",
       "error: --timeout: must be a number of seconds above 0, up to 2147483.647, got 3e6\n"},
      {"plan mlp --timeout soon", "error: --timeout: must be a number of seconds above 0, got soon\n"},
      {"plan mlp --gap 5", "error: --gap: must be from 0 to 1, got 5\n"},
      {"run --join host:abc -n 1 true",
       "error: --join: a scheduler's address: expected HOST:PORT, as 10.0.0.1:6667, with a port up to 65535, got "
       "\"host:abc\"\n"},
      {"run --join host: -n 1 true",
       "error: --join: a scheduler's address: expected HOST:PORT, as 10.0.0.1:6667, with a port up to 65535, got "
       "\"host:\"\n"},
      {"scheduler --workers 2 --port 0 --state /no/such/folder/job.state",
       "error: --state /no/such/folder/job.state: there is no folder /no/such/folder: make it, or name a file in "
       "another one\n"},
      {"scheduler --workers 2 --port 0 --state /tmp", "error: --state /tmp: it is a folder, expected a file in one\n"},
      {"run", "error: program is required\n"}};
  for (const auto& [arguments, text] : cases) {
    const Refusal refusal = refused_with_code(kCommand + arguments);
    EXPECT_EQ(refusal.code, 2) << arguments;
    EXPECT_TRUE(refusal.text.starts_with(text)) << arguments << "\n" << refusal.text;
  }
}

// Whoever can write it says which ranks the job has.
TEST(Usage, ASchedulersStateThatAnotherUserMayHaveWrittenIsRefused) {
  const TestFolder folder("tools-test-state");
  const std::filesystem::path state = folder.in("job.state");
  std::ofstream(state) << "TRS9";
  const auto start = kCommand + "scheduler --workers 2 --port 0 --timeout 1 --state " + state.string();
  for (const unsigned mode : {0602U, 0620U, 0604U, 0666U}) {
    std::filesystem::permissions(state, std::filesystem::perms(mode));
    const Refusal refusal = refused_with_code(start);
    EXPECT_EQ(refusal.code, 2) << mode;
    EXPECT_TRUE(
        refusal.text.starts_with("error: --state " + state.string() + ": others may read or write it; chmod 600"))
        << refusal.text;
  }
  std::filesystem::permissions(state, std::filesystem::perms(0600));
  EXPECT_NE(refused_with_code(start).text.find("is cut short"), std::string::npos) << "it is read";
  if (::chown(state.c_str(), 65534, static_cast<gid_t>(-1)) != 0) return;  // only root gives a file away
  const Refusal refusal = refused_with_code(start);
  EXPECT_EQ(refusal.code, 2);
  EXPECT_TRUE(refusal.text.starts_with("error: --state " + state.string() + ": it belongs to another user;"))
      << refusal.text;
}

TEST(Usage, WithoutACommandTheHelpIsPrinted) {
  for (const char* arguments : {"", "ckpt"}) {
    const Refusal refusal = refused_with_code(kCommand + arguments);
    EXPECT_EQ(refusal.code, 2);
    EXPECT_NE(refusal.text.find("Subcommands:"), std::string::npos) << refusal.text;
    EXPECT_EQ(refusal.text.find("Error"), std::string::npos) << refusal.text;
  }
  EXPECT_EQ(refused_with_code(kCommand + "plan --help").code, 0);
}

// A command line that is wrong.
TEST(ExitCodes, AreTwoForWhatTheCommandLineSaysWrongly) {
  const auto damaged = scratch("damaged");
  std::ofstream(damaged) << "import tessera";
  const std::vector<std::string> cases = {
      // an unknown network, and values that no network, mesh or rank has
      "graph no_such_network", "simulate no_such_network", "plan no_such_network --ranks 2", "graph mlp --stage first",
      "graph mlp --format png", "graph mlp --stage local --rank 1", "graph mlp --stage local --rank -1",
      "graph mlp --ranks 0", "graph mlp --devices two", "graph mlp --mesh data", "graph mlp --mesh data=0",
      "graph mlp --mesh data=x", "graph mlp --mesh data=2,data=2 --stage plan",
      "graph mlp --mesh data=2 --ranks 3 --stage plan", "graph mlp --stage plan --input y=[data]",
      "graph mlp --stage plan --input x", "graph mlp --stage plan --input x=[rows,_]", "graph mlp --strategy up",
      "graph mlp --strategy 'left:matmul=((1,1),(1,1))'", "graph mlp --strategy 'up:matmul=((1,'",
      "graph mlp --stage plan --ranks 2 --strategy 'up:matmul=((3,1),(1,1))'", "graph mlp --precision float8",
      "graph mlp --batch_size 0", "graph mlp --num_classes none", "graph mlp --stage local --memory_limit 2GB",
      "graph mlp --stage local --recompute always", "graph mlp --stage local --recompute auto",
      "simulate mlp --ranks 65537", "simulate mlp --optimizer_shards --optimizer_shard_size 0",
      "simulate mlp --precision int8", "plan mlp", "plan mlp --ranks 2 --algorithm best",
      "plan mlp --ranks 2 --max_axes 9", "plan mlp --ranks 2 --gap 2", "plan mlp --ranks 2 --timeout 0",
      "plan mlp --ranks 2 --seed -1", "plan mlp --ranks 2 --rounds 0", "plan mlp --ranks 2 --rows -1",
      "plan mlp --ranks 2 --quiet --why no:matmul", "plan mlp --ranks 2 --memory_limit many",
      "plan mlp --ranks 2 --semi_auto", "plan mlp --ranks 2 --input x=[data,_]", "plan mlp --memory --rank 1",
      "plan mlp --memory --values -1", "plan mlp --ranks 2 --diff one", "run", "run -n 0 true", "run -n two true",
      "run --threads 0 true", "run -n 1 --threads 1 true", "run --timeout 0 true", "run --num_threads 0 true",
      "run --join nowhere -n 1 true", "run --join 127.0.0.1:x -n 1 true", "run --join 127.0.0.1:0 -n 1 true",
      "run --join ::1 -n 1 true", "run --join 127.0.0.1:65536 -n 1 true", "run --join '' -n 1 true",
      "run --node_id a -n 1 true", "run --join 127.0.0.1:1 --node_id '' -n 1 true",
      "run --join 127.0.0.1:1 --node_id 'a b' -n 1 true", "run --join 127.0.0.1:1 --threads 2 true",
      "run --join 127.0.0.1:1 --transport mpi true", "scheduler", "scheduler --port 0", "scheduler --workers 2",
      "scheduler --workers 0 --port 0", "scheduler --workers two --port 0", "scheduler --workers 2 --port x",
      "scheduler --workers 2 --port 65536", "scheduler --workers 2 --port 0 --timeout 0",
      "scheduler --workers 2 --port 0 --host '' --timeout 1", "scheduler --workers 2 --port 0 --host :: --timeout 1",
      "scheduler --workers 2 --port 0 here", "cluster", "cluster statu", "cluster status", "cluster status nowhere",
      "cluster status 127.0.0.1:0", "cluster status 127.0.0.1:65536", "cluster status 127.0.0.1:1 --timeout 0",
      "cluster status 127.0.0.1:1 here", "cluster why", "cluster why a b", "cluster make-certificates",
      "cluster make-certificates x --days 0", "cluster make-certificates x --days 1 --revoke y",
      "cluster make-certificates x --nodes a --revoke y", "run --transport pigeon true", "run --transport threads true",
      "run --threads 2 --transport gloo true", "run --threads 2 --transport tls true", "run --record_steps 1 true",
      "run --on_difference warn true", "run --compare_values a --on_difference cry true", "bisect", "bisect a b c",
      "bisect a --tolerance 1", "bisect a --all", "bisect a b --step 0", "bisect a b --step 1 --all",
      "bisect a b --tolerance -1", "report", "report a b c", "report a b --checkpoints c", "report a b --report_dir c",
      "solve", "solve --rounds 0 x", "solve --timeout -1 x", "solve --gap 2 x", "solve --seed -1 x", "info here",
      "info --kernels --kernel_cache ''", "calibrate --num_threads 0", "calibrate --quiet --num_threads many",
      "version now", "ckpt", "ckpt ls a b", "ckpt inspect", "ckpt verify", "ckpt newest a b", "ckpt diff a",
      "ckpt transform a", "ckpt transform a b --threads 257", "ckpt merge-strategies a", "ckpt export a",
      "ckpt import a", "ckpt inspct a", "no_such_command", "", "ckpt newest a --prefix b/c",
      "ckpt transform a b --prefix c/d", "ckpt export a b", "ckpt import a b.ckpt", "ckpt import a.safetensors b",
      // numbers that do not fit one another
      "run -n 2 --min_ranks 3 true", "run -n 2 --min_ranks 1 --servers 1 true",
      "scheduler --workers 2 --port 0 --min_ranks 3", "scheduler --workers 2 --port 0 --min_ranks 1 --max_ranks 1",
      "simulate mlp --ranks 4 --stages 3", "simulate mlp --ranks 4 --stages 2 --micro_batches 7",
      "plan mlp --ranks 4 --stages 3", "cluster make-certificates x", "cluster make-certificates x --revoke y",
      // what has no effect beside the rest
      "simulate mlp --ranks 8 --segments 2", "plan mlp --devices 8 --segments 2", "plan mlp --devices 4 --ranks 8",
      "run --record_values x --record_steps 5..8 true", "plan mlp --memory --out x",
      "graph --batch_size 2 " + damaged.string()};
  for (const auto& arguments : cases) {
    // Where it is not refused, a scheduler is not waited for.
    const Refusal refusal = refused_with_code("TESSERA_JOIN_TIMEOUT_MS=300 " + kCommand + arguments);
    EXPECT_EQ(refusal.code, 2) << arguments << "\n" << refusal.text;
    EXPECT_FALSE(refusal.text.empty()) << arguments;
  }
}

// Whoever reads it: the command itself, a launcher, a scheduler, a rank, alone or under a launcher.
TEST(ExitCodes, AreTwoForAVariableThatMakesNoSense) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"TESSERA_LOG_LEVEL=verbose", "version"},
      {"TESSERA_LOG_LEVEL=verbose", "run -n 2 true"},
      {"TESSERA_TIMEOUT_MS=soon", "run --join 127.0.0.1:1 true"},
      {"TESSERA_JOIN_TIMEOUT_MS=0", "scheduler --workers 1 --port 0 --timeout 1"},
      {"TESSERA_ROLE=boss", "scheduler --workers 1 --port 0 --timeout 1"},
      {"TESSERA_NUM_THREADS=many", "cluster check"},
      {"TESSERA_ROLE=servr", "cluster check"},
      {"TESSERA_NUM_SERVERS=1", "cluster check"},
      {"TESSERA_CUDA_TF32=yes", "cluster check"},
      {"TESSERA_RANK=3", "cluster check"},
      {"TESSERA_SCHEDULER=nowhere", "cluster check"},
      {"TESSERA_TRANSPORT=pigeon", "cluster check"},
      {"TESSERA_THREAD_RANKS=2 TESSERA_TRANSPORT=shm", "cluster check"},
      {"TESSERA_TIMEOUT_MS=soon", "run -n 2 " + kCommand + "cluster check"}};
  for (const auto& [variables, arguments] : cases) {
    const Refusal refusal = refused_with_code(variables + " " + kCommand + arguments);
    EXPECT_EQ(refusal.code, 2) << variables << " " << arguments << "\n" << refusal.text;
    const std::string name =
        variables.substr(variables.rfind(' ') + 1, variables.rfind('=') - variables.rfind(' ') - 1);
    EXPECT_THAT(refusal.text, testing::HasSubstr(name)) << arguments;
  }
}

TEST(Usage, AMisspeltVariableIsSaidOnceByWhoeverBegins) {
  const auto count = [](const std::string& text) {
    constexpr std::string_view kWords = "TESSERA_JOIN_TIMEOUT (did you mean TESSERA_JOIN_TIMEOUT_MS?)";
    size_t found = 0;
    for (size_t at = 0; (at = text.find(kWords, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  const std::string before = "TESSERA_JOIN_TIMEOUT=5 ";
  EXPECT_EQ(count(run_tool("version", before)), 1U);
  const auto text = run_tool("run -n 2 " + kCommand + "cluster check --mib 1", before);
  EXPECT_EQ(count(text), 1U) << text;
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("] [W")));  // the launcher says it, and no rank
  EXPECT_EQ(count(run_tool("version", before + "TESSERA_LOG_LEVEL=error ")), 0U);
  EXPECT_EQ(run_tool("version", "TESSERA_JOIN_TIMEOUT_MS=5 ").find("TESSERA_"), std::string::npos);
}

TEST(ExitCodes, AreOneForWhatFailsAtWork) {
  const auto folder = scratch("work");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto path = [&](const char* name) { return (folder / name).string(); };
  std::ofstream(path("damaged")) << "import tessera";
  std::ofstream(path("damaged.safetensors")) << "import tessera";
  run_tool("plan mlp --devices 2 --max_axes 1 --quiet --out " + path("plan"));
  run_tool("plan mlp --devices 2 --max_axes 1 --quiet --write_budget " + path("budget"));
  const std::string plan = "plan mlp --devices 2 --max_axes 1 --quiet ";
  std::vector<std::string> cases = {"graph NOWHERE",
                                    "graph DAMAGED",
                                    "simulate NOWHERE",
                                    "simulate DAMAGED",
                                    "simulate mlp --profile NOWHERE",
                                    "simulate mlp --profile DAMAGED",
                                    "simulate mlp --trace NOWHERE/trace",
                                    "plan NOWHERE --ranks 2",
                                    "plan DAMAGED --ranks 2",
                                    plan + "--profile NOWHERE",
                                    plan + "--out NOWHERE/plan",
                                    plan + "--html NOWHERE/page",
                                    plan + "--write_budget NOWHERE/budget",
                                    plan + "--check NOWHERE",
                                    plan + "--check DAMAGED",
                                    "plan mlp --quiet --load NOWHERE",
                                    "plan mlp --quiet --load DAMAGED",
                                    "plan mlp --quiet --load PLAN --ranks 8",
                                    "plan lenet5 --devices 2 --max_axes 1 --quiet --check BUDGET",
                                    "plan mlp --quiet --diff PLAN NOWHERE",
                                    plan + "--memory_limit 8KiB",
                                    "plan mlp --memory --recompute auto --memory_limit 8KiB",
                                    "run no-such-program-here",
                                    "run -n 2 false",
                                    "run -n 2 sh -c 'exit 7'",
                                    "run --threads 2 false",
                                    "scheduler --workers 1 --port 0 --timeout 0.0001",
                                    "scheduler --workers 1 --port 0 --host no-such-host.invalid",
                                    "cluster status 127.0.0.1:1",
                                    "cluster why NOWHERE",
                                    "cluster why DAMAGED",
                                    "cluster make-certificates NOWHERE --revoke somebody",
                                    "report NOWHERE",
                                    "report DAMAGED",
                                    "report DAMAGED DAMAGED",
                                    "solve NOWHERE --quiet",
                                    "solve DAMAGED --quiet",
                                    "ckpt ls NOWHERE",
                                    "ckpt inspect NOWHERE",
                                    "ckpt inspect DAMAGED",
                                    "ckpt verify NOWHERE",
                                    "ckpt verify DAMAGED",
                                    "ckpt newest NOWHERE",
                                    "ckpt diff NOWHERE NOWHERE",
                                    "ckpt diff DAMAGED DAMAGED",
                                    "ckpt transform NOWHERE NOWHERE/out",
                                    "ckpt merge-strategies NOWHERE OUT",
                                    "ckpt export NOWHERE OUT.safetensors",
                                    "ckpt export DAMAGED OUT.safetensors",
                                    "ckpt import NOWHERE.safetensors OUT",
                                    "ckpt import DAMAGED.safetensors OUT"};
  for (auto& arguments : cases) {
    arguments = replaced(arguments, "NOWHERE", path("no/such.file"));
    arguments = replaced(arguments, "DAMAGED", path("damaged"));
    arguments = replaced(arguments, "PLAN", path("plan"));
    arguments = replaced(arguments, "BUDGET", path("budget"));
    arguments = replaced(arguments, "OUT", path("out.ckpt"));
    const Refusal refusal = refused_with_code("TESSERA_TLS_PASSWORD=secret " + kCommand + arguments);
    EXPECT_EQ(refusal.code, 1) << arguments << "\n" << refusal.text;
    EXPECT_FALSE(refusal.text.empty()) << arguments;
  }
  EXPECT_EQ(refused_with_code(kCommand + "run -n 3 sh -c 'exit 2'").code, 2);
  EXPECT_EQ(refused_with_code("TESSERA_JOIN_TIMEOUT_MS=100 " + kCommand + "run --join 127.0.0.1:1 true").code, 1);
  // No time that somebody asks for becomes none.
  EXPECT_NE(refused_with_code(kCommand + "scheduler --workers 1 --port 0 --timeout 0.0001").text.find("within 1 ms"),
            std::string::npos);
}

// The law of options: one that is given to a form of a command changes what it prints or writes, or is refused as one
// that has no effect, with exit code 2.
class OptionLaw : public testing::Test {
 public:
  struct Option {
    std::string name;
    std::string value = "";
    std::string around = "";  // without which no form gives it an effect
  };

 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ / "written");
    run_tool("graph mlp --batch_size 64 > " + in("file.graph"));
    run_tool("plan mlp --devices 4 --batch_size 64 --quiet --out " + in("a.plan"));
    run_tool("plan mlp --devices 4 --batch_size 64 --quiet --max_axes 1 --full_batch --out " + in("b.plan"));
    run_tool("plan mlp --devices 4 --batch_size 64 --quiet --write_budget " + in("budget"));
    run_tool("plan mlp --devices 4 --batch_size 64 --quiet --load " + in("b.plan") + " --write_budget " +
             in("load.budget"));
    std::ofstream(in("profile"))
        << R"({"name": "slow", "flops_per_second": {"f32": 1e9}, "memory_bytes_per_second": 1e9, "kernel_overhead_seconds": 1e-5,
        "intra_host": {"latency_seconds": 1e-3, "bytes_per_second": 1e8},
        "inter_host": {"latency_seconds": 1e-3, "bytes_per_second": 1e8}})";
  }
  std::string in(const std::string& name) const { return (folder_ / name).string(); }

  struct Seen {
    int code;
    std::string text;  // what is printed, and which files are written into the folder `written`
    bool is_refused() const {
      return code == 2 && (text.find(" has no effect here: it goes with ") != std::string::npos ||
                           text.find(" excludes ") != std::string::npos);
    }
  };
  Seen seen(const std::string& arguments) {
    const Refusal outcome = refused_with_code("cd " + folder_.string() + "; " + kCommand + arguments);
    Seen seen{outcome.code, outcome.text};
    for (const auto& file : std::filesystem::directory_iterator(folder_ / "written")) {
      seen.text += file.path().filename().string() + "\n";
      std::filesystem::remove(file.path());
    }
    return seen;
  }

  // `may_be_silent`: the option is read, and what is printed may be the same all the same.
  void check(const std::string& form, const Option& option, bool may_be_silent) {
    SCOPED_TRACE(form + ": " + option.name);
    const auto base = form + option.around;
    if ((" " + base + " ").find(" " + option.name + " ") != std::string::npos) return;
    const auto before = seen(base);
    if (before.code == 2) return;  // such a form is refused already
    const auto after = seen(base + " " + option.name + (option.value.empty() ? "" : " " + option.value));
    EXPECT_TRUE(after.is_refused() || after.text != before.text || may_be_silent) << before.text;
    ++num_checked_;
  }
  int num_checked_ = 0;

  std::filesystem::path folder_ = scratch("option_law");
};

const std::vector<OptionLaw::Option> kStepOptions = {
    {"--batch_size", "20"},
    {"--num_classes", "500"},
    {"--precision", "bfloat16"},
    {"--ranks", "3"},
    {"--mesh", "data=2,model=4"},
    {"--input", "x=[_,model]", " --mesh data=2,model=2"},
    {"--strategy", "'up:matmul=((2,1),(2,1))'", " --mesh data=2,model=2"},
    {"--semi_auto", "", " --mesh data=2,model=2"},
    {"--propagate", "", " --mesh data=4 --strategy 'down:matmul=((1,4),(1,4))'"},
    {"--propagate", "", " --mesh data=4"},
    {"--optimizer_shards", "", " --mesh data=2"},
    {"--optimizer_shard_size", "2", " --mesh data=4 --optimizer_shards"},
    {"--optimizer_shard_size", "2", " --mesh data=4"},
    {"--recompute", "auto --memory_limit 8KiB"},
    {"--memory_limit", "8KiB --recompute auto"},
};

TEST_F(OptionLaw, HoldsForGraph) {
  auto options = kStepOptions;
  options.insert(options.end(), {{"--rank", "4", " --mesh data=5"}, {"--format", "dot"}, {"--fake_kernels"}});
  for (const char* model : {"mlp", "file.graph", "mlp --batch_size 12"}) {
    for (const char* stage : {"forward", "backward", "logical", "plan", "local", "schedule"}) {
      for (const Option& option : options) {
        // A plan's text names no sizes. Ranks whose slices are equal have equal schedules, and kernels of this machine
        // may need no scratch memory.
        const std::string_view at = stage;
        const bool may_be_silent =
            (at == "plan" && (option.name == "--batch_size" || option.name == "--num_classes")) ||
            (at == "schedule" && (option.name == "--rank" || option.name == "--fake_kernels"));
        check(fmt::format("graph {} --stage {}", model, stage), option, may_be_silent);
      }
    }
  }
}

TEST_F(OptionLaw, HoldsForSimulate) {
  auto options = kStepOptions;
  options.insert(options.end(), {{"--profile", "profile"},
                                 {"--machine", "a100-80gb"},
                                 {"--tf32", "", " --machine a100-80gb"},
                                 {"--devices_per_host", "1", " --ranks 4"},
                                 {"--json"},
                                 {"--trace", "written/trace"},
                                 {"--live_kernels"},
                                 {"--stages", "2"},
                                 {"--stage_ranks", "3,1"},
                                 {"--micro_batches", "4"},
                                 {"--schedule", "gpipe"}});
  for (const char* model : {"mlp", "file.graph", "mlp --batch_size 64 --ranks 4 --stages 2"}) {
    for (const Option& option : options) {
      check(fmt::format("simulate {}", model), option, option.name == "--live_kernels");
    }
  }
}

TEST_F(OptionLaw, HoldsForPlan) {
  auto options = kStepOptions;
  options.insert(options.end(), {{"--profile", "profile"},
                                 {"--machine", "a100-80gb"},
                                 {"--tf32"},
                                 {"--devices_per_host", "1"},
                                 {"--algorithm", "recursive_programming"},
                                 {"--max_axes", "1"},
                                 {"--rounds", "1"},
                                 {"--timeout", "100"},
                                 {"--gap", "0.5"},
                                 {"--seed", "7"},
                                 {"--out", "written/plan"},
                                 {"--load", "b.plan"},
                                 {"--simulate"},
                                 {"--full_batch"},
                                 {"--rows", "2"},
                                 {"--why", "up:matmul"},
                                 {"--choices", "1"},
                                 {"--diff", "a.plan b.plan"},
                                 {"--html", "written/page"},
                                 {"--check", "budget"},
                                 {"--write_budget", "written/budget"},
                                 {"--json"},
                                 {"--memory"},
                                 {"--rank", "1"},
                                 {"--values", "1"},
                                 {"--fake_kernels"},
                                 {"--stages", "2"},
                                 {"--stage_ranks", "3,1"},
                                 {"--micro_batches", "4"},
                                 {"--schedule", "gpipe"}});
  const std::set<std::string> effort = {"--algorithm", "--max_axes", "--rounds",    "--timeout",
                                        "--gap",       "--seed",     "--full_batch"};
  const std::string step = "plan mlp --quiet --batch_size 64 ";
  const std::vector<std::pair<std::string, bool>> forms = {{step + "--ranks 4", true},
                                                           {step + "--mesh data=2,model=2", true},
                                                           {step + "--ranks 4 --json", true},
                                                           {step + "--ranks 4 --why up:matmul", true},
                                                           {step + "--ranks 4 --check budget", true},
                                                           {"plan file.graph --quiet --ranks 4", true},
                                                           {step + "--ranks 4 --stages 2", true},
                                                           {step + "--ranks 4 --stages 2 --json", true},
                                                           {step + "--load b.plan", false},
                                                           {step + "--load b.plan --json", false},
                                                           {step + "--load b.plan --why up:matmul", true},
                                                           {step + "--load b.plan --check load.budget", false},
                                                           {step + "--diff a.plan b.plan", false},
                                                           {step + "--memory", false},
                                                           {step + "--memory --json --mesh data=2,model=2", false}};
  for (const auto& [form, searches] : forms) {
    for (const Option& option : options) {
      const bool asks = form.find("--why") != std::string::npos || form.find("--check") != std::string::npos;
      const bool may_be_silent = (searches && effort.contains(option.name)) || option.name == "--fake_kernels" ||
                                 // ranks that tell each other nothing may be anywhere
                                 (option.name == "--devices_per_host" && asks) ||
                                 // a budget may have simulated figures
                                 (option.name == "--simulate" && form.find("--check") != std::string::npos);
      check(form, option, may_be_silent);
    }
  }
  EXPECT_GT(num_checked_, 300);
}

TEST_F(OptionLaw, HoldsForTheOtherCommands) {
  check("info", {"--json"}, false);
  check("info", {"--kernels"}, false);
  check("info", {"--kernel_cache", "written"}, false);
  check("info --kernels", {"--kernel_cache", "written"}, false);
  std::ofstream(in("log.jsonl")) << R"({"kind":"step","epoch":1,"step":1,"loss":0.5})"
                                 << "\n";
  for (const char* form : {"report log.jsonl", "report log.jsonl log.jsonl"}) {
    check(form, {"--json"}, false);
    check(form, {"-o", "written/page"}, false);
    check(form, {"--checkpoints", "."}, false);
    check(form, {"--report_dir", "."}, false);
    check(form, {"--trace", "log.jsonl"}, false);
    check(form, {"--profile", "h100-80gb"}, false);
  }
  EXPECT_TRUE(seen("run --interface lo -n 2 true").is_refused());
  for (const char* transport : {"tls", "gloo"}) {
    const std::string run = std::string("run --interface lo --transport ") + transport + " -n 2 env";
    EXPECT_NE(seen(run).text.find("TESSERA_INTERFACE=lo"), std::string::npos);
  }
  EXPECT_EQ(refused_with_code(kCommand + "run --interface lo -n 2 true").code, 2);
  EXPECT_EQ(refusal_of("graph --batch_size 2 " + in("file.graph")),
            "error: --batch_size has no effect here: it goes with a built-in network; a file has a batch, dtypes and "
            "classes of its own\n");
}

TEST(Usage, AnOptionThatIsGivenTwiceIsNamedWithItsOtherName) {
  EXPECT_THAT(refusal_of("plan mlp --devices 4 --ranks 8"),
              testing::HasSubstr("is given 2 times: --ranks and --devices are one option"));
  EXPECT_THAT(refusal_of("calibrate --num_threads 2 --num_threads 3"),
              testing::HasSubstr("--num_threads is given 2 times: give it once"));
}

TEST(ExitCodes, AreOneBeforeTheWorkWhereItsResultCannotBeWritten) {
  for (const char* arguments : {"calibrate --out /proc/x", "plan mlp --devices 4 --out /proc/x",
                                "plan mlp --devices 4 --html /proc/x", "simulate mlp --ranks 4 --trace /proc/x",
                                "plan mlp --devices 4 --write_budget /", "report nowhere -o /proc/x"}) {
    const Refusal refusal = refused_with_code(kCommand + arguments);
    EXPECT_EQ(refusal.code, 1) << arguments;
    EXPECT_THAT(refusal.text, testing::AnyOf(testing::HasSubstr("/proc/x: no file can be written there: "),
                                             testing::HasSubstr("it is a directory; name a file")))
        << arguments;
  }
  EXPECT_EQ(refused_with_code(kCommand + "run --record_values /proc/rv true").code, 1);
  const Refusal refusal = refused_with_code(kCommand + "run --compare_values /nowhere/at_all true");
  EXPECT_EQ(refusal.code, 1);
  EXPECT_THAT(refusal.text, testing::HasSubstr("there is no folder of that name"));
}

TEST(ExitCodes, OfTheExampleAreThoseOfTheCommand) {
  const std::string program = std::string(TESSERA_BINARY_DIR) + "/bin/resnet50_cifar10 ";
  for (const char* arguments : {"",
                                "--batch_size 0",
                                "--epochs 0",
                                "--epochs two",
                                "--image_size -1",
                                "--steps -1",
                                "--learning_rate -1",
                                "--momentum x",
                                "--weight_decay -1",
                                "--batch_norm_momentum 2",
                                "--initial_values mine",
                                "--loss small",
                                "--parallel_mode all",
                                "--parallel_mode hybrid_parallel",
                                "--batch_norm some",
                                "--precision float8",
                                "--amp_level O1",
                                "--precision float16 --amp_level O2",
                                "--loss_scale 0",
                                "--sink_size 4",
                                "--dataset_sink_mode --sink_size 0",
                                "--print_loss -1",
                                "--num_workers 0",
                                "--num_threads -1",
                                "--kernels fastest",
                                "--memory_limit 2GB",
                                "--prefix a",
                                "--save_checkpoint_steps 5",
                                "--keep_checkpoint_max 2",
                                "--checkpoint_dir x --keep_checkpoint_max 0",
                                "--min_accuracy 2",
                                "--train_records 5",
                                "--test_records 5",
                                "--make_data x --train_records 0",
                                "--no_such_option"}) {
    const std::string data = std::string(arguments).empty() ? "" : "--data_path nowhere ";
    const Refusal refusal = refused_with_code(program + data + arguments);
    EXPECT_EQ(refusal.code, 2) << arguments << "\n" << refusal.text;
    EXPECT_TRUE(refusal.text.starts_with("error: ")) << refusal.text;
  }
  const Refusal failure = refused_with_code(program + "--data_path /nowhere/at/all");
  EXPECT_EQ(failure.code, 1);
  EXPECT_NE(failure.text.find("/nowhere/at/all"), std::string::npos) << failure.text;
}

TEST(Run, ATimeoutIsRoundedUpToWhatRanksTake) {
  const std::array<std::pair<const char*, const char*>, 6> cases = {{{"0.0001", "1"},
                                                                     {"1e-9", "1"},
                                                                     {"0.3", "300"},
                                                                     {"2.01", "2010"},
                                                                     {"16.1", "16100"},
                                                                     {"2147483.647", "2147483647"}}};
  for (const auto& [seconds, ms] : cases) {
    EXPECT_EQ(run_tool(fmt::format("run --timeout {} sh -c 'echo $TESSERA_TIMEOUT_MS'", seconds)),
              fmt::format("[0] {}\n", ms));
  }
}

TEST(Run, TooManyRanksForTheDescriptorsAreRefused) {
  const Refusal refusal = refused_with_code("ulimit -n 256; " + kCommand + "run -n 100 true");
  EXPECT_EQ(refusal.code, 1);
  EXPECT_EQ(refusal.text,
            "error: tessera run: 100 ranks need 464 file descriptors of the launcher, 256 are allowed (ulimit -Hn): "
            "start fewer ranks\n");
  EXPECT_EQ(refused_with_code("ulimit -S -n 64; " + kCommand + "run -n 30 true").code, 0);
}

TEST(Run, AFolderThatCanBeNoneIsRefusedBeforeAnythingIsStarted) {
  const auto file = scratch("no_folder");
  const auto started = scratch("started");
  std::filesystem::remove(started);
  std::ofstream(file) << "of the user";
  const std::string program = " touch " + started.string();
  for (const std::string& path : {file.string(), (file / "below").string()}) {
    const std::string why =
        path + ": " + file.string() + " is there, and is no folder: name a folder, or one that is to be made\n";
    for (const char* option : {"--report_dir", "--log_dir"}) {
      const Refusal refusal = refused_with_code(kCommand + "run " + option + " " + path + program);
      EXPECT_EQ(refusal.code, 2);
      EXPECT_EQ(refusal.text, fmt::format("error: {} {}", option, why));
    }
    const Refusal refusal = refused_with_code("TESSERA_REPORT_DIR=" + path + " " + kCommand + "run" + program);
    EXPECT_EQ(refusal.code, 2);
    EXPECT_EQ(refusal.text, "error: TESSERA_REPORT_DIR " + why);
  }
  EXPECT_FALSE(std::filesystem::exists(started));
  std::filesystem::remove(file);
}

TEST(Run, WhatALogDoesNotTakeIsPrintedAndThatIsSaidOnce) {
  const auto folder = scratch("short_logs");
  std::filesystem::remove_all(folder);
  // A limit of files stands for a disk that is full.
  const Refusal said = refused_with_code("ulimit -f 4; " + kCommand + "run -n 2 --log_dir " + folder.string() +
                                         " sh -c 'i=0; while [ $i -lt 900 ]; do echo line $i; i=$((i+1)); done'");
  EXPECT_EQ(said.code, 0) << said.text;
  EXPECT_THAT(said.text, testing::AllOf(testing::HasSubstr("[0] line 899\n"), testing::HasSubstr("[1] line 899\n"),
                                        testing::Not(testing::HasSubstr("] line 0\n"))));
  const std::string full = ": File too large; what does not go there is printed here from now on\n";
  const size_t first = said.text.find(full);
  EXPECT_NE(first, std::string::npos) << said.text;
  EXPECT_EQ(said.text.find(full, first + 1), std::string::npos) << said.text;
  EXPECT_EQ(FileSystem::local().read_text((folder / "rank.0").string()).substr(0, 7), "line 0\n");
  std::filesystem::remove_all(folder);
}

TEST(Plan, ANumberOfRanksThatNobodyHasIsRefusedAtOnce) {
  for (const char* command : {"plan mlp", "simulate mlp", "graph mlp"}) {
    for (const char* ranks : {"0", "-1", "1048576"}) {
      const Refusal refusal = refused_with_code(kCommand + fmt::format("{} --devices {}", command, ranks));
      EXPECT_EQ(refusal.code, 2);
      EXPECT_TRUE(refusal.text.starts_with(fmt::format("error: --devices: must be from 1 to 65536, got {}\n", ranks)))
          << refusal.text;
    }
  }
  EXPECT_EQ(refusal_of("simulate mlp --mesh data=0"),
            "error: --mesh data=0: axis data must have from 1 to 65536 ranks, got 0\n");
  for (const char* mesh : {"a=65536,b=65536", "a=65536,b=65536,c=65536,d=65536"}) {
    const auto text = refusal_of(fmt::format("graph mlp --mesh {}", mesh));
    EXPECT_NE(text.find("has more than 65536 ranks, the most there may be"), std::string::npos) << text;
  }
}

TEST(Plan, AStrategyOfMoreCountsThanRanksIsRefusedBeforeTheyAreMultiplied) {
  const auto text = refusal_of(
      "graph mlp --mesh data=2 --strategy 'up:matmul=((4294967296,4294967296),(1,4294967296))' --stage plan");
  EXPECT_NE(text.find("splits dim 0 of tensor 0 in 4294967296; a count must be from 1 to 2"), std::string::npos)
      << text;
}

TEST(Plan, AFileThatIsNoGraphOrDoesNotExistIsNamed) {
  EXPECT_TRUE(
      refusal_of("plan no.graph --ranks 2")
          .starts_with("error: \"no.graph\" is neither a file nor a built-in network; of these there are: resnet50, "));
  const auto file = scratch("no_graph");
  FileSystem::local().write_atomically(file.string(), "import tessera");
  EXPECT_TRUE(refusal_of("plan --ranks 2 " + file.string())
                  .starts_with(fmt::format("error: {}: graph text, line 1: ", file.string())));
}

TEST(Plan, WhatParametersAndStatesAloneFillIsRefusedBeforeASearch) {
  EXPECT_EQ(refusal_of("plan mlp --devices 4 --quiet --memory_limit 8KiB")
                .find("error: no plan fits into 8.0 KiB of "
                      "memory on a rank: parameters and "
                      "states alone take "),
            0U);
}

// No search is begun: its lines would stand before the error.
TEST(Plan, WhatTheLargestResultAloneFillsIsRefusedBeforeASearch) {
  EXPECT_EQ(refusal_of("plan resnet50 --devices 8 --memory_limit 100MiB")
                .find("error: no plan fits into 100.0 MiB of memory on a rank: parameters and states take "),
            0U);
}

// A schedule for each of the ranks would not fit into this.
TEST(Plan, OfALanguageModelOnManyRanksTakesLittleMemory) {
  const auto text =
      run_tool("plan llama_8b --devices 64 --memory_limit 400GiB --max_axes 2 --quiet", "ulimit -v 600000; ");
  EXPECT_EQ(text.find("llama_8b on 64 ranks"), 0U) << text;
}

// 32 samples, taken two by two: 11, 11 and 10 of them are no pairs.
constexpr const char* kPairsOfSamples = R"(graph samples
  input x f32[32,64,1024]
  param weight f32[1024,1024]
  %1 = relu x : f32[32,64,1024]
  %2 = reshape %1 {shape=[16,128,1024]} : f32[16,128,1024]
  %3 = relu %2 : f32[16,128,1024]
  %4 = reshape %3 {shape=[2048,1024]} : f32[2048,1024]
  %5 = matmul %4, weight {transpose_a=false, transpose_b=false} : f32[2048,1024]
  %6 = reduce_mean %5 {axes=[0,1], keep_dims=false} : f32[]
  return loss = %6
)";

TEST(Plan, WarnsWhereItMovesRowsThatRanksDoNotDivide) {
  const auto text = run_tool_on(kPairsOfSamples, "plan INPUT --devices 3 --quiet");
  EXPECT_NE(text.find("\nwarning: 256.0 KiB of the 256.0 KiB that a rank receives a step are rows that reshapes "
                      "exchange, because 3 ranks do not divide what they split"),
            std::string::npos)
      << text;
  const auto json = nlohmann::json::parse(run_tool_on(kPairsOfSamples, "plan INPUT --devices 3 --quiet --json"));
  EXPECT_NE(text.find("warning: " + json.at("warning").get<std::string>() + "\n"), std::string::npos);
  EXPECT_EQ(run_tool_on(kPairsOfSamples, "plan INPUT --devices 4 --quiet").find("warning"), std::string::npos);
  EXPECT_EQ(run_tool("plan gpt2_small --devices 3 --batch_size 32 --quiet").find("warning"), std::string::npos);
}

TEST(Calibrate, TheProfileOfThisMachineIsOneThatSimulateReads) {
  const auto file = scratch("profile");
  const auto text = run_tool("calibrate --quiet --out " + file.string());
  EXPECT_NE(text.find(file.string() + ": "), std::string::npos) << text;
  const auto profile = nlohmann::json::parse(FileSystem::local().read_text(file.string()));
  const auto& convolutions = profile.at("convolutions");
  EXPECT_EQ(convolutions.at("shares").size(), 12U);
  for (const auto& [kind, shares] : convolutions.at("shares").items()) {
    EXPECT_EQ(shares.size(), convolutions.at("in_channels").size() * convolutions.at("out_channels").size() *
                                 convolutions.at("pixels").size())
        << kind;
  }
  // Other tests may be running.
  EXPECT_EQ(text.find("the machine was busy") != std::string::npos, profile.value("disturbed_share", 0.0) >= 0.01);
  const auto json = nlohmann::json::parse(run_tool("simulate mlp --ranks 2 --json --profile " + file.string()));
  EXPECT_EQ(json.at("profile"), "measured, ranks of 1 thread");
  EXPECT_GT(json.at("step_seconds").get<double>(), 0);
}

double simulated_seconds(const std::string& arguments) {
  return nlohmann::json::parse(run_tool("simulate " + arguments + " --json")).at("step_seconds").get<double>();
}

// Measuring itself runs on the fake device, in tessera/session/speed.
TEST(Calibrate, OfADeviceThatIsNotThereIsRefused) {
  const auto refused = [](const std::string& arguments) {
    return refused_with_code(kCommand + "calibrate " + arguments);
  };
  const auto missing = refused("--quiet --device cuda:99");
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.text, testing::StartsWith("error: cuda: "));
  EXPECT_THAT(refused("--quiet --device tpu").text, testing::HasSubstr("device \"tpu\" is not known"));
  const auto unknown = refused("--quiet --device cuda:99 --links nowhere");
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.text, testing::HasSubstr("machine \"nowhere\": there is no such file"));
  for (const char* arguments : {"--quiet --links h100-80gb", "--quiet --device cuda:99 --num_threads 2"}) {
    const auto idle = refused(arguments);
    EXPECT_EQ(idle.code, 2) << arguments;
    EXPECT_THAT(idle.text, testing::HasSubstr("has no effect here: it goes with ")) << arguments;
  }
}

TEST(Machines, AStepIsFasterInLessPrecisionAndOnLaterGpus) {
  const std::string step = "resnet50 --ranks 8 --batch_size 2048 --num_classes 1000 ";
  double before = 1e9;
  for (const char* how :
       {"--machine h100-80gb", "--machine h100-80gb --tf32", "--machine h100-80gb --precision bfloat16"}) {
    const double seconds = simulated_seconds(step + how);
    EXPECT_LT(seconds, before) << how;
    before = seconds;
  }
  before = 1e9;
  for (const char* machine : {"a100-80gb", "h100-80gb", "h200-141gb", "b200-180gb"}) {
    const double seconds = simulated_seconds(step + "--precision bfloat16 --machine " + machine);
    EXPECT_LT(seconds, before) << machine;
    before = seconds;
  }
}

TEST(Machines, AStepIsNotSlowerWhereMoreRanksShareAHostOrAFigureOfTheFileIsHigher) {
  const std::string step = "resnet50 --ranks 16 --batch_size 512 --precision bfloat16 ";
  double before = 1e9;
  for (const char* hosts : {"1", "4", "8", "16"}) {
    const double seconds = simulated_seconds(step + "--machine h100-80gb --devices_per_host " + hosts);
    EXPECT_LE(seconds, before) << hosts;
    before = seconds;
  }
  const auto file = scratch("machine").string();
  const auto machine = nlohmann::json::parse(R"({"name": "mine", "memory_bytes_per_second": 2e12,
      "flops_per_second": {"f32": 1e13, "bf16": 2e14}, "convolution_flops_per_second": {"bf16": 1e14},
      "vector_flops_per_second": {"f32": 1e13, "bf16": 1e13}, "kernel_overhead_seconds": 2e-6, "ranks_per_host": 8,
      "intra_host": {"bytes_per_second": 2e11, "latency_seconds": 5e-6},
      "inter_host": {"bytes_per_second": 2e9, "latency_seconds": 1e-5},
      "host_link": {"bytes_per_second": 2e10, "latency_seconds": 1e-5}, "communication_load": 0.1})");
  const auto seconds_with = [&](const char* pointer) {
    auto changed = machine;
    if (*pointer != 0) {
      auto& figure = changed[nlohmann::json::json_pointer(pointer)];
      figure = 4 * figure.get<double>();
    }
    FileSystem::local().write_atomically(file, changed.dump());
    return simulated_seconds(step + "--machine " + file);
  };
  const double usual = seconds_with("");
  for (const char* pointer :
       {"/memory_bytes_per_second", "/flops_per_second/bf16", "/convolution_flops_per_second/bf16",
        "/vector_flops_per_second/bf16", "/intra_host/bytes_per_second", "/inter_host/bytes_per_second",
        "/host_link/bytes_per_second"}) {
    EXPECT_LE(seconds_with(pointer), usual) << pointer;
  }
  EXPECT_LT(seconds_with("/memory_bytes_per_second"), usual);
  EXPECT_LT(seconds_with("/inter_host/bytes_per_second"), usual);
}

TEST(Machines, APlanThatTheirMemoryDoesNotHoldIsRefused) {
  // Parameters and two states of 8 billion floats.
  EXPECT_THAT(refusal_of("plan llama_8b --devices 1 --batch_size 1 --quiet --machine a100-80gb"),
              testing::HasSubstr("use more ranks or a higher memory limit"));
  EXPECT_THAT(refusal_of("plan mlp --devices 2 --quiet --machine a100-80gb --memory_limit 8KiB"),
              testing::HasSubstr("memory limit"));
  EXPECT_THAT(run_tool("plan mlp --devices 2 --quiet --machine a100-80gb"),
              testing::HasSubstr("machines \"a100-80gb\""));
}

TEST(Machines, ThatAreNotThereAreRefusedWithTheNamesThatThereAre) {
  const std::string words =
      "error: machine \"h100\": there is no such file, and no machine of that name; there are: a100-80gb, b200-180gb, "
      "h100-80gb, h200-141gb\n";
  EXPECT_EQ(refusal_of("plan mlp --devices 2 --quiet --machine h100"), words);
  EXPECT_EQ(refusal_of("simulate mlp --profile h100"), words);
  EXPECT_THAT(refusal_of("simulate mlp --tf32"), testing::HasSubstr("it is not known how fast it is with TF32"));
}

TEST(Plan, SaysOnceThatTheProfileIsOfABusyMachine) {
  const auto file = scratch("busy_profile");
  nlohmann::json profile = {{"name", "a busy host"},
                            {"flops_per_second", {{"f32", 1e12}}},
                            {"memory_bytes_per_second", 1e11},
                            {"kernel_overhead_seconds", 1e-6},
                            {"ranks_per_host", 2},
                            {"intra_host", {{"bytes_per_second", 1e10}, {"latency_seconds", 1e-6}}},
                            {"inter_host", {{"bytes_per_second", 1e9}, {"latency_seconds", 1e-5}}}};
  const auto plan = [&] {
    FileSystem::local().write_atomically(file.string(), profile.dump());
    return run_tool("plan mlp --devices 2 --quiet --profile " + file.string());
  };
  EXPECT_EQ(plan().find("took the cores"), std::string::npos);
  profile["disturbed_share"] = 0.003;  // as on a quiet machine
  EXPECT_EQ(plan().find("took the cores"), std::string::npos);
  profile["disturbed_share"] = 0.25;
  const auto text = plan();
  const std::string words =
      "machines \"a busy host\" (measured while others took the cores, in 25 % of the measurements: "
      "calibrate again)";
  ASSERT_NE(text.find(words), std::string::npos) << text;
  EXPECT_EQ(text.find("took the cores", text.find(words) + words.size()), std::string::npos) << text;
  const auto simulated = run_tool("simulate mlp --ranks 2 --profile " + file.string());
  EXPECT_NE(simulated.find(words), std::string::npos) << simulated;
}

TEST(Info, PrintsTheKernelsThatWereMeasuredHere) {
  const auto folder = scratch("kernels");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto command = "info --kernels --kernel_cache " + folder.string();
  const auto empty = run_tool(command);
  EXPECT_NE(empty.find("nothing was measured yet"), std::string::npos) << empty;

  // The file is named in the text, and has the form of the JSON.
  auto table = nlohmann::ordered_json::parse(run_tool(command + " --json"));
  const nlohmann::ordered_json view = {{"type", "f32[2,3,4,5]"}, {"strides", {60, 1, 15, 3}}};
  table["kernels"].push_back(
      {{"op", "conv2d"},
       {"inputs", {view}},
       {"outputs", {view}},
       {"attributes", "{groups=1}"},
       {"threads", 2},
       {"chosen", "quick"},
       {"disturbed", 1},
       {"candidates",
        {{{"kernel", "usual"}, {"microseconds", 2500.0}}, {{"kernel", "quick"}, {"microseconds", 1250.0}}}}});
  const auto begin = empty.find(folder.string());
  std::ofstream(empty.substr(begin, empty.find('\n', begin) - begin)) << table.dump();
  EXPECT_EQ(nlohmann::ordered_json::parse(run_tool(command + " --json")), table);
  const auto text = run_tool(command);
  EXPECT_NE(text.find("conv2d (f32[2,3,4,5] channels-last) -> f32[2,3,4,5] channels-last {groups=1}, 2 threads, while "
                      "others disturbed\n"
                      "       1.250 ms  quick  (chosen)\n"
                      "       2.500 ms  usual\n"),
            std::string::npos)
      << text;
}

void update() {
  for (const char* name : kFiles) {
    auto file = parse_golden(FileSystem::local().read_text(path_of(name)), name);
    for (auto& golden : file.cases) golden = run_golden(golden, run_tool_on);
    std::ofstream(path_of(name)) << print(file);
  }
}

// What goes before a command that has a stack of so many KiB. Its environment is empty, since that lies on the stack,
// too: the shell is started with it before the limit holds, and the loader of each program behind the limit finds the
// rest.
std::string on_stack(const std::string& limit) {
  return "exec env -i /bin/sh -c 'ulimit " + limit + "; exec \"$@\"' sh ";
}

TEST(Tool, WorksWhateverTheLimitOfStacksIs) {
  const auto graph = run_tool("graph mlp");
  EXPECT_EQ(run_tool("graph mlp", on_stack("-s 24")), graph);
  EXPECT_EQ(run_tool("graph mlp", on_stack("-S -s 24")), graph);
}

TEST(Tool, SaysWhatAStackIsTooSmallFor) {
  for (const char* command : {"graph mlp", "run -n 2 true"}) {
    EXPECT_THAT([&] { run_tool(command, on_stack("-s 20")); },
                testing::ThrowsMessage<InvalidArgument>(
                    "error: `ulimit -s` leaves the stack 20 KiB, of which arguments and environment take 1: tessera "
                    "needs 22 beside them; raise it, ulimit -s 8192 is usual\n"))
        << command;
  }
}

// A stack that would do, were it not for what lies on it before the program's first line.
TEST(Tool, SaysThatItsEnvironmentLeavesTooLittleOfAStack) {
  const std::string large = "exec env -i LARGE=" + std::string(44 << 10, 'x') + " /bin/sh -c '";
  for (const char* command : {"version", "run -n 2 /bin/true"}) {
    const auto start = "exec " + kCommand + command + "'";
    const Refusal refusal = refused_with_code(large + "ulimit -s 64; " + start);
    EXPECT_EQ(refusal.code, 2) << command;
    EXPECT_EQ(
        refusal.text,
        "error: `ulimit -s` leaves the stack 64 KiB, of which arguments and environment take 45: tessera needs 22 "
        "beside them; raise it, ulimit -s 8192 is usual\n");
    EXPECT_EQ(refused_with_code(large + "ulimit -s 80; " + start).code, 0) << command;
  }
}

TEST(Tool, SaysThatPythonHasTooLittleStackForAJob) {
  const Refusal refusal = refused_with_code(on_stack("-s 48") + kCommand + "job --help");
  EXPECT_EQ(refusal.code, 1);
  EXPECT_EQ(
      refusal.text,
      "error: tessera job: `ulimit -s` leaves the stack 48 KiB, and this command's interpreter of Python needs 128; "
      "raise it, ulimit -s 8192 is usual\n");
}

}  // namespace
}  // namespace tessera::testing_support

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--update") {
    tessera::testing_support::update();
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  // Where a user's key lies, who may have no home here.
  setenv("XDG_CACHE_HOME", tessera::testing_support::scratch("cache").c_str(), 1);
  return RUN_ALL_TESTS();
}
