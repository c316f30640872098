// What a model is told when it is made: its parallel mode, how its steps are made and computed, and where files are.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/mesh/strategy.h"
#include "tessera/nn/gradients/loss_scale.h"
#include "tessera/session/session_options.h"
#include "tessera/train/options/automatic_options.h"
#include "tessera/train/options/option_info.h"
#include "tessera/train/options/parallel_mode.h"
#include "tessera/train/options/pipeline_options.h"
#include "tessera/train/options/server_staleness.h"

namespace tessera::train {

class Metric;

// Over which rows batch normalisation takes its statistics in data parallel.
enum class BatchNormStatistics {
  kGlobal,  // the global batch: equal to one device
  kLocal,   // each rank's own rows, without communication; moving statistics are one row per rank
};

// "global" or "local".
constexpr std::string_view to_string(BatchNormStatistics statistics) {
  return statistics == BatchNormStatistics::kGlobal ? "global" : "local";
}

// What the members mean, for_each_option() says, which names each; those that it has not are explained here. An option
// that is set and has no effect in the parallel mode is warned about once, by rank 0 (modes/mode_options.h).
struct ModelOptions {
  ParallelMode parallel_mode = ParallelMode::kStandAlone;
  int64_t gradient_accumulation_steps = 1;
  int steps_in_flight = 2;
  bool full_batch = false;
  bool sharding_propagation = false;
  mesh::Strategy dataset_strategy = {};
  std::string strategy_ckpt_save_file = {};
  std::string strategy_ckpt_load_file = {};
  std::string group_ckpt_save_file = {};
  AutomaticPlanOptions automatic = {};
  PipelineOptions pipeline = {};
  int servers = 0;
  ServerStaleness server_staleness = {};
  int64_t server_memory_limit_bytes = 0;
  std::string spill_directory = {};
  bool parallel_optimizer = false;
  int64_t parallel_optimizer_threshold = 64 << 10;
  int optimizer_weight_shard_size = 0;
  bool gradients_mean = true;
  bool parameter_broadcast = false;
  BatchNormStatistics batch_norm_statistics = BatchNormStatistics::kGlobal;
  std::optional<DType> precision = std::nullopt;
  std::string amp_level = "O0";
  std::optional<bool> keep_batchnorm_fp32 = std::nullopt;
  std::optional<nn::LossScale> loss_scale = std::nullopt;
  uint64_t seed = 1;
  std::string job_name = {};
  std::string record_values = {};
  std::string record_steps = {};
  std::string compare_values = {};
  std::string on_difference = {};
  // What states of the optimizer start with, in place of the optimizer's own initial values: by full name, of the
  // state's type. Names that the optimizer has no state of are left out. Ranks agree on them as on parameters.
  std::map<std::string, Tensor> initial_states = {};
  session::SessionOptions session = {};
  std::vector<std::shared_ptr<Metric>> metrics = {};
  // Whose words what is said of options uses: Python's keywords, or the names of these members.
  bool are_of_python = false;

  bool accumulates() const { return gradient_accumulation_steps > 1; }
};

// Calls visit(OptionInfo, member) for each option that has a name in Python.
template <typename Visit>
void for_each_option(ModelOptions& options, const Visit& visit) {
  using enum OptionUse;
  // Columns of `uses`: stand-alone, data parallel, hybrid, semi-automatic, automatic, pipeline.
  visit(OptionInfo{.name = "parallel_mode",
                   .doc = "stand_alone; data_parallel (equal to one device on the global batch); hybrid_parallel (the "
                          "network combines its slices by collectives of its own); semi_auto_parallel (operators are "
                          "split as their strategies say); auto_parallel (a search decides; strategies hold; with "
                          "pipeline it decides where the network is cut into stages); pipeline_parallel (cells are on "
                          "stages, see Cell.set_stage; within a stage as in semi_auto_parallel)."},
        options.parallel_mode);
  visit(OptionInfo{.name = "seed", .doc = "Of initial values and random operators. All ranks use rank 0's."},
        options.seed);
  visit(
      OptionInfo{.name = "gradient_accumulation_steps",
                 .doc = "So many batches are one step of training: their gradients are accumulated (states "
                        "accu_grads.<parameter>), the optimizer gets those of the mean of their losses. The batches of "
                        "an epoch must make whole steps."},
      options.gradient_accumulation_steps);
  visit(OptionInfo{.name = "full_batch",
                   .doc = "Inputs are whole on every rank, instead of split by rows.",
                   .uses = OptionUses{kUnused, kUnused, kUnused, kRead, kRead, kUnused}},
        options.full_batch);
  visit(OptionInfo{.name = "sharding_propagation",
                   .doc = "Operators without a strategy take over that of a neighbour, where strategies reach them, "
                          "instead of splitting the batch.",
                   .uses = OptionUses{kUnused, kUnused, kUnused, kRead, kUnused, kUnused}},
        options.sharding_propagation);
  visit(OptionInfo{.name = "dataset_strategy",
                   .doc = "How the inputs lie: a tuple of counts for each, ((1, 1, 1, 8), (1,)).",
                   .uses = OptionUses{kUnused, kUnused, kUnused, kRead, kRead, kUnused}},
        options.dataset_strategy);
  visit(
      OptionInfo{.name = "strategy_ckpt_save_file",
                 .doc = "Where to write how operators and parameters of the training step are split: the strategy file "
                        "of the tutorials, JSON if the name ends with \".json\". Where ranks name one file, one of "
                        "them writes it.",
                 .uses = OptionUses{kUnused, kUnused, kUnused, kRead, kRead, kRead},
                 .names_file = true},
      options.strategy_ckpt_save_file);
  visit(OptionInfo{.name = "strategy_ckpt_load_file",
                   .doc = "From where to take how they are to be split, above the network's own strategies and above "
                          "parallel_optimizer.",
                   .uses = OptionUses{kUnused, kUnused, kUnused, kRead, kRead, kRefused},
                   .names_file = true},
        options.strategy_ckpt_load_file);
  visit(OptionInfo{.name = "group_ckpt_save_file",
                   .doc = "Where to write the ranks of each group, and the ranks that hold what this one holds.",
                   .uses = OptionUses{kUnused, kUnused, kUnused, kRead, kRead, kRefused},
                   .names_file = true},
        options.group_ckpt_save_file);
  visit(OptionInfo{.name = "search",
                   .doc = "How auto_parallel searches, on which machines, and files for the plan. Equal on all ranks; "
                          "memory_limit is the search's, too; docs/planning.md.",
                   .uses = OptionUses{kUnused, kUnused, kUnused, kUnused, kRead, kUnused},
                   .member = "automatic"},
        options.automatic);
  visit(OptionInfo{.name = "pipeline",
                   .doc = "Stages, micro-batches and the schedule of pipeline_parallel and auto_parallel; "
                          "docs/pipelines.md.",
                   .uses = OptionUses{kUnused, kUnused, kUnused, kUnused, kRead, kRead},
                   .needs = {"pipeline.stages", "pipeline.ranks", "servers"}},
        options.pipeline);
  visit(OptionInfo{.name = "servers",
                   .doc = "So many ranks, the first of the job, keep the parameters that are set_on_servers() and "
                          "update them; the others train, data parallel; docs/servers.md.",
                   // Alone, ranks that have servers train in data_parallel.
                   .uses = OptionUses{kRead, kRead, kRefused, kRefused, kRefused, kRead},
                   .way_out = "the ranks beside servers train in data_parallel: say that, or leave servers out",
                   .needs_ranks = true,
                   .least = 0,
                   .most = std::numeric_limits<int>::max()},
        options.servers);
  visit(OptionInfo{.name = "server_staleness",
                   .doc = "How many steps a worker may be ahead of the slowest one: a number, or \"asynchronous\", as "
                          "many as there are. Servers update at each worker's gradient, and no two runs have equal "
                          "bits. None: all workers' gradients are one update; docs/servers.md.",
                   .uses = OptionUses{kUnused, kRead, kRefused, kRefused, kRefused, kRead},
                   .needs = {"servers"},
                   .way_out = "it is of servers, beside which ranks train in data_parallel: say that, or leave it out",
                   .least = 0,
                   .most = std::numeric_limits<int>::max() - 1},
        options.server_staleness);
  visit(
      OptionInfo{.name = "server_memory_limit",
                 .doc = "The most that the rows that a server keeps, of tables and of the optimizer's states of them, "
                        "may take of its memory, bytes or \"4GiB\": what would not fit lies in a file; "
                        "docs/servers.md. None: no limit.",
                 .member = "server_memory_limit_bytes",
                 .is_bytes = true},
      options.server_memory_limit_bytes);
  visit(OptionInfo{.name = "spill_directory",
                   .doc = "The directory of that file, on a disk with room for it. Empty: the system's for temporary "
                          "files."},
        options.spill_directory);
  visit(OptionInfo{.name = "parallel_optimizer",
                   .doc = "The replicas of a parameter share its rows, the optimizer's states and its work. A search "
                          "decides on it, too.",
                   .uses = OptionUses{kUnused, kRead, kRefused, kRead, kUnused, kRead}},
        options.parallel_optimizer);
  visit(OptionInfo{.name = "parallel_optimizer_threshold",
                   .doc = "Of parameters of at least so many bytes.",
                   .uses = OptionUses{kUnused, kRead, kUnused, kRead, kUnused, kRead},
                   .needs = {"parallel_optimizer"}},
        options.parallel_optimizer_threshold);
  visit(OptionInfo{.name = "optimizer_weight_shard_size",
                   .doc = "Into how many parts at most, each kept by neighbouring ranks; must divide the ranks. 0: all "
                          "replicas share.",
                   .uses = OptionUses{kUnused, kRead, kUnused, kRead, kUnused, kRead},
                   .needs = {"parallel_optimizer", "strategy_ckpt_load_file"}},
        options.optimizer_weight_shard_size);
  visit(OptionInfo{.name = "gradients_mean",
                   .doc = "The gradient is that of the mean over the ranks; False: of the sum.",
                   .uses = OptionUses{kUnused, kRead, kUnused, kUnused, kUnused, kUnused}},
        options.gradients_mean);
  visit(
      OptionInfo{.name = "parameter_broadcast",
                 .doc = "All ranks take rank 0's initial values; else a difference is warned about at the first step.",
                 .uses = OptionUses{kUnused, kRead, kRead, kImplied, kImplied, kImplied}},
      options.parameter_broadcast);
  visit(
      OptionInfo{.name = "batch_norm_statistics",
                 .doc = "Over which rows batch normalisation averages: global, all of the batch, or local, the rank's "
                        "own.",
                 .uses = OptionUses{kImplied, kRead, kImplied, kUnused, kUnused, kUnused}},
      options.batch_norm_statistics);
  visit(
      OptionInfo{.name = "precision",
                 .doc = "What the network computes in: float32, bfloat16, or float16 with a dynamic loss scale unless "
                        "one is given. Parameters, their gradients, the optimizer's states and the loss are float32. "
                        "None: as amp_level says; docs/mixed_precision.md."},
      options.precision);
  visit(
      OptionInfo{.name = "amp_level",
                 .doc = "The tutorials' word for it. O0: float32; O2: float16 with norms in float32 and a dynamic loss "
                        "scale; O3: float16 in everything but the loss; auto: O2 on a GPU, O0 on a CPU."},
      options.amp_level);
  visit(OptionInfo{.name = "keep_batchnorm_fp32",
                   .doc = "Scales and shifts of normalisations stay float32. None: they do, but not in O3."},
        options.keep_batchnorm_fp32);
  visit(OptionInfo{.name = "loss_scale",
                   .doc = "nn.dynamic_loss_scale() or nn.fixed_loss_scale(). A step whose gradients or loss are not "
                          "finite is skipped on all ranks. None: as precision or amp_level say."},
        options.loss_scale);
  visit(OptionInfo{.name = "memory_limit",
                   .doc = "The most that a rank's values and a step may take, bytes or \"2GiB\": what would not fit is "
                          "recomputed. None: no limit.",
                   .member = "session.memory_limit_bytes",
                   .is_bytes = true},
        options.session.memory_limit_bytes);
  visit(
      OptionInfo{.name = "device",
                 .doc = "On what the rank computes: cpu, cuda:1 for a GPU by its number, or cuda for the one with the "
                        "number of this rank on its host. Empty: the CPU.",
                 .member = "session.device"},
      options.session.device);
  visit(OptionInfo{.name = "cpu_fallback",
                   .doc = "Whether the host computes what the device has no kernel for, with copies there and back in "
                          "every step, which a warning says; it does so, too, where TESSERA_CPU_FALLBACK is 1. Else "
                          "such a step is refused. A CPU lacks no kernel; docs/backends.md.",
                   .member = "session.cpu_fallback"},
        options.session.cpu_fallback);
  visit(OptionInfo{.name = "deterministic",
                   .doc = "A step that is run again, by as many ranks and threads under the same plan on the same "
                          "machine, gives the same bits. On CPUs it always does, and this costs nothing; on GPUs "
                          "products and convolutions take the first way that their library proposes. False: the "
                          "fastest by measuring, which may be another one in another run; docs/backends.md.",
                   .member = "session.deterministic",
                   .without = {"session.kernel_choice", "server_staleness"},
                   .way_out = "with that another run may give other bits; leave one of them out"},
        options.session.deterministic);
  visit(OptionInfo{.name = "kernels",
                   .doc = "fixed, the usual ones, or measured, the fastest.",
                   .member = "session.kernel_choice",
                   .unless = {"session.reference_kernels", "session.debug"}},
        options.session.kernel_choice);
  visit(OptionInfo{.name = "kernel_cache",
                   .doc = "The directory in which measured kernels are remembered.",
                   .member = "session.kernel_cache",
                   .needs = {"session.kernel_choice"}},
        options.session.kernel_cache);
  visit(OptionInfo{.name = "steps_in_flight",
                   .doc = "So many steps a device may have been given at once: while it does one, the rank reads the "
                          "batch of the next. Results are the same for any number. 0 or 1: each step is waited for. A "
                          "CPU has none; docs/backends.md.",
                   .least = 0,
                   .most = std::numeric_limits<int>::max()},
        options.steps_in_flight);
  visit(OptionInfo{.name = "fuse", .doc = "False: every operator is a kernel of its own.", .member = "session.fusions"},
        options.session.fusions);
  visit(
      OptionInfo{
          .name = "overlap", .doc = "False: nothing is computed while ranks communicate.", .member = "session.overlap"},
      options.session.overlap);
  visit(OptionInfo{.name = "num_threads",
                   .doc = "Threads of this rank that compute. 0: as many as its context says.",
                   .member = "session.num_threads"},
        options.session.num_threads);
  visit(OptionInfo{.name = "reference_kernels",
                   .doc = "Plain loops compute: slow, the same on every machine.",
                   .member = "session.reference_kernels"},
        options.session.reference_kernels);
  visit(OptionInfo{.name = "debug",
                   .doc = "Every value has NaN-filled memory of its own and nothing is fused: to find errors.",
                   .member = "session.debug"},
        options.session.debug);
  visit(OptionInfo{.name = "job_name",
                   .doc = "The name of this training, written into its checkpoints: load_checkpoint() refuses those of "
                          "another name."},
        options.job_name);
  visit(OptionInfo{.name = "record_values",
                   .doc = "The folder to which training steps record hashes and statistics of their values, so that "
                          "tessera bisect finds where two trainings part; docs/bisect.md. Empty: what "
                          "TESSERA_RECORD_VALUES says. A recorded step is slower."},
        options.record_values);
  visit(OptionInfo{.name = "record_steps",
                   .doc = "Which steps are recorded and compared, from 1: 5, 10-20, 100- and */50, separated by "
                          "commas. Empty: all, or what TESSERA_RECORD_STEPS says."},
        options.record_steps);
  visit(OptionInfo{.name = "compare_values",
                   .doc = "The folder with an earlier training's recorded values, which this one's are compared with "
                          "while it goes on. Empty: what TESSERA_COMPARE_VALUES says."},
        options.compare_values);
  visit(OptionInfo{.name = "on_difference",
                   .doc = "At the first value that is not that training's: stop, which raises an error on all ranks, "
                          "or warn. Empty: stop, or what TESSERA_ON_DIFFERENCE says."},
        options.on_difference);
}

}  // namespace tessera::train
