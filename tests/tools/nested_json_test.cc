// What the command reads as JSON, nested so deep that copying it would take the whole stack: each reader refuses it by
// its file's name.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/read/safetensors_header.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tessera/cluster/report/job_report.h"
#include "tessera/cluster/tls/tls_config.h"
#include "tessera/compiler/cost/machines.h"
#include "tessera/compiler/search/plan_record.h"
#include "tessera/executor/kernel_table.h"
#include "tessera/session/records/recorded_values.h"
#include "tessera/solver/problem/problem_json.h"
#include "tessera/timeline/timeline_json.h"
#include "tessera/tools/check/facts.h"
#include "tessera/tools/check/findings.h"
#include "tessera/tools/plan/plan_budget.h"
#include "tessera/tools/plan/stages_diff.h"

namespace tessera::tools {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

// Lists and objects of so many levels.
std::vector<std::string> deep_texts(size_t levels) {
  std::string objects;
  for (size_t i = 0; i < levels; ++i) objects += "{\"a\":";
  return {std::string(levels, '['), std::string(levels, '[') + std::string(levels, ']'), objects,
          objects + "1" + std::string(levels, '}')};
}

std::string file_of_safetensors(const std::string& header) {
  std::string length(8, '\0');
  for (size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xffU);
  return length + header;
}

struct DeepCase {
  const char* reader;
  std::function<void(const std::string& text)> read;
  const char* begin;  // of the message
  size_t levels = 400'000;
};

std::vector<DeepCase> deep_cases() {
  const auto in_memory = [](const std::string& path, const std::string& text) {
    auto files = std::make_shared<MemoryFileSystem>();
    files->create_directories("d");
    files->write_atomically(path, text);
    return files;
  };
  static const std::string local = (std::filesystem::path(testing::TempDir()) / "deep.json").string();
  const auto budget = [](const std::string& text) { check_budget(PlannedStep(), "mlp", text, "deep.json"); };
  const auto stages = [](const std::string& text) {
    FileSystem::local().write_atomically(local, text);
    is_stages_file(local);
  };
  const auto tls = [](const std::string& text) {
    cluster::parse_tls_config(text, "deep.json", cluster::TlsSide::kClient, cluster::Password());
  };
  return {
      {"machine profile", [=](auto& text) { compiler::read_machine(*in_memory("deep.json", text), "deep.json"); },
       "deep.json: "},
      {"plan", [](auto& text) { compiler::parse_plan_record(text, "deep.json"); }, "deep.json: "},
      {"budget", budget, "deep.json: "},
      {"stages", stages, local.c_str()},
      {"table of kernels", [](auto& text) { executor::KernelTable("machine").merge_json(text); },
       "it is not a table of kernels: "},
      {"problem", [](auto& text) { solver::parse_problem(text, "deep.json"); }, "deep.json: "},
      {"timeline", [](auto& text) { timeline::parse_timeline(text, "deep.json"); }, "deep.json: "},
      {"predicted timeline", [](auto& text) { timeline::parse_predicted(text, "deep.json"); }, "deep.json: "},
      {"strategy", [](auto& text) { checkpoint::parse_strategy_file(text, "deep.json"); }, "deep.json: "},
      {"safetensors",
       [=](auto& text) {
         const auto files = in_memory("d/deep.safetensors", file_of_safetensors(text));
         checkpoint::read_safetensors_header(*files, "d/deep.safetensors");
       },
       "d/deep.safetensors: "},
      {"TLS configuration", tls, "the TLS configuration \"deep.json\": "},
      {"facts of a host", [](auto& text) { parse_host(text); }, "the facts of a host cannot be read: "},
      // Lines of records and reports are short, or are not read at all.
      {"recorded values", [=](auto& text) { session::read_step(*in_memory("d/step-1.rank-0.jsonl", text), "d", 1); },
       "d/step-1.rank-0.jsonl: line 1: ", 5000},
      {"report of a rank", [=](auto& text) { cluster::read_job_report(*in_memory("d/rank.0.json", text), "d"); }, "",
       20'000},
  };
}

TEST(NestedJson, IsRefusedByEachReaderWithItsFile) {
  for (const DeepCase& one : deep_cases()) {
    for (const std::string& text : deep_texts(one.levels)) {
      EXPECT_THAT([&] { one.read(text); },
                  testing::ThrowsMessage<InvalidArgument>(
                      AllOf(StartsWith(one.begin), HasSubstr("nested deeper than "), HasSubstr("line 1, column "))))
          << one.reader << ": " << text.substr(0, 10);
    }
  }
}

TEST(NestedJson, OfARankTableIsAFaultThatIsFound) {
  for (const std::string& text : deep_texts(400'000)) {
    const auto faults = find_faults(ClusterFacts{}, text, "table.json");
    EXPECT_THAT(faults, Contains(testing::Field(
                            &Finding::what, StartsWith("table.json: cannot be read as a rank table: nested deeper"))));
  }
}

}  // namespace
}  // namespace tessera::tools
