#include "tessera/testing/golden.h"

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::testing_support {
namespace {

constexpr std::string_view kCase = "case:";
constexpr std::string_view kRun = "run:";
constexpr std::string_view kGives = "gives:";
constexpr std::string_view kRefuses = "refuses:";

void append_line(std::string& text, std::string_view line) {
  text += line;
  text += '\n';
}

// Blank lines around a block separate it from the next; they are not part of it.
std::string trim_block(std::string_view text) {
  while (text.starts_with('\n')) text.remove_prefix(1);
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text.empty() ? "" : std::string(text) + "\n";
}

}  // namespace

GoldenFile parse_golden(std::string_view text, const std::string& name) {
  GoldenFile file;
  std::string* block = &file.header;
  int number = 0;
  const auto fail = [&](std::string_view what) { throw InvalidArgument("{}, line {}: {}", name, number, what); };
  if (text.ends_with('\n')) text.remove_suffix(1);
  for (const auto line : split(text, '\n')) {
    ++number;
    if (line.starts_with(kCase)) {
      file.cases.push_back({.claim = std::string(trim(line.substr(kCase.size())))});
      if (file.cases.back().claim.empty()) fail("a case needs a claim");
      block = &file.cases.back().input;
    } else if (line.starts_with(kRun)) {
      if (file.cases.empty()) fail("\"run:\" must be inside a case");
      file.cases.back().runs.push_back({.command = std::string(trim(line.substr(kRun.size())))});
      block = nullptr;
    } else if (line == kGives || line == kRefuses) {
      if (file.cases.empty() || file.cases.back().runs.empty() || block != nullptr) {
        fail(fmt::format("\"{}\" must follow a \"run:\"", line));
      }
      auto& run = file.cases.back().runs.back();
      run.refused = line == kRefuses;
      block = &run.output;
    } else if (block != nullptr) {
      append_line(*block, line);
    } else if (!trim(line).empty()) {
      fail("expected \"gives:\" or \"refuses:\" after \"run:\"");
    }
  }
  file.header = trim_block(file.header);
  for (auto& golden : file.cases) {
    golden.input = trim_block(golden.input);
    if (golden.runs.empty()) throw InvalidArgument("{}: case \"{}\" runs nothing", name, golden.claim);
    for (auto& run : golden.runs) run.output = trim_block(run.output);
  }
  return file;
}

std::string print(const GoldenFile& file) {
  std::string text = file.header;
  for (const auto& golden : file.cases) {
    if (!text.empty()) text += '\n';
    append_line(text, fmt::format("{} {}", kCase, golden.claim));
    text += golden.input;
    for (const auto& run : golden.runs) {
      append_line(text, fmt::format("{} {}", kRun, run.command));
      append_line(text, run.refused ? kRefuses : kGives);
      text += run.output;
    }
  }
  return text;
}

GoldenCase run_golden(const GoldenCase& golden, const GoldenCommand& command) {
  GoldenCase result = golden;
  for (auto& run : result.runs) {
    run.refused = false;
    try {
      run.output = command(golden.input, run.command);
    } catch (const InvalidArgument& error) {
      run.refused = true;
      run.output = error.what();
    }
    run.output = trim_block(run.output);
  }
  return result;
}

}  // namespace tessera::testing_support
