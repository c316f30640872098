// The command `tessera`: starts jobs, looks into checkpoints and graphs, says what this build can do.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

#include "tessera/tessera.h"
#include "tessera/tools/info.h"

namespace {

using namespace tessera;  // NOLINT: the commands below are the whole program

constexpr const char* kVersion = TESSERA_VERSION;

void add_run(CLI::App& app, int& exit_code) {
  static cluster::LaunchOptions options;
  static double timeout_s = 0;
  auto* run = app.add_subcommand("run", "start a program as the ranks of a job on this host");
  run->footer(
      "Examples:\n"
      "  tessera run -n 4 ./resnet50_cifar10 --data_path data      four processes, output prefixed with [rank]\n"
      "  tessera run --threads 4 ./resnet50_cifar10 ...            four ranks in one process\n"
      "  tessera run -n 4 --log_dir logs ./program                 each rank's output in logs/rank.N\n"
      "When a rank fails, the others are ended and the command says which one, how, and its last lines.");
  auto* n = run->add_option("-n,--num_ranks", options.num_processes, "ranks, a process each");
  run->add_option("--threads", options.num_thread_ranks, "instead: so many ranks as threads of one process")
      ->excludes(n);
  run->add_option("--log_dir", options.log_directory, "write rank N's output to the file rank.N in this folder");
  run->add_option("--transport", options.transport, "shm, gloo or mpi; default: shared memory on one host");
  run->add_option("--interface", options.interface, "network interface for gloo, e.g. eth0");
  run->add_option("--timeout", timeout_s, "seconds that a rank waits for another before the job fails (30)");
  run->add_option("--num_threads", options.num_compute_threads, "compute threads per rank; default: cores / ranks");
  run->add_option("program", options.command, "the program and its arguments")->required();
  run->positionals_at_end();
  run->prefix_command();
  run->callback([run, &exit_code] {
    // What follows the program's name belongs to the program, options included.
    for (const auto& argument : run->remaining()) options.command.push_back(argument);
    options.timeout_ms = static_cast<int64_t>(timeout_s * 1000);
    exit_code = cluster::launch(options);
  });
}

void add_ckpt(CLI::App& app, int& exit_code) {
  static std::string file;
  static bool json = false;
  auto* ckpt = app.add_subcommand("ckpt", "look into checkpoints");
  ckpt->require_subcommand(1);
  auto* inspect = ckpt->add_subcommand("inspect", "what a checkpoint holds, and whether it is whole");
  inspect->add_option("file", file, "a .ckpt file")->required();
  inspect->add_flag("--json", json, "as one JSON object");
  inspect->callback([&exit_code] {
    const auto result = json ? checkpoint::inspect_json(FileSystem::local(), file)
                             : checkpoint::inspect_table(FileSystem::local(), file);
    std::fputs(result.text.c_str(), stdout);
    if (result.state == checkpoint::Verified::kNo) {
      std::fprintf(stderr, "error: %s\n", result.problem.c_str());
      exit_code = 1;
    }
  });
}

void add_graph(CLI::App& app) {
  static tools::GraphOptions options;
  auto* graph = app.add_subcommand("graph", "print a network at any stage of its compilation");
  graph->footer(
      "MODEL is a built-in network or a file with a logical graph's text, which programs write with --save_graph.\n"
      "Stages: logical (global shapes), plan (shardings), local (one rank's graph), schedule (kernels, offsets).\n"
      "Examples:\n"
      "  tessera graph resnet50 --stage logical\n"
      "  tessera graph mlp --ranks 4 --stage plan\n"
      "  tessera graph step.graph --ranks 4 --rank 1 --stage local\n"
      "Built-in: " +
      tools::model_names());
  graph->add_option("model", options.model, "built-in name, or file")->required();
  graph->add_option("--stage", options.stage, "forward, logical, plan, local or schedule")->capture_default_str();
  graph->add_option("--ranks", options.ranks, "data-parallel ranks")->capture_default_str();
  graph->add_option("--rank", options.rank, "whose local graph or schedule")->capture_default_str();
  graph->add_option("--batch_size", options.batch_size, "rows of the global batch")->capture_default_str();
  graph->add_option("--num_classes", options.num_classes, "of a built-in network")->capture_default_str();
  graph->add_flag("--fake_kernels", options.fake_kernels, "schedule for no machine in particular");
  graph->callback([] { std::fputs(tools::graph_text(options).c_str(), stdout); });
}

}  // namespace

int main(int argc, char** argv) {
  int exit_code = 0;
  CLI::App app("Tessera trains a neural network that was written for one device on many devices.");
  app.require_subcommand(1);
  app.set_version_flag("--version", kVersion);
  app.failure_message(CLI::FailureMessage::help);
  add_run(app, exit_code);
  static bool json = false;
  auto* info = app.add_subcommand("info", "build, CPU features, backends and versions");
  info->add_flag("--json", json, "as one JSON object");
  info->callback([] { std::fputs((json ? tools::info_json(kVersion) : tools::info_text(kVersion)).c_str(), stdout); });
  add_ckpt(app, exit_code);
  add_graph(app);
  app.add_subcommand("version", "print the version")->callback([] { std::printf("tessera %s\n", kVersion); });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return exit_code;
}
