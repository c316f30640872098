// How good "auto" is: for many numbers of stages and micro-batches, beside the best named schedule and beside the
// bound. TESSERA_TEST_FULL=1 takes all numbers of stages from 2 to 16.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "tessera/base/error.h"
#include "tessera/pipeline/search/find_schedule.h"
#include "tessera/pipeline/search/named.h"
#include "tessera/pipeline/test_problems.h"
#include "tessera/pipeline/verify_schedule.h"
#include "tessera/testing/full.h"

namespace tessera::pipeline {
namespace {

using ::testing::IsEmpty;

struct Cell {
  std::string name;
  double of_bound = 0;  // makespan / bound
  double of_named = 0;  // makespan / that of the best named schedule
};

Cell cell(const std::string& name, const PipelineProblem& problem) {
  const auto found = find_schedule(problem, "auto", {.effort = is_full_test() ? 1'500'000 : 300'000});
  EXPECT_THAT(verify(problem, found.schedule), IsEmpty()) << name;
  double best_named = 0;
  for (const auto& named : schedule_names()) {
    if (!misfit(problem, named).empty()) continue;
    try {
      const auto makespan = static_cast<double>(named_schedule(problem, named).makespan_ns());
      best_named = best_named == 0 ? makespan : std::min(best_named, makespan);
    } catch (const InvalidArgument&) {  // its memory does not fit
    }
  }
  const auto makespan = static_cast<double>(found.makespan_ns);
  return {name, makespan / static_cast<double>(found.bound.ns), best_named == 0 ? 0 : makespan / best_named};
}

// On each way over the stages, split and not, in ample memory and in that of 1f1b.
template <typename MakeProblem>
std::vector<Cell> table(const MakeProblem& make_problem) {
  std::vector<Cell> cells;
  for (int p = 2; p <= 16; ++p) {
    if (!is_full_test() && p != 2 && p != 3 && p != 4 && p != 8) continue;
    for (const int times : {1, 2, 4, 8}) {
      if (!is_full_test() && p * times > 32) continue;
      for (const int way : {0, 1, 2}) {
        for (const bool split : {false, true}) {
          for (const bool ample : {true, false}) {
            auto problem = make_problem(Equal{
                .stages = p, .micro_batches = times * p, .split = split, .rounds = way == 1 ? 2 : 1, .back = way == 2});
            if (!ample) limit_memory(problem, p);
            constexpr const char* kWays[] = {"once", "twice", "there and back"};
            cells.push_back(cell(fmt::format("{} stages, {} micro-batches, {}, {}, {} memory", p, times * p, kWays[way],
                                             split ? "split" : "whole", ample ? "ample" : "1f1b's"),
                                 problem));
          }
        }
      }
    }
  }
  return cells;
}

void print_distribution(const std::string& title, const std::vector<Cell>& cells) {
  std::vector<double> ratios;
  for (const auto& cell : cells) ratios.push_back(cell.of_bound);
  std::sort(ratios.begin(), ratios.end());
  const auto quantile = [&](double q) {
    return ratios[static_cast<size_t>(q * static_cast<double>(ratios.size() - 1))];
  };
  std::cout << fmt::format("{}: {} cells, makespan / bound: median {:.4f}, 80 % {:.4f}, 95 % {:.4f}, worst {:.4f}\n",
                           title, cells.size(), quantile(0.5), quantile(0.8), quantile(0.95), ratios.back());
  auto worst = cells;
  std::sort(worst.begin(), worst.end(), [](const Cell& a, const Cell& b) { return a.of_bound > b.of_bound; });
  for (size_t i = 0; i < std::min<size_t>(worst.size(), 8); ++i) {
    std::cout << fmt::format("  {:.4f} of the bound, {:.4f} of the best named: {}\n", worst[i].of_bound,
                             worst[i].of_named, worst[i].name);
  }
}

void expect_never_slower(const std::vector<Cell>& cells) {
  for (const auto& cell : cells) EXPECT_LE(cell.of_named, 1) << cell.name;
}

TEST(PipelineTable, EqualStagesAreWithinTwoPercentOfTheBoundInFourOfFiveCells) {
  const auto cells = table([](const Equal& equal) { return equal_problem(equal); });
  print_distribution("equal stages", cells);
  expect_never_slower(cells);
  const auto near = std::count_if(cells.begin(), cells.end(), [](const Cell& cell) { return cell.of_bound <= 1.02; });
  std::cout << near << " of " << cells.size() << " within 2 % of the bound\n";
  EXPECT_GE(near * 10, static_cast<int64_t>(cells.size()) * 8);
}

TEST(PipelineTable, UnequalStagesAreNeverSlowerThanANamedSchedule) {
  uint64_t seed = 0;
  const auto cells = table([&](const Equal& equal) { return unequal_problem(equal, ++seed); });
  print_distribution("unequal stages", cells);
  expect_never_slower(cells);
}

}  // namespace
}  // namespace tessera::pipeline
