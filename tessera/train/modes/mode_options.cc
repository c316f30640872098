#include "tessera/train/modes/mode_options.h"

#include <fmt/ranges.h>

#include "tessera/base/error.h"

namespace tessera::train {
namespace {

using enum OptionUse;

// Whether anything but the files of a search is set.
bool sets_search(const ModelOptions& options) {
  const compiler::SearchOptions usual = AutomaticPlanOptions().search;
  const auto& search = options.automatic.search;
  return options.automatic.profile || options.automatic.planner || search.algorithm != usual.algorithm ||
         search.max_axes != usual.max_axes || search.use_all_ranks != usual.use_all_ranks ||
         search.slice_align_size != usual.slice_align_size || search.rounds != usual.rounds ||
         search.timeout_seconds != usual.timeout_seconds || search.gap != usual.gap || search.seed != usual.seed ||
         search.fold_above != usual.fold_above;
}

bool shares_parameters(const ModelOptions& options) { return options.parallel_optimizer; }
bool may_share_parameters(const ModelOptions& options) {
  return options.parallel_optimizer || !options.strategy_ckpt_load_file.empty();
}

constexpr auto kOptions =
    std::to_array<ModeOption>(
        {
            // Columns: stand-alone, data parallel, hybrid, semi-automatic, automatic, pipeline.
            {"full_batch",
             {kUnused, kUnused, kUnused, kRead, kRead, kUnused},
             [](const ModelOptions& o) { return o.full_batch; }},
            {"sharding_propagation",
             {kUnused, kUnused, kUnused, kRead, kUnused, kUnused},
             [](const ModelOptions& o) { return o.sharding_propagation; }},
            {"dataset_strategy",
             {kUnused, kUnused, kUnused, kRead, kRead, kUnused},
             [](const ModelOptions& o) { return !o.dataset_strategy.empty(); }},
            {.name = "strategy_ckpt_save_file",
             .uses = {kUnused, kUnused, kUnused, kRead, kRead, kRead},
             .is_set = [](const ModelOptions& o) { return !o.strategy_ckpt_save_file.empty(); },
             .names_file = true},
            {.name = "strategy_ckpt_load_file",
             .uses = {kUnused, kUnused, kUnused, kRead, kRead, kRefused},
             .is_set = [](const ModelOptions& o) { return !o.strategy_ckpt_load_file.empty(); },
             .names_file = true},
            {.name = "group_ckpt_save_file",
             .uses = {kUnused, kUnused, kUnused, kRead, kRead, kRefused},
             .is_set = [](const ModelOptions& o) { return !o.group_ckpt_save_file.empty(); },
             .names_file = true},
            {"automatic", {kUnused, kUnused, kUnused, kUnused, kRead, kUnused}, sets_search},
            {.name = "automatic.load_file",
             .uses = {kUnused, kUnused, kUnused, kUnused, kRead, kUnused},
             .is_set = [](const ModelOptions& o) { return !o.automatic.load_file.empty(); },
             .names_file = true},
            {.name = "automatic.save_file",
             .uses = {kUnused, kUnused, kUnused, kUnused, kRead, kUnused},
             .is_set = [](const ModelOptions& o) { return !o.automatic.save_file.empty(); },
             .names_file = true},
            {"pipeline",
             {kUnused, kUnused, kUnused, kUnused, kRead, kRead},
             [](const ModelOptions& o) { return o.pipeline.stages != 0 || o.pipeline.micro_batches != 0; },
             "pipeline.stages",
             [](const ModelOptions& o) { return o.pipeline.stages != 0; }},
            {"parallel_optimizer", {kUnused, kRead, kRefused, kRead, kUnused, kRead}, shares_parameters},
            {"parallel_optimizer_threshold",
             {kUnused, kRead, kUnused, kRead, kUnused, kRead},
             [](const ModelOptions& o) {
               return o.parallel_optimizer_threshold != ModelOptions().parallel_optimizer_threshold;
             },
             "parallel_optimizer",
             shares_parameters},
            {"optimizer_weight_shard_size",
             {kUnused, kRead, kUnused, kRead, kUnused, kRead},
             [](const ModelOptions& o) { return o.optimizer_weight_shard_size != 0; },
             "parallel_optimizer, strategy_ckpt_load_file",
             may_share_parameters},
            {"gradients_mean",
             {kUnused, kRead, kUnused, kUnused, kUnused, kUnused},
             [](const ModelOptions& o) { return !o.gradients_mean; }},
            {"parameter_broadcast",
             {kUnused, kRead, kRead, kImplied, kImplied, kImplied},
             [](const ModelOptions& o) { return o.parameter_broadcast; }},
            {"batch_norm_statistics",
             {kImplied, kRead, kImplied, kUnused, kUnused, kUnused},
             [](const ModelOptions& o) { return o.batch_norm_statistics != BatchNormStatistics::kGlobal; }},
        });

std::string modes_that_read(const ModeOption& option) {
  std::vector<std::string_view> modes;
  for (size_t i = 0; i < kNumParallelModes; ++i) {
    const auto mode = static_cast<ParallelMode>(i);
    if (option.use_in(mode) == kRead) modes.push_back(to_string(mode));
  }
  return fmt::format("{}", fmt::join(modes, ", "));
}

}  // namespace

ParallelMode working_mode(const ModelOptions& options) {
  const bool has_stages = options.parallel_mode == ParallelMode::kAutomatic && options.pipeline.stages != 0;
  return has_stages ? ParallelMode::kPipeline : options.parallel_mode;
}

std::span<const ModeOption> mode_options() { return kOptions; }

std::vector<std::string> unused_options(const ModelOptions& options, int num_ranks) {
  std::vector<std::string> lines;
  const ParallelMode mode = working_mode(options);
  for (const ModeOption& option : kOptions) {
    if (!option.is_set(options)) continue;
    const OptionUse use = option.use_in(mode);
    const bool is_alone = num_ranks == 1;
    if (use == kUnused || (use == kRefused && is_alone)) {
      lines.push_back(
          fmt::format("{} has no effect in {}: only in {}", option.name, to_string(mode), modes_that_read(option)));
    } else if (use == kRead && is_alone && option.names_file) {
      lines.push_back(fmt::format("{} has no effect on one rank, which splits nothing", option.name));
    } else if (use == kRead && option.has_needed != nullptr && !option.has_needed(options)) {
      lines.push_back(fmt::format("{} has no effect without {}", option.name, option.needs));
    }
  }
  return lines;
}

int64_t rows_of_micro_batch(int64_t rows, int64_t micro_batches) {
  if (rows % micro_batches == 0) return rows / micro_batches;
  throw InvalidArgument(
      "a batch of {} rows cannot be cut into {} micro-batches of equally many: batches of a multiple of {} rows can "
      "(drop_remainder leaves out a last one that is smaller)",
      rows, micro_batches, micro_batches);
}

void require_no_refused(const ModelOptions& options, int num_ranks) {
  if (num_ranks == 1) return;
  const ParallelMode mode = working_mode(options);
  for (const ModeOption& option : kOptions) {
    if (option.use_in(mode) != kRefused || !option.is_set(options)) continue;
    throw InvalidArgument("{} is not available in {}", option.name, to_string(mode));
  }
}

}  // namespace tessera::train
