#include "tessera/tools/arguments/step_arguments.h"

#include <fmt/ranges.h>

#include "tessera/tools/arguments/usage.h"

namespace tessera::tools {
namespace {

// "", or what is wrong with a number of ranks.
std::string check_ranks(const std::string& text) {
  int64_t ranks = 0;
  try {
    ranks = parse_int(text, "the number of ranks");
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  if (ranks >= 1 && ranks <= mesh::kMaxRanks) return "";
  return fmt::format("must be from 1 to {}, got {}", mesh::kMaxRanks, ranks);
}

}  // namespace

void add_step_options(CLI::App& command, StepOptions& options) {
  command.add_option("model", options.model, "a built-in network, or a file with a graph's text")->required();
  command
      .add_option("--ranks,--devices", options.ranks, "the number of ranks, data parallel where nothing else is said")
      ->check(CLI::Validator(check_ranks, "", "ranks"));
  command.add_option("--mesh", options.mesh,
                     "the grid of ranks, as data=4,model=2; inputs are split along the first axis");
  command.add_option("--input", options.inputs, "how an input lies, as x=[data,_]; repeatable")
      ->allow_extra_args(false);
  command
      .add_option("--strategy", options.strategies,
                  "how operators of a cell are split, as up:matmul=((4,1),(1,1)); repeatable")
      ->allow_extra_args(false);
  command.add_flag("--semi_auto", options.semi_auto, "operators without a strategy split the batch over all ranks");
  command.add_flag("--propagate", options.propagate,
                   "operators without a strategy take over those of their neighbours");
  command.add_flag("--optimizer_shards", options.optimizer_shards,
                   "replicas share the rows of the parameters, with their states and updates");
  command
      .add_option("--optimizer_shard_size", options.optimizer_shard_size,
                  "at most so many replicas share rows; default: all")
      ->check(count_from(1));
  command
      .add_option("--recompute", options.recompute,
                  "auto: compute values again for their gradients until --memory_limit is met")
      ->check(CLI::IsMember({"none", "auto"}))
      ->capture_default_str();
  command.add_option("--memory_limit", options.memory_limit, "the most that a rank's arena may take, as 2GiB")
      ->check(bytes());
  command
      .add_option("--batch_size", options.batch_size,
                  "samples of the global batch of a built-in network; default: 32 for each part of it, 1 for a "
                  "language model")
      ->check(count_from(1));
  command.add_option("--precision", options.precision, "what a built-in network computes in")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}))
      ->capture_default_str();
  command
      .add_option("--num_classes", options.num_classes,
                  "classes of a built-in network; default: 10, or a language model's vocabulary")
      ->check(count_from(1));
}

void add_machine_options(CLI::App& command, MachineOptions& options) {
  command.add_option("--machine,--profile", options.machine,
                     fmt::format("the machines: the file of a machine profile, or one of {}; default: an example",
                                 fmt::join(compiler::machine_names(), ", ")));
  command.add_flag("--tf32", options.tf32,
                   "products and convolutions of float32 are rounded to TF32, as TESSERA_CUDA_TF32=1 has them");
  command
      .add_option("--ranks_per_host,--devices_per_host", options.devices_per_host,
                  "how many ranks are on a host; default: as the machine profile says")
      ->check(count_from(1));
}

void add_stage_options(CLI::App& command, StagesCommand& options, const std::string& stages_help) {
  const CLI::Validator rank_count(
      [](std::string& word) -> std::string {
        if (word != "auto") return count_from(1)(word);
        word = "0";
        return "";
      },
      "");
  command.add_option("--stages", options.stages, stages_help);
  command
      .add_option(
          "--stage_ranks", options.ranks,
          "how many ranks each stage has, such as 3,1: stage 0 the first ones; auto: as a search finds for the "
          "number of stages that --stages says; default: equally many, or what tessera plan --stages auto finds")
      ->delimiter(',')
      ->transform(rank_count);
  command
      .add_option("--micro_batches", options.micro_batches,
                  "with --stages: into how many the batch is cut; default: four for each stage, with auto what is best")
      ->check(count_from(1));
  command
      .add_option("--schedule", options.schedule,
                  "with --stages: gpipe, 1f1b, interleaved_1f1b, zb_h1, zb_h2, zb_v, or auto, the best that a search "
                  "finds")
      ->check(CLI::IsMember({"gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_h2", "zb_v", "auto"}))
      ->capture_default_str();
  command
      .add_option("--segments", options.segments,
                  "with --stages: how often the network goes over them; default: twice with interleaved_1f1b and zb_v, "
                  "else once")
      ->check(count_from(1));
}

}  // namespace tessera::tools
