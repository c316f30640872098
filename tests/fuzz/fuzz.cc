// Gives parsers damaged bytes. Execution number N of a target and a seed is always the same bytes, so what fails is
// repeated by --only N.
//   fuzz --target ckpt --executions 100000 --seed 1
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/base/workers/thread_cpu.h"
#include "tessera/testing/full.h"
#include "tests/fuzz/memory_peak.h"
#include "tests/fuzz/targets.h"

// A sanitizer that found something ends the process by SIGABRT, on which it can be said what ran.
extern "C" const char* __asan_default_options() {      // NOLINT: the sanitizers' names
  return "abort_on_error=1:alloc_dealloc_mismatch=0";  // memory_peak.cc allocates for libraries that free, too
}
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1"; }  // NOLINT

namespace tessera::fuzz {
namespace {

constexpr int64_t kSample = 100'000;
constexpr int64_t kFull = 10'000'000;
constexpr int64_t kMaxMemoryBytes = 16 << 20;
constexpr double kMaxSeconds = 0.1;  // of processor time
// What takes longer is given the same bytes again, so often at most: the fastest time counts. A machine that fetches
// memory for the first time or has no time for its guests makes one execution long, not all of them.
constexpr int kMostTries = 8;
constexpr unsigned kHangSeconds = 300;
constexpr int kFailuresShown = 5;
constexpr int64_t kRepeated = 100;

// For the last words of a process that a sanitizer, a signal or the alarm ends.
const char* running_target = "";
int64_t running_execution = 0;
uint64_t running_seed = 0;

void say_what_ran() {
  std::fprintf(stderr, "fuzz: died in execution %lld of target %s, seed %llu\n",
               static_cast<long long>(running_execution), running_target,
               static_cast<unsigned long long>(running_seed));
}

void die(int signal) {
  say_what_ran();  // NOLINT(bugprone-signal-handler): the process is lost anyway
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void watch_for_death() {
  for (const int signal : {SIGALRM, SIGABRT}) std::signal(signal, die);
#ifndef __SANITIZE_ADDRESS__  // which reports these itself
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, die);
#endif
}

double processor_seconds() { return static_cast<double>(thread_cpu_ns()) * 1e-9; }

std::vector<Target> all_targets() {
  auto targets = checkpoint_targets();
  for (auto& target : dashboard_targets()) targets.push_back(std::move(target));
  for (auto& target : hub_targets()) targets.push_back(std::move(target));
  for (auto& target : json_targets()) targets.push_back(std::move(target));
  for (auto& target : rendezvous_targets()) targets.push_back(std::move(target));
  for (auto& target : text_targets()) targets.push_back(std::move(target));
  for (auto& target : tls_targets()) targets.push_back(std::move(target));
  return targets;
}

std::string input_of(const Target& target, uint64_t seed, int64_t execution) {
  Draws draws(hash_name(target.name) ^ Draws(seed).next() ^ Draws(static_cast<uint64_t>(execution)).next());
  return target.mutate(draws.pick(target.examples), draws);
}

// What is wrong with one execution; "" when nothing is. `parsed` counts what was a value.
std::string execute(const Target& target, const std::string& input, int64_t& parsed) {
  reset_memory_peak();
  std::string problem;
  const auto parse = [&] {
    const double start = processor_seconds();
    bool is_value = false;
    try {
      is_value = target.parses(input);
    } catch (const std::exception& error) {
      problem = error.what();
    }
    return std::pair(is_value, processor_seconds() - start);
  };
  auto [is_value, seconds] = parse();
  parsed += is_value ? 1 : 0;
  for (int i = 1; i < kMostTries && seconds > kMaxSeconds; ++i) seconds = std::min(seconds, parse().second);
  const auto memory = memory_peak_bytes();
  if (problem.empty() && seconds > kMaxSeconds) problem = fmt::format("took {:.3f} s", seconds);
  if (problem.empty() && memory > kMaxMemoryBytes) problem = fmt::format("took {} bytes of memory", memory);
  return problem;
}

// Whether executions have the same bytes with another set of targets.
bool repeats(const Target& target, const Target& again, uint64_t seed) {
  for (int64_t i = 0; i < kRepeated; ++i) {
    if (input_of(target, seed, i) != input_of(again, seed, i)) return false;
  }
  return true;
}

int64_t run(const Target& target, int64_t executions, uint64_t seed) {
  int64_t failures = 0;
  int64_t parsed = 0;
  running_target = target.name.c_str();
  running_seed = seed;
  for (const auto& example : target.examples) {
    int64_t good = 0;
    const auto problem = execute(target, example, good);
    if (good == 1) continue;
    std::printf("fuzz %s: an example is refused %s\n", target.name.c_str(), problem.c_str());
    ++failures;
  }
  for (int64_t i = 0; i < executions; ++i) {
    running_execution = i;
    if (i % 1024 == 0) alarm(kHangSeconds);
    const auto problem = execute(target, input_of(target, seed, i), parsed);
    if (problem.empty()) continue;
    if (failures++ < kFailuresShown) {
      std::printf("fuzz %s: execution %lld: %s\n", target.name.c_str(), static_cast<long long>(i), problem.c_str());
    }
  }
  alarm(0);
  std::printf("%lld cases, %lld failures: fuzz %s, seed %llu, %lld parsed\n", static_cast<long long>(executions),
              static_cast<long long>(failures), target.name.c_str(), static_cast<unsigned long long>(seed),
              static_cast<long long>(parsed));
  std::fflush(stdout);
  return failures;
}

int show_one(const Target& target, uint64_t seed, int64_t execution) {
  const auto input = input_of(target, seed, execution);
  std::fwrite(input.data(), 1, input.size(), stdout);
  std::fflush(stdout);
  int64_t parsed = 0;
  const auto problem = execute(target, input, parsed);
  std::fprintf(stderr, "\n%zu bytes: %s\n", input.size(),
               problem.empty() ? parsed == 1 ? "parsed" : "refused" : problem.c_str());
  return problem.empty() ? 0 : 1;
}

}  // namespace
}  // namespace tessera::fuzz

int main(int argc, char** argv) {
  using namespace tessera::fuzz;  // NOLINT: the functions above are the whole program
  int64_t executions = tessera::is_full_test() ? kFull : kSample;
  uint64_t seed = 1;
  int64_t only = -1;
  std::string name;
  CLI::App app("Gives parsers damaged bytes: each must refuse them or give a value that prints and parses back equal");
  app.add_option("--target", name, "one parser; without it all");
  app.add_option("--executions", executions, "of each parser");
  app.add_option("--seed", seed, "other damage");
  app.add_option("--only", only, "the execution of this number, its input on standard output");
  CLI11_PARSE(app, argc, argv);

  const auto targets = all_targets();
  const auto made_again = all_targets();
  watch_for_death();
  int64_t failures = 0;
  bool found = false;
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto& target = targets[i];
    if (!name.empty() && target.name != name) continue;
    found = true;
    if (!repeats(target, made_again[i], seed)) {
      std::printf("fuzz %s: an execution is not always the same\n", target.name.c_str());
      ++failures;
    }
    failures += only >= 0 ? show_one(target, seed, only) : run(target, executions, seed);
  }
  if (!found) {
    std::fprintf(stderr, "no target %s\n", name.c_str());
    return 2;
  }
  return failures == 0 ? 0 : 1;
}
