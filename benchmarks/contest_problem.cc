// Writes a problem like those of the ASPLOS/EuroSys 2025 contest, of any size, as its file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <unordered_map>

#include "tessera/testing/contest_problem.h"

namespace {

using tessera::solver::Problem;

constexpr const char* kEndless = "1000000000000000000";

std::string numbers(const std::vector<double>& costs) {
  std::string text = "[";
  for (const double cost : costs) {
    if (text.size() > 1) text += ',';
    if (cost == tessera::solver::kForbidden) {
      text += kEndless;
    } else {
      fmt::format_to(std::back_inserter(text), "{:.0f}", cost);
    }
  }
  return text + "]";
}

// Calls write(i) for 0 <= i < count, with commas between.
template <typename Write>
void list(const char* name, size_t count, Write write) {
  fmt::print("\"{}\":[", name);
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) std::fputc(',', stdout);
    write(i);
  }
  std::fputc(']', stdout);
}

void print(const Problem& problem) {
  const auto& nodes = problem.nodes;
  const auto& edges = problem.edges;
  fmt::print("{{\"problem\":{{\"name\":\"{}\",\"nodes\":{{", problem.name);
  list("intervals", nodes.size(), [&](size_t n) { fmt::print("[{},{}]", nodes[n].begin, nodes[n].end); });
  std::fputc(',', stdout);
  list("costs", nodes.size(), [&](size_t n) { fmt::print("{}", numbers(nodes[n].costs)); });
  std::fputc(',', stdout);
  list("usages", nodes.size(), [&](size_t n) { fmt::print("[{}]", fmt::join(nodes[n].usages, ",")); });
  fmt::print("}},\"edges\":{{");
  list("nodes", edges.size(), [&](size_t e) { fmt::print("[{},{}]", edges[e].u, edges[e].v); });
  std::fputc(',', stdout);
  std::unordered_map<const void*, std::string> texts;  // of costs that edges share
  list("costs", edges.size(), [&](size_t e) {
    auto& text = texts[edges[e].costs.identity()];
    if (text.empty()) text = numbers(edges[e].costs);
    std::fwrite(text.data(), 1, text.size(), stdout);
  });
  fmt::print("}},\"usage_limit\":{}}}}}\n", problem.usage_limit);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "a problem like those of the ASPLOS/EuroSys 2025 contest on intra-operator parallelism, on standard output");
  int num_nodes = 33'000;
  uint64_t seed = 0;
  app.add_option("nodes", num_nodes, "about so many")->check(CLI::Range(1000, 10'000'000))->required();
  app.add_option("--seed", seed)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  print(tessera::testing::contest_problem(num_nodes, seed));
  return 0;
}
