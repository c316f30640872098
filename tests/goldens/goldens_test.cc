// Runs every golden file of this folder. `goldens_test --update`, or TESSERA_UPDATE_GOLDENS=1, rewrites the files with
// what the compiler gives now: read the difference before you keep it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "tessera/base/files/file_system.h"
#include "tessera/testing/compiler_commands.h"
#include "tessera/testing/golden.h"

namespace tessera::testing_support {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/goldens";

std::vector<std::string> golden_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".golden") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string text_of(const std::string& name) {
  return FileSystem::local().read_text((kFolder / (name + ".golden")).string());
}

struct Named {
  std::string file;
  size_t number = 0;
  GoldenCase golden;
};

std::vector<Named> all_cases() {
  std::vector<Named> cases;
  for (const auto& name : golden_files()) {
    const auto file = parse_golden(text_of(name), name);
    for (size_t i = 0; i < file.cases.size(); ++i) cases.push_back({name, i + 1, file.cases[i]});
  }
  return cases;
}

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest finds it by this name
void PrintTo(const Named& named, std::ostream* out) { *out << named.golden.claim; }

class Goldens : public testing::TestWithParam<Named> {};

TEST_P(Goldens, GiveWhatIsWritten) {
  const GoldenCase& expected = GetParam().golden;
  const auto actual = run_golden(expected, run_compiler_command);
  for (size_t i = 0; i < expected.runs.size(); ++i) {
    EXPECT_EQ(actual.runs[i].refused, expected.runs[i].refused);
    EXPECT_EQ(actual.runs[i].output, expected.runs[i].output)
        << expected.claim << "\n"
        << expected.runs[i].command << "\n(goldens_test --update rewrites the files)";
  }
}

INSTANTIATE_TEST_SUITE_P(All, Goldens, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.file + "_" + std::to_string(info.param.number); });

TEST(GoldenFiles, PrintAsTheyAreWritten) {
  for (const auto& name : golden_files()) EXPECT_EQ(print(parse_golden(text_of(name), name)), text_of(name)) << name;
}

TEST(GoldenFiles, AnOutputThatDiffersIsSeen) {
  const auto file = parse_golden("case: c\nin\nrun: one\ngives:\n1\nrun: two\nrefuses:\nno\n", "f");
  const auto actual =
      run_golden(file.cases[0], [](const std::string& input, const std::string& command) { return input + command; });
  EXPECT_EQ(actual.runs[0].output, "in\none\n");
  EXPECT_FALSE(actual.runs[1].refused);
  EXPECT_EQ(print({.header = file.header, .cases = {actual}}),
            "case: c\nin\nrun: one\ngives:\nin\none\nrun: two\ngives:\nin\ntwo\n");
}

void update() {
  for (const auto& name : golden_files()) {
    auto file = parse_golden(text_of(name), name);
    for (auto& golden : file.cases) golden = run_golden(golden, run_compiler_command);
    const auto text = print(file);
    if (text == text_of(name)) continue;
    std::ofstream(kFolder / (name + ".golden")) << text;
    std::cout << "rewrote " << name << ".golden\n";
  }
}

}  // namespace
}  // namespace tessera::testing_support

int main(int argc, char** argv) {
  const char* wanted = std::getenv("TESSERA_UPDATE_GOLDENS");
  if ((wanted != nullptr && std::string(wanted) == "1") || (argc > 1 && std::string(argv[1]) == "--update")) {
    tessera::testing_support::update();
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
