// The command `tessera`: starts jobs, looks into checkpoints and graphs, simulates, says what this build can do.
#include <fmt/format.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>

#include "tessera/engine.h"
#include "tessera/tessera.h"
#include "tessera/tools/arguments/completion.h"
#include "tessera/tools/arguments/option_use.h"
#include "tessera/tools/arguments/step_arguments.h"
#include "tessera/tools/arguments/usage.h"
#include "tessera/tools/bisect/bisect_command.h"
#include "tessera/tools/calibrate.h"
#include "tessera/tools/ckpt_command.h"
#include "tessera/tools/cluster_command.h"
#include "tessera/tools/graph_text.h"
#include "tessera/tools/info.h"
#include "tessera/tools/job_command.h"
#include "tessera/tools/kernels_text.h"
#include "tessera/tools/plan/plan_command.h"
#include "tessera/tools/report/report_command.h"
#include "tessera/tools/run_command.h"
#include "tessera/tools/simulate_text.h"
#include "tessera/tools/solve_text.h"
#include "tessera/tools/timeline/trace_command.h"

namespace {

using namespace tessera;  // NOLINT: the commands below are the whole program

constexpr const char* kVersion = TESSERA_VERSION;

void add_graph(CLI::App& app) {
  static tools::GraphOptions options;
  auto* graph = app.add_subcommand("graph", "print a network at any stage of its compilation");
  graph->footer(
      "MODEL is a built-in network (" + tools::model_names() +
      ") or a file with the text of a logical\n"
      "graph, as Python's model.graph_text(rows) gives it, the examples write it with --save_graph and this command\n"
      "prints it; its nodes may carry strategies\n"
      "(\"shard ((4,1),(1,2))\"). Stages, each made of the one before:\n"
      "  forward   the network alone, global shapes\n"
      "  backward  with the loss and the gradients d<parameter>\n"
      "  logical   the whole step: forward, backward, update\n"
      "  plan      the sharding of every value and operand; no rank in it yet\n"
      "  local     what one rank runs: its shapes, collectives as nodes\n"
      "  schedule  steps with lanes, kernels and memory offsets\n"
      "Examples:\n"
      "  tessera graph resnet50 --stage logical > step.graph\n"
      "  tessera graph step.graph --mesh data=4,model=2 --stage plan\n"
      "  tessera graph mlp --ranks 4 --rank 1 --optimizer_shards --stage local\n"
      "  tessera graph mlp --mesh data=2,model=2 --strategy 'up:matmul=((2,1),(2,1))' --stage plan\n"
      "  tessera graph mlp --ranks 4 --stage local --format dot | dot -Tsvg > mlp.svg");
  tools::add_step_options(*graph, options.step);
  graph->add_option("--stage", options.stage, "forward, backward, logical, plan, local or schedule")
      ->check(CLI::IsMember({"forward", "backward", "logical", "plan", "local", "schedule"}))
      ->capture_default_str();
  graph->add_option("--rank", options.rank, "the rank whose local graph or schedule is printed")
      ->check(tools::count_from(0))
      ->capture_default_str();
  graph->add_option("--format", options.format, "text, or dot for Graphviz")
      ->check(CLI::IsMember({"text", "dot"}))
      ->capture_default_str();
  graph->add_flag("--fake_kernels", options.step.fake_kernels, "make a schedule for no machine in particular");
  graph->callback([graph] {
    const std::string& stage = options.stage;
    const bool has_rank = stage == "local" || stage == "schedule";
    const bool is_compiled = has_rank || stage == "plan";
    tools::require_effects(*graph,
                           tools::uses_of_step_options(options.step, is_compiled, is_compiled || stage == "logical"));
    tools::require_effects(*graph, {{"--rank", has_rank, "--stage local or schedule"},
                                    {"--recompute", has_rank, "--stage local or schedule"},
                                    {"--memory_limit", has_rank, "--stage local or schedule"},
                                    {"--fake_kernels", stage == "schedule", "--stage schedule"}});
    std::fputs(tools::graph_text(options).c_str(), stdout);
  });
}

void add_simulate(CLI::App& app) {
  static tools::SimulateOptions options;
  static bool live_kernels = false;
  auto* simulate =
      app.add_subcommand("simulate", "predict time, traffic and memory of a train step on machines that are not there");
  simulate->footer(
      "Nothing is computed: the step is compiled and its steps are timed by a machine profile, a JSON file with the\n"
      "speeds of a rank and of its links (tessera calibrate writes this machine's; see docs/simulation.md), or of a\n"
      "machine that has a name, by the data sheet of its GPUs.\n"
      "Examples:\n"
      "  tessera simulate resnet50 --ranks 4096 --optimizer_shards\n"
      "  tessera simulate step.graph --mesh data=4,model=2 --machine cluster.json --json\n"
      "  tessera simulate resnet50 --ranks 16 --machine h100-80gb --precision bfloat16\n"
      "  tessera simulate mlp --ranks 8 --trace trace.json      the timeline, for chrome://tracing or Perfetto\n"
      "  tessera simulate resnet50 --ranks 8 --stages 4 --micro_batches 16 --schedule 1f1b    a pipeline, as a "
      "picture");
  tools::add_step_options(*simulate, options.step);
  tools::add_machine_options(*simulate, options.machine);
  simulate->add_flag("--json", options.json, "print one JSON object");
  simulate->add_option("--trace", options.trace, "write the timeline to this file");
  tools::add_stage_options(*simulate, options.stages,
                           "cut the network into so many stages of a pipeline; within a stage it is data parallel");
  simulate->add_flag("--live_kernels", live_kernels,
                     "count the scratch memory that this machine's kernels need; takes longer");
  simulate->callback([simulate] {
    tools::require_effects(*simulate,
                           tools::uses_of_step_options(options.step, /*is_compiled=*/true, /*has_strategies=*/true));
    const bool cuts = options.stages.is_pipeline();
    std::vector<tools::OptionEffect> effects = {
        {"--micro_batches", cuts, "--stages"}, {"--schedule", cuts, "--stages"}, {"--segments", cuts, "--stages"}};
    for (const char* name : {"--mesh", "--input", "--semi_auto", "--propagate", "--optimizer_shards", "--recompute",
                             "--trace", "--live_kernels"}) {
      effects.push_back({name, !cuts, "a step of one stage: without --stages"});
    }
    tools::require_effects(*simulate, effects);
    tools::require_writable("--trace", options.trace);
    options.step.fake_kernels = !live_kernels;
    std::fputs(tools::simulate_text(options).c_str(), stdout);
  });
}

void add_solve(CLI::App& app, int& exit_code) {
  static tools::SolveCommand command;
  static bool quiet = false;
  auto* solve =
      app.add_subcommand("solve", "make one choice for each node of a graph, at the least cost within a limit");
  solve->footer(
      "PROBLEM is JSON: nodes with the costs and usages of their choices and the times at which they live, edges with\n"
      "costs of pairs of choices, a limit on what is in use at any time (the form of the ASPLOS/EuroSys 2025 "
      "contest).\n"
      "Prints the cost, a proven lower bound, the gap between them and, as the last line, the choices; --json prints\n"
      "one object with all of them. Without --timeout the result is a function of the problem, the seed and the\n"
      "rounds. Exit code 1: no solution.\n"
      "Examples:\n"
      "  tessera solve problem.json --timeout 60\n"
      "  tessera solve problem.json --rounds 500 --gap 0.01 --json");
  solve->add_option("problem", command.path, "a file")->required();
  solve
      ->add_option("--timeout", command.timeout,
                   "seconds, from the start of the command, after which the best that is known is taken")
      ->check(tools::positive_seconds());
  solve->add_option("--rounds", command.rounds, "rounds of search; default: 200, or what the timeout allows")
      ->check(CLI::Range(1, 1 << 30));
  solve->add_option("--gap", command.gap, "a gap that is good enough: (cost - bound) / cost")->check(tools::fraction());
  solve->add_option("--seed", command.seed, "the seed of the search")
      ->check(tools::count_from(0))
      ->capture_default_str();
  solve->add_flag("--json", command.json, "print the result as one JSON object");
  solve->add_flag("--quiet", quiet, "print no progress on standard error");
  solve->add_flag("--profile", command.profile, "print on standard error where the time went");
  solve->callback([&exit_code] {
    command.progress = !quiet;
    const auto result = tools::solve_text(command);
    std::fputs(result.text.c_str(), stdout);
    exit_code = result.solved ? 0 : 1;
  });
}

void add_info(CLI::App& app) {
  static bool json = false;
  static bool kernels = false;
  static std::string kernel_cache = cluster::cache_directory_from_environment();
  auto* info = app.add_subcommand("info", "print what this build can do: CPU features, backends and versions");
  info->add_flag("--json", json, "print one JSON object");
  info->add_flag("--kernels", kernels, "print instead which kernels were measured to be the fastest here");
  info->add_option("--kernel_cache", kernel_cache, "the folder in which trainings remember them")
      ->capture_default_str();
  info->callback([info] {
    tools::require_effects(*info, {{"--kernel_cache", kernels, "--kernels"}});
    auto& files = FileSystem::local();
    const auto text = kernels && json ? tools::kernels_json(files, kernel_cache)
                      : kernels       ? tools::kernels_text(files, kernel_cache)
                      : json          ? tools::info_json(kVersion)
                                      : tools::info_text(kVersion);
    std::fputs(text.c_str(), stdout);
  });
}

void add_calibrate(CLI::App& app) {
  static tools::CalibrateOptions options;
  static bool quiet = false;
  auto* calibrate =
      app.add_subcommand("calibrate", "measure this machine or a GPU, for tessera simulate and tessera plan");
  calibrate->footer(
      "Prints a machine profile (docs/simulation.md). Takes less than a minute, in which nothing else should run. "
      "With\n"
      "--device it is the profile of ranks that have a GPU like that each, whose links are not measured; that takes "
      "some\n"
      "minutes, because every convolution is compiled.\n"
      "Examples:\n"
      "  tessera calibrate --out here.json\n"
      "  tessera calibrate --device cuda:0 --links h100-80gb --out gpu.json\n"
      "  tessera calibrate --num_threads 4 > ranks_of_4.json");
  calibrate->add_option("--out", options.out, "write the profile to this file; default: print it");
  calibrate->add_option("--num_threads", options.num_threads, "the compute threads of a rank")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  calibrate->add_option("--device", options.device,
                        "measure this device, as cuda:0, by its own clock; default: cpu, the processor");
  calibrate->add_option("--links", options.links,
                        "with --device: take the links between devices and hosts from this machine profile, or from a "
                        "machine that has a name; default: they are assumed");
  calibrate->add_flag("--quiet", quiet, "print no progress on standard error");
  calibrate->callback([calibrate] {
    const bool is_of_device = tools::is_of_device(options);
    tools::require_effects(*calibrate, {{"--num_threads", !is_of_device, "the processor: without --device"},
                                        {"--links", is_of_device, "--device cuda:0"}});
    options.progress = !quiet;
    tools::require_writable("--out", options.out);
    std::fputs(tools::calibrate_text(options).c_str(), stdout);
  });
}

void add_completion(CLI::App& app) {
  static std::string shell;
  auto* completion = app.add_subcommand("completion", "print what bash, zsh or fish reads to complete this command");
  completion->footer(
      "Examples:\n"
      "  source <(tessera completion bash)                                              in ~/.bashrc\n"
      "  tessera completion zsh > \"${fpath[1]}/_tessera\"\n"
      "  tessera completion fish > ~/.config/fish/completions/tessera.fish");
  completion->add_option("shell", shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([&app] { std::fputs(tools::completion_text(app, shell).c_str(), stdout); });
}

int run_command(int argc, char** argv) {
  int exit_code = 0;
  CLI::App app("Tessera trains a neural network that was written for one device on many devices.");
  app.require_subcommand(1);
  app.set_version_flag("--version", kVersion);
  app.footer(
      "Exit codes: 0 success; 1 a failure at work, such as a file that is not there; 2 a command line that is wrong: "
      "an\n"
      "unknown word, a value that cannot be, an option that has no effect beside the others; 128 + N after signal N.\n"
      "`ckpt newest` has two more. docs/environment.md lists the environment variables.");
  tools::add_run_command(app, exit_code);
  tools::add_cluster_commands(app, exit_code);
  tools::add_job_command(app);
  add_info(app);
  add_calibrate(app);
  tools::add_ckpt_command(app, exit_code);
  add_graph(app);
  add_simulate(app);
  tools::add_plan_command(app, exit_code);
  tools::add_report_command(app);
  tools::add_bisect_command(app);
  tools::add_trace_command(app);
  add_solve(app, exit_code);
  add_completion(app);
  app.add_subcommand("version", "print the version")->callback([] { std::printf("tessera %s\n", kVersion); });
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "run") {
    const std::vector<std::string> words(argv + 2, argv + argc);
    if (const auto code = tools::refuse_option_before_program(*app.get_subcommand("run"), words)) return *code;
  } else if (command != "job") {
    cluster::say_end_signals();  // a launcher says itself what it ends
  }
  // What a file holds may stand in an error.
  const auto say_error = [](const std::string& text) { std::fprintf(stderr, "error: %s\n", printable(text).c_str()); };
  try {
    if (command == "job") tools::hand_over_job({argv + 2, argv + argc});
    if (const auto level = cluster::log_level_from_environment()) set_log_level(*level);
    cluster::warn_of_unknown_variables();
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return tools::exit_for(app, error, {argv + 1, argv + argc});
  } catch (const UsageError& error) {
    say_error(error.what());
    return cluster::kExitUsage;
  } catch (const std::bad_alloc& error) {
    // A tensor says what it was for.
    const bool says_what = std::string(error.what()) != std::bad_alloc().what();
    say_error(fmt::format("{}; {}", says_what ? error.what() : "there is too little memory", limits_text()));
    return cluster::kExitFailure;
  } catch (const std::exception& error) {
    say_error(error.what());
    return cluster::kExitFailure;
  }
  return exit_code;
}

// What this program takes of its stack beside arguments and environment: 12 KiB, most of it a launcher, and up to 8 KiB
// that the system leaves out by chance.
constexpr size_t kLeastStackBytes = size_t{22} << 10;

// Comes before libraries prepare themselves: on a smaller stack the system ends the process by SIGSEGV, and nobody is
// told why.
void refuse_small_stack(int /*argc*/, char** argv, char** /*environment*/) {
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  // From the first argument on there lie arguments and environment, and behind them this.
  const auto* const last = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  if (last == nullptr || argv[0] == nullptr || last < argv[0]) return;
  const auto taken = static_cast<size_t>(last - argv[0]) + std::strlen(last);
  if (limit.rlim_cur >= taken + kLeastStackBytes) return;
  // By hand: standard error has no buffer, and what printf() takes for one would not fit.
  char text[200];
  const int size = std::snprintf(text, sizeof(text),
                                 "error: `ulimit -s` leaves the stack %zu KiB, of which arguments and environment take "
                                 "%zu: tessera needs %zu beside them; raise it, ulimit -s 8192 is usual\n",
                                 static_cast<size_t>(limit.rlim_cur >> 10), (taken >> 10) + 1, kLeastStackBytes >> 10);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, static_cast<size_t>(size));
  _exit(cluster::kExitUsage);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
[[gnu::section(".preinit_array"), gnu::used]] void (*const refuse_small_stack_first)(int, char**,
                                                                                     char**) = refuse_small_stack;
#endif

}  // namespace

int main(int argc, char** argv) {
  // A launcher needs little, and its ranks keep the limit of stacks that they were given.
  if (argc > 1 && std::string(argv[1]) == "run") return code_after_output(run_command(argc, argv));
  occupy_closed_outputs();
  int exit_code = cluster::kExitFailure;
  try {
    with_room_on_stack([&] { exit_code = run_command(argc, argv); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", printable(error.what()).c_str());
  }
  return code_after_output(exit_code);
}
