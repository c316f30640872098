// Schedules as pictures: runs schedules.golden. `pipeline_goldens_test --update` rewrites the file with what comes out
// now: read the difference before you keep it. The commands, with the options of run_command and their defaults:
//   picture NAME [stages=4] [micro_batches=8] [forward=1] [backward=1] [weight_gradient=1] [split] [rounds=1] [back]
//           [chunks=N] [transfer=0] [latency=0] [update=0] [slots=2] [memory=N]   memory: for N micro-batches
//   text NAME ...
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>

#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"
#include "tessera/base/strings.h"
#include "tessera/pipeline/schedule_text.h"
#include "tessera/pipeline/search/find_schedule.h"
#include "tessera/pipeline/test_problems.h"
#include "tessera/pipeline/verify_schedule.h"
#include "tessera/testing/golden.h"

namespace tessera::pipeline {
namespace {

using testing_support::parse_golden;
using testing_support::run_golden;

const std::string kFile = std::string(TESSERA_SOURCE_DIR) + "/tessera/pipeline/schedules.golden";

struct Asked {
  Equal equal{.split = false};
  TransferTime transfer;
  int64_t update = 0;
  int slots = 2;
  int64_t micro_batches_in_memory = 0;  // 0: no limit

  void set(std::string_view word) {
    const auto parts = split(word, '=');
    const auto name = parts[0];
    if (parts.size() == 1 && name == "split") {
      equal.split = true;
    } else if (parts.size() == 1 && name == "back") {
      equal.back = true;
    } else if (parts.size() == 2) {
      set(name, parse_int(parts[1], name));
    } else {
      throw InvalidArgument("unknown option {}", word);
    }
  }

  PipelineProblem problem() const {
    auto result = equal_problem(equal);
    result.slots = slots;
    for (auto& border : result.borders) border.forward = border.backward = transfer;
    for (auto& stage : result.stages) stage.update_ns = update;
    if (micro_batches_in_memory > 0) limit_memory(result, micro_batches_in_memory);
    return result;
  }

 private:
  void set(std::string_view name, int64_t value) {
    const std::pair<std::string_view, int64_t*> times[] = {{"forward", &equal.forward},
                                                           {"backward", &equal.backward},
                                                           {"weight_gradient", &equal.weight_gradient},
                                                           {"transfer", &transfer.duration_ns},
                                                           {"latency", &transfer.latency_ns},
                                                           {"update", &update},
                                                           {"memory", &micro_batches_in_memory}};
    const std::pair<std::string_view, int*> counts[] = {{"stages", &equal.stages},
                                                        {"micro_batches", &equal.micro_batches},
                                                        {"rounds", &equal.rounds},
                                                        {"chunks", &equal.chunks},
                                                        {"slots", &slots}};
    for (const auto& [known, field] : times) {
      if (known == name) return void(*field = value);
    }
    for (const auto& [known, field] : counts) {
      if (known == name) return void(*field = static_cast<int>(value));
    }
    throw InvalidArgument("unknown option {}", name);
  }
};

std::string run_command(const std::string& /*input*/, const std::string& command) {
  const auto words = split(command, ' ');
  if (words.size() < 2) throw InvalidArgument("expected a command and the name of a schedule");
  Asked asked;
  for (size_t i = 2; i < words.size(); ++i) asked.set(words[i]);
  const auto problem = asked.problem();
  const auto found = find_schedule(problem, words[1], {.effort = 200'000});
  check(verify(problem, found.schedule).empty(), "a schedule is sound");
  check(parse_pipeline_schedule(print(found.schedule)) == found.schedule, "a schedule's text reads back");
  if (words[0] == "text") return print(found.schedule);
  if (words[0] != "picture") throw InvalidArgument("unknown command {}", words[0]);
  return picture(found.schedule) + fmt::format("makespan {}, bound {}, bubble {:.4f}, peak bytes {}\n",
                                               found.makespan_ns, found.bound.ns, found.bubble,
                                               fmt::join(found.peak_bytes, " "));
}

std::string text_of_file() { return FileSystem::local().read_text(kFile); }

TEST(PipelineGoldens, GiveWhatIsWritten) {
  const auto file = parse_golden(text_of_file(), kFile);
  EXPECT_EQ(print(file), text_of_file());
  for (const auto& expected : file.cases) {
    const auto actual = run_golden(expected, run_command);
    for (size_t i = 0; i < expected.runs.size(); ++i) {
      EXPECT_EQ(actual.runs[i].refused, expected.runs[i].refused) << expected.claim;
      EXPECT_EQ(actual.runs[i].output, expected.runs[i].output)
          << expected.claim << "\n"
          << expected.runs[i].command << "\n(pipeline_goldens_test --update rewrites the file)";
    }
  }
}

}  // namespace

void update() {
  auto file = parse_golden(text_of_file(), kFile);
  for (auto& golden : file.cases) golden = run_golden(golden, run_command);
  const auto text = print(file);
  if (text == text_of_file()) return;
  std::ofstream(kFile) << text;
  std::cout << "rewrote " << kFile << "\n";
}

}  // namespace tessera::pipeline

int main(int argc, char** argv) {
  const char* wanted = std::getenv("TESSERA_UPDATE_GOLDENS");
  if ((wanted != nullptr && std::string(wanted) == "1") || (argc > 1 && std::string(argv[1]) == "--update")) {
    tessera::pipeline::update();
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
