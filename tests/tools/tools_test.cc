// Runs the golden files of this folder: a case's input is the file INPUT of its commands. `tools_test --update`
// rewrites the files with what the command gives now: read the difference before you keep it.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/file_system.h"
#include "tessera/testing/golden.h"

namespace tessera::testing_support {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/tools";
const std::string kCommand = std::string(TESSERA_BINARY_DIR) + "/bin/tessera ";

std::string path_of(const std::string& name) { return (kFolder / (name + ".golden")).string(); }

std::filesystem::path scratch(const std::string& name) {
  return std::filesystem::path(testing::TempDir()) / ("tessera_tools_" + name);
}

// What the command prints. Throws InvalidArgument with what it prints instead when it fails.
std::string run_tool(const std::string& arguments) {
  FILE* pipe = popen((kCommand + arguments + " 2>&1").c_str(), "r");
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

std::string run_tool_on(const std::string& input, const std::string& command) {
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

constexpr std::array kFiles = {"graph", "plan", "planning", "simulate"};
INSTANTIATE_TEST_SUITE_P(All, ToolGoldens, testing::ValuesIn(kFiles),
                         [](const auto& info) { return std::string(info.param); });

TEST(Graph, EveryStageOfEveryNetworkPrintsAsTextAndForGraphviz) {
  for (const char* model : {"mlp", "lenet5"}) {
    for (const char* stage : {"forward", "backward", "logical", "plan", "local", "schedule"}) {
      const auto arguments = fmt::format("graph {} --mesh data=2,model=2 --fake_kernels --stage {} ", model, stage);
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
  for (const char* stage : {"logical", "plan", "local --rank 2", "schedule --fake_kernels"}) {
    const auto arguments = fmt::format(" --ranks 3 --stage {}", stage);
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
  EXPECT_TRUE(text.starts_with("small: 2 nodes, 1 edges: optimal after ")) << text;
  EXPECT_TRUE(text.ends_with("cost 3, bound 3, gap 0.000 %\npeak usage 7 at 1 of 7\n[1, 0]\n")) << text;
  const auto json = run_tool("solve --quiet --json " + file.string());
  const auto result = nlohmann::json::parse(json.substr(0, json.find('\n')));
  EXPECT_EQ(result.at("status"), "optimal");
  EXPECT_EQ(result.at("cost"), 3);
  EXPECT_EQ(result.at("bound"), 3);
  EXPECT_TRUE(json.ends_with("\n[1, 0]\n")) << json;
}

TEST(Solve, WithoutASolutionItFails) {
  const auto file = scratch("problem");
  std::ofstream(file) << small_problem(3);
  try {
    run_tool("solve --quiet " + file.string());
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("small: 2 nodes, 1 edges: infeasible")) << error.what();
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

TEST(Plan, WhatLivesAtThePeakComesToIt) {
  for (const char* arguments :
       {"lenet5", "lenet5 --ranks 3 --rank 2", "resnet50 --batch_size 16 --recompute auto --memory_limit 1GiB"}) {
    const auto json = nlohmann::json::parse(run_tool(std::string("plan --memory --json ") + arguments));
    int64_t bytes = 0;
    for (const auto& value : json.at("at_peak")) bytes += value.at("bytes").get<int64_t>();
    EXPECT_EQ(bytes, json.at("peak_bytes")) << arguments;
    const auto alive = json.at("alive_bytes").get<std::vector<int64_t>>();
    EXPECT_EQ(*std::max_element(alive.begin(), alive.end()), bytes) << arguments;
    EXPECT_EQ(alive.at(json.at("peak_step").get<size_t>()), bytes) << arguments;
    EXPECT_GE(json.at("planned_bytes").get<int64_t>(), bytes) << arguments;
  }
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

TEST(Plan, CostsTheSumOfItsOperatorsWhichIsNoLessThanTheBound) {
  const auto json = nlohmann::json::parse(run_tool(kPlanMlp + std::string("--json")));
  const auto& search = json.at("search");
  EXPECT_LE(search.at("bound_seconds").get<double>(), search.at("cost_seconds").get<double>());
  double seconds = json.at("output_seconds").get<double>();
  for (const auto& op : json.at("operators")) {
    for (const char* part : {"compute_seconds", "own_seconds", "way_seconds"}) seconds += op.at(part).get<double>();
  }
  EXPECT_NEAR(seconds, json.at("plan").at("seconds").get<double>(), 1e-9 * seconds);
  EXPECT_GE(seconds, search.at("bound_seconds").get<double>() * (1 - 1e-9));
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
        EXPECT_GE(candidate.at("step_seconds").get<double>(), 0.99 * seconds) << command;
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
      {"info here", "error: tessera info takes no argument \"here\" here\n"},
      {"plan", "error: model is required\n"},
      {"solve --rounds 0 x", "error: --rounds: Value 0 not in range 1 to 1073741824\n"},
      {"run --timeout 0 ./program",
       "error: --timeout: must be a number of seconds above 0, up to 2147483.647, got 0\n"},
      {"run --timeout 1e17 ./program",
       "error: --timeout: must be a number of seconds above 0, up to 2147483.647, got 1e17\n"},
      {"run --timeout 3e6 ./program",
       "error: --timeout: must be a number of seconds above 0, up to 2147483.647, got 3e6\n"},
      {"plan mlp --timeout soon", "error: --timeout: must be a number of seconds above 0, got soon\n"},
      {"plan mlp --gap 5", "error: --gap: must be from 0 to 1, got 5\n"},
      {"run", "error: program is required\n"}};
  for (const auto& [arguments, text] : cases) {
    const Refusal refusal = refused_with_code(kCommand + arguments);
    EXPECT_EQ(refusal.code, 2) << arguments;
    EXPECT_TRUE(refusal.text.starts_with(text)) << arguments << "\n" << refusal.text;
  }
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

TEST(Usage, WhatFailsAfterTheCommandLineIsUnderstoodHasExitCodeOne) {
  for (const char* arguments : {"graph no_such_network", "ckpt inspect no_such_file", "run no-such-program-here",
                                "solve no_such_file --quiet", "run -n 2 false"}) {
    EXPECT_EQ(refused_with_code(kCommand + arguments).code, 1) << arguments;
  }
  EXPECT_EQ(refused_with_code(kCommand + "run -n 3 sh -c 'exit 2'").code, 2);
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
            "error: tessera run: 100 ranks need 364 file descriptors of the launcher, 256 are allowed (ulimit -Hn): "
            "start fewer ranks, or use --log_dir, which takes one for each\n");
  EXPECT_EQ(refused_with_code("ulimit -S -n 64; " + kCommand + "run -n 30 true").code, 0);
}

TEST(Plan, ANumberOfRanksThatNobodyHasIsRefusedAtOnce) {
  for (const char* command : {"plan mlp", "simulate mlp", "graph mlp"}) {
    for (const char* ranks : {"0", "-1", "1048576"}) {
      const Refusal refusal = refused_with_code(kCommand + fmt::format("{} --devices {}", command, ranks));
      EXPECT_EQ(refusal.code, 2);
      EXPECT_TRUE(refusal.text.starts_with(fmt::format("error: --ranks: must be from 1 to 65536, got {}\n", ranks)))
          << refusal.text;
    }
  }
  EXPECT_EQ(refusal_of("simulate mlp --mesh data=0"),
            "error: --mesh data=0: axis data must have from 1 to 65536 ranks, got 0\n");
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

TEST(Calibrate, TheProfileOfThisMachineIsOneThatSimulateReads) {
  const auto file = scratch("profile");
  const auto text = run_tool("calibrate --quiet --out " + file.string());
  EXPECT_NE(text.find(file.string() + ": "), std::string::npos) << text;
  double fewer_channels = 0;
  for (const char* channels : {"4", "16", "32", "64"}) {
    const auto profile = nlohmann::json::parse(FileSystem::local().read_text(file.string()));
    const auto& row = profile.at("convolution_shares").at(channels);
    EXPECT_GE(row.at("64").get<double>(), fewer_channels);
    EXPECT_GE(row.at("4096").get<double>(), row.at("64").get<double>());
    EXPECT_LE(row.at("4096").get<double>(), 1);
    fewer_channels = row.at("64").get<double>();
  }
  const auto json = nlohmann::json::parse(run_tool("simulate mlp --ranks 2 --json --profile " + file.string()));
  EXPECT_EQ(json.at("profile"), "measured, ranks of 1 thread");
  EXPECT_GT(json.at("step_seconds").get<double>(), 0);
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

}  // namespace
}  // namespace tessera::testing_support

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--update") {
    tessera::testing_support::update();
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
