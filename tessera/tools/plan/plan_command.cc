#include "tessera/tools/plan/plan_command.h"

#include <cstdio>

#include "tessera/engine.h"
#include "tessera/tools/arguments/option_use.h"
#include "tessera/tools/arguments/step_arguments.h"
#include "tessera/tools/arguments/usage.h"
#include "tessera/tools/plan/plan_budget.h"
#include "tessera/tools/plan/plan_memory.h"
#include "tessera/tools/plan/plan_page.h"
#include "tessera/tools/plan/plan_step.h"
#include "tessera/tools/plan/plan_text.h"
#include "tessera/tools/plan/plan_why.h"
#include "tessera/tools/plan/stages_diff.h"
#include "tessera/tools/plan/stages_page.h"
#include "tessera/tools/plan/stages_text.h"
#include "tessera/tools/plan/stages_why.h"

namespace tessera::tools {
namespace {

// What the options below fill in.
struct Arguments {
  PlanCommand plan;
  PlanMemoryOptions memory;
  bool shows_memory = false;
  bool json = false;
  bool quiet = false;
  int num_rows = 40;
  std::string why;  // an operator
  int num_choices = 5;
  std::vector<std::string> diff;  // two plan files
  std::string check;              // a budget's file
  std::string write_budget;       // a file
  std::string html;               // a file
  StagesCommand stages;
};

constexpr const char* kFooter =
    "Searches for the best way to split every operator, parameter and state over so many ranks, on every grid of\n"
    "them. It simulates what it has found beside data parallel. It prints which of the two it took, what each\n"
    "operator takes, and the proven bound (docs/planning.md; of pipelines docs/pipelines.md).\n"
    "With --memory it prints instead the arena of one rank, where the step is spread as the options say: the step at\n"
    "which most of the arena is in use, what lives there then, largest first, and how much is in use over the step.\n"
    "Examples:\n"
    "  tessera plan gpt2_small --devices 8 --machine cluster.json --out plan.json\n"
    "  tessera plan llama_8b --devices 16 --machine h100-80gb --precision bfloat16\n"
    "  tessera plan llama_8b --devices 64 --memory_limit 80GiB --simulate\n"
    "  tessera plan gpt2_small --load plan.json        what an edited plan costs\n"
    "  tessera plan resnet50 --devices 8 --stages 4 --micro_batches 16       a pipeline: where it is cut\n"
    "  tessera plan resnet50 --devices 8 --stages auto                       whether one is faster, and which\n"
    "  tessera plan resnet50 --devices 8 --stages 4 --why 0                  what other places for its first cut cost\n"
    "  tessera plan resnet50 --devices 8 --stages auto --why ranks           what other numbers of ranks cost\n"
    "  tessera plan resnet50 --memory --batch_size 32 --num_classes 1000\n"
    "  tessera plan resnet50 --memory --recompute auto --memory_limit 2GiB       what would be computed twice\n"
    "  tessera plan step.graph --memory --mesh data=4,model=2 --rank 3 --json";

void add_search_options(CLI::App& plan, PlanCommand& command) {
  add_machine_options(plan, command.machine);
  plan.add_option("--algorithm", command.algorithm, "certified, dynamic_programming or recursive_programming")
      ->check(CLI::IsMember({"certified", "dynamic_programming", "recursive_programming"}))
      ->capture_default_str();
  plan.add_option("--max_axes", command.max_axes, "the most axes of the grids that are looked at")
      ->capture_default_str()
      ->check(CLI::Range(1, 3));
  plan.add_option("--rounds", command.rounds, "rounds of search on each grid; default: 50, or what the timeout allows")
      ->check(count_from(1));
  plan.add_option("--timeout", command.timeout,
                  "seconds for all of it; then the best that is known is taken, and what was left out is said. Data "
                  "parallel is simulated whatever it takes")
      ->check(positive_seconds());
  plan.add_option("--gap", command.gap, "a gap that is good enough: (cost - bound) / cost")
      ->capture_default_str()
      ->check(fraction());
  plan.add_option("--seed", command.seed, "the seed of the search")->check(count_from(0))->capture_default_str();
  plan.add_option("--out", command.out, "write the plan to this file, which can be read, edited and loaded");
  plan.add_option("--load", command.load, "take the plan of this file instead of a search");
  plan.add_flag(
      "--simulate", command.simulate,
      "print what the simulation of this plan and of data parallel says, too: computing, waiting, exact memory");
  plan.add_flag("--full_batch", command.full_batch,
                "every rank reads the whole batch, so that inputs lie as the plan wants; default: each has its part");
}

// What each option has an effect on.
std::vector<OptionEffect> uses_of(const Arguments& a) {
  const StepOptions& step = a.plan.step;
  const bool compares = !a.diff.empty();
  const bool plans = !a.shows_memory && !compares;
  const bool cuts = a.stages.is_pipeline();
  const bool searches = plans && a.plan.load.empty();
  // The search for the next best choices goes by the same options as that for a plan.
  const bool searches_again = searches || !a.why.empty();
  const bool prints_plan = plans && a.why.empty() && a.check.empty();
  const bool plans_whole = plans && !cuts;
  constexpr const char* kSearch = "a search: without --load, --diff and --memory";
  constexpr const char* kSearchOrWhy = "a search: without --load (unless --why searches), --diff and --memory";
  constexpr const char* kPlan = "a plan: without --diff and --memory";
  constexpr const char* kNoMemory = "a plan: without --memory";
  constexpr const char* kWhole = "a plan of one stage: without --stages, --diff and --memory";
  constexpr const char* kUsed =
      "what the simulation is for: without --diff and --memory, and with --why only where a page or budget is written";
  std::vector<OptionEffect> uses = uses_of_step_options(step, /*is_compiled=*/true, /*has_strategies=*/true);
  const std::vector<OptionEffect> own = {
      {"--mesh", a.shows_memory || searches_again, kSearchOrWhy},
      {"--mesh", !cuts, kWhole},
      {"--input", a.shows_memory || searches_again, kSearchOrWhy},
      {"--input", !cuts, kWhole},
      {"--strategy", a.shows_memory || searches, kSearch},
      {"--memory_limit", !compares, "a plan or --memory: without --diff"},
      {"--machine", !a.shows_memory, kNoMemory},
      {"--tf32", !a.shows_memory, kNoMemory},
      {"--devices_per_host", !a.shows_memory, kNoMemory},
      {"--algorithm", searches_again, kSearchOrWhy},
      {"--max_axes", searches && step.mesh.empty(), "a search over several grids: without --mesh and --load"},
      {"--rounds", searches, kSearch},
      {"--timeout", searches_again, kSearchOrWhy},
      {"--gap", searches_again, kSearchOrWhy},
      {"--seed", searches_again, kSearchOrWhy},
      {"--full_batch", searches_again, kSearchOrWhy},
      {"--full_batch", !cuts || a.stages.stages == "auto", kWhole},
      {"--stages", plans, kPlan},
      {"--stage_ranks", plans, kPlan},
      {"--micro_batches", cuts, "--stages"},
      {"--schedule", cuts, "--stages"},
      {"--segments", cuts, "--stages"},
      {"--out", plans_whole, kWhole},
      {"--load", plans_whole, kWhole},
      {"--check", !cuts, kWhole},
      {"--simulate", !cuts, kWhole},
      {"--simulate", plans && (prints_plan || !a.write_budget.empty() || !a.html.empty() || !a.check.empty()), kUsed},
      {"--rows", !cuts, kWhole},
      {"--rows", prints_plan && !a.json,
       "the table that is printed: without --json, --why, --check, --diff and --memory"},
      {"--choices", !a.why.empty(), "--why"},
      {"--html", plans, kPlan},
      {"--write_budget", plans_whole, kWhole},
      {"--json", prints_plan || a.shows_memory, "a plan or --memory: without --why, --check and --diff"},
      {"--rank", a.shows_memory, "--memory"},
      {"--values", a.shows_memory && !a.json, "the table of --memory: without --json"},
      {"--fake_kernels", a.shows_memory, "--memory"},
  };
  uses.insert(uses.end(), own.begin(), own.end());
  return uses;
}

// Of two plans, or of two pipelines.
std::string difference_of(const PlanCommand& command, const std::string& first, const std::string& second) {
  const bool is_first = is_stages_file(first);
  if (is_first != is_stages_file(second)) {
    throw UsageError("--diff: {} is a pipeline, {} is a plan of one stage: compare two of a kind",
                     is_first ? first : second, is_first ? second : first);
  }
  return is_first ? stages_diff_text(first, second) : diff_text(command, first, second);
}

// Returns the exit code.
int run(Arguments& arguments) {
  if (arguments.shows_memory) {
    arguments.memory.step = arguments.plan.step;
    arguments.memory.json = arguments.json;
    std::fputs(plan_memory_text(arguments.memory).c_str(), stdout);
    return 0;
  }
  auto command = arguments.plan;
  command.progress = !arguments.quiet;
  if (!arguments.diff.empty()) {
    std::fputs(difference_of(command, arguments.diff[0], arguments.diff[1]).c_str(), stdout);
    return 0;
  }
  const auto& model = command.step.model;
  if (arguments.stages.is_pipeline()) {
    const auto step = plan_stages_step(command, arguments.stages);
    if (!arguments.html.empty()) {
      const auto page = step->taken ? stages_page(*step, model) : plan_page(*step->one_stage, model);
      FileSystem::local().write_atomically(arguments.html, page);
    }
    const auto text = !arguments.why.empty() ? why_stages_text(*step, arguments.why, arguments.num_choices)
                      : arguments.json       ? stages_json(*step, model)
                                             : stages_text(*step, model);
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  FileSystem& files = FileSystem::local();
  const bool checks = !arguments.check.empty();
  if (checks && files.exists(arguments.write_budget) &&
      files.real_path(arguments.check) == files.real_path(arguments.write_budget)) {
    throw UsageError("--write_budget would replace {}, which --check reads: write the new budget to another file",
                     arguments.check);
  }
  const std::string budget = checks ? read_settings(files, arguments.check, "budget") : "";
  const auto planned = plan_step(command);
  if (!arguments.write_budget.empty()) {
    files.write_atomically(arguments.write_budget, budget_json(planned, model));
  }
  if (!arguments.html.empty()) files.write_atomically(arguments.html, plan_page(planned, model));
  if (checks) {
    const auto check = check_budget(planned, model, budget, arguments.check);
    std::fputs(check.text.c_str(), stdout);
    return check.is_met ? 0 : 1;
  }
  const auto text = !arguments.why.empty() ? why_text(planned, command, arguments.why, arguments.num_choices)
                    : arguments.json       ? plan_json(planned, model)
                                           : plan_text(planned, model, arguments.num_rows);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_code) {
  static Arguments arguments;
  auto* plan = app.add_subcommand("plan", "find the best way to split a train step over ranks, and what it costs");
  plan->footer(kFooter);
  add_step_options(*plan, arguments.plan.step);
  add_search_options(*plan, arguments.plan);
  add_stage_options(*plan, arguments.stages,
                    "cut the network into so many stages of a pipeline, with as many ranks each; auto: as many as make "
                    "a step shortest, one among them, each with as many ranks as make it so");
  plan->add_option("--rows", arguments.num_rows, "the rows of operators that are printed, those that take longest")
      ->check(count_from(0))
      ->capture_default_str();
  auto* why = plan->add_option(
      "--why", arguments.why,
      "print instead what the next best choices of an operator would cost, as up:matmul or 'gradient "
      "up:matmul'; with --stages those of a cut: 0 is the one between stages 0 and 1; or of 'ranks': how many "
      "each stage has");
  plan->add_option("--choices", arguments.num_choices, "with --why: how many choices are printed")
      ->check(count_from(0))
      ->capture_default_str();
  auto* diff =
      plan->add_option("--diff", arguments.diff,
                       "print instead what two plan files for this step do differently, or two pipelines that --json "
                       "has written")
          ->expected(2)
          ->excludes(why);
  plan->add_option(
      "--html", arguments.html,
      "write a page with the graph, memory and lanes (with --simulate) and all operators to this file; with "
      "--stages with the pipeline, stage by time, and memory");
  auto* check = plan->add_option("--check", arguments.check,
                                 "say instead whether the plan keeps within this budget; exit code 1 where not");
  check->excludes(why)->excludes(diff);
  plan->add_option("--write_budget", arguments.write_budget, "write what the plan takes to this file, as a budget");
  plan->add_flag("--json", arguments.json, "print one JSON object");
  plan->add_flag("--quiet", arguments.quiet, "print no progress on standard error");
  plan->add_flag("--memory", arguments.shows_memory, "print instead what the memory of one rank is used for")
      ->excludes(why)
      ->excludes(diff)
      ->excludes(check);
  plan->add_option("--rank", arguments.memory.rank, "with --memory: the rank whose memory is shown")
      ->check(count_from(0))
      ->capture_default_str();
  plan->add_option("--values", arguments.memory.num_values,
                   "with --memory: how many of the values that live at the peak are listed")
      ->check(count_from(0))
      ->capture_default_str();
  plan->add_flag("--fake_kernels", arguments.plan.step.fake_kernels,
                 "with --memory: leave out the scratch memory of this machine's kernels");
  plan->callback([plan, &exit_code] {
    require_effects(*plan, uses_of(arguments));
    require_writable("--out", arguments.plan.out);
    require_writable("--html", arguments.html);
    require_writable("--write_budget", arguments.write_budget);
    exit_code = run(arguments);
  });
}

}  // namespace tessera::tools
