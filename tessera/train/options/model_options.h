// What a model is told when it is made: its parallel mode, how its steps are made and computed, and where files are.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/mesh/strategy.h"
#include "tessera/nn/optimizers/loss_scale.h"
#include "tessera/session/session.h"
#include "tessera/train/options/automatic_options.h"
#include "tessera/train/options/parallel_mode.h"
#include "tessera/train/options/pipeline_options.h"

namespace tessera::train {

class Metric;

// Over which rows batch normalisation takes its statistics in data parallel.
enum class BatchNormStatistics {
  kGlobal,  // the global batch: equal to one device
  kLocal,   // each rank's own rows, without communication; moving statistics are one row per rank
};

// An option that is set and has no effect in the parallel mode is warned about once, by rank 0 (modes/mode_options.h).
struct ModelOptions {
  ParallelMode parallel_mode = ParallelMode::kStandAlone;
  // A step of training is so many batches: their gradients are accumulated (states accu_grads.<parameter>), the
  // optimizer gets those of the mean of their losses. The batches of an epoch must make whole steps.
  int64_t gradient_accumulation_steps = 1;
  // Semi-automatic: how the inputs lie. Their rows are split over all ranks where nothing is said; with full_batch they
  // are whole on every rank; a dataset_strategy has a tuple of counts for each input, ((1,1,1,8),(1,)).
  bool full_batch = false;
  // Semi-automatic: operators without a strategy take over that of a neighbour instead of splitting the batch, where
  // strategies reach them.
  bool sharding_propagation = false;
  mesh::Strategy dataset_strategy = {};
  // Semi-automatic: where to write how operators and parameters of the training step are split, and from where to take
  // how they are to be: the strategy file of the tutorials, JSON if the name ends with ".json". What is taken stands
  // above the network's own strategies and above parallel_optimizer. Then the ranks of each group, and the ranks that
  // hold what this one holds. Where ranks name one file, one of them writes it. "": none.
  std::string strategy_ckpt_save_file = {};
  std::string strategy_ckpt_load_file = {};
  std::string group_ckpt_save_file = {};
  // Automatic: how to search, on which machines, and files for the plan. What the search is told of memory is
  // session.memory_limit_bytes. parallel_optimizer has no meaning then: the search decides on it, too.
  AutomaticPlanOptions automatic = {};
  // Pipeline: stages, micro-batches and the schedule.
  PipelineOptions pipeline = {};
  // The replicas of a parameter of at least so many bytes share its rows, the optimizer's states and its work. Hybrid
  // parallel refuses it.
  bool parallel_optimizer = false;
  int64_t parallel_optimizer_threshold = 64 << 10;
  // Into how many parts at most, each kept by neighbouring ranks; must divide the ranks. 0: all replicas share.
  int optimizer_weight_shard_size = 0;
  // Data parallel: the gradient is that of the mean over the ranks (true), or of the sum (false).
  bool gradients_mean = true;
  // Give all ranks rank 0's initial values. Where it is off, a difference is warned about at the first step.
  bool parameter_broadcast = false;
  BatchNormStatistics batch_norm_statistics = BatchNormStatistics::kGlobal;
  // What the network computes in; its parameters, their gradients and the optimizer's states are f32 throughout, and
  // so is the loss. kBF16, as torch.autocast does it; kF16, with a dynamic loss scale unless one is given; absent: as
  // amp_level says.
  std::optional<DType> precision = std::nullopt;
  // The tutorials' word for it. O0: f32; O2: f16 with norms in f32 and a dynamic loss scale; O3: f16 in everything but
  // the loss, without a loss scale unless one is given; auto: O2 on a GPU, O0 on a CPU.
  std::string amp_level = "O0";
  // Scales and shifts of normalisations stay f32. Absent: they do, but not in O3.
  std::optional<bool> keep_batchnorm_fp32 = std::nullopt;
  // nn::dynamic_loss_scale() or nn::fixed_loss_scale(). A step whose gradients or loss are not finite is skipped on all
  // ranks: parameters, moments and counters of the optimizer stay as they were. Absent: as precision or amp_level say.
  std::optional<nn::LossScale> loss_scale = std::nullopt;
  // Initial values and random operators are functions of this seed. All ranks use rank 0's.
  uint64_t seed = 1;
  // The name of this training, by which its checkpoints are known when it is started again: a checkpoint of another
  // name is not resumed. Two trainings of one network have two names. "": checkpoints of any name are resumed, of this
  // network and optimizer.
  std::string job_name = {};
  // What states of the optimizer start with, in place of the optimizer's own initial values: by full name, of the
  // state's type. Names that the optimizer has no state of are left out. Ranks agree on them as on parameters.
  std::map<std::string, Tensor> initial_states = {};
  session::SessionOptions session = {};
  std::vector<std::shared_ptr<Metric>> metrics = {};

  bool accumulates() const { return gradient_accumulation_steps > 1; }
};

}  // namespace tessera::train
