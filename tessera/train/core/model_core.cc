#include "tessera/train/core/model_core.h"

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"
#include "tessera/train/core/job_lines.h"
#include "tessera/train/core/spilled_values.h"
#include "tessera/train/modes/mode_options.h"
#include "tessera/train/options/precision.h"

namespace tessera::train {
namespace {

void check_options(const ModelOptions& options, int num_ranks) {
  if (options.gradient_accumulation_steps < 1) {
    throw InvalidArgument("gradient_accumulation_steps must be at least 1, got {}",
                          options.gradient_accumulation_steps);
  }
  if (options.session.num_threads < 0) {
    throw InvalidArgument("num_threads must be at least 0, all that the rank has, got {}", options.session.num_threads);
  }
  if (options.parallel_optimizer_threshold < 0) {
    throw InvalidArgument("parallel_optimizer_threshold must be at least 0 bytes, got {}",
                          options.parallel_optimizer_threshold);
  }
  precision_of(options);  // refuses what does not fit
  require_no_refused(options, num_ranks);
  if (const int parts = options.optimizer_weight_shard_size; parts < 0 || (parts > 0 && num_ranks % parts != 0)) {
    throw InvalidArgument("optimizer_weight_shard_size {} must divide the {} ranks", parts, num_ranks);
  }
}

// In a job whose launcher has started servers every model has them, and its workers train together.
ModelOptions with_servers(const cluster::Context& context, ModelOptions options) {
  if (options.servers > 0 || context.num_servers() == 0) return options;
  options.servers = context.num_servers();
  if (options.parallel_mode == ParallelMode::kStandAlone) options.parallel_mode = ParallelMode::kDataParallel;
  return options;
}

// The seed that the model has had since the job began: a script may draw it.
uint64_t seed_of_job(cluster::Recovery& recovery, uint64_t own) {
  static constexpr const char* kName = "seed";  // of the job's state: a line for each model of a process
  const int64_t number = recovery.next_number("model with a seed");
  const std::string key = fmt::format("{} ", number);
  const std::string known = recovery.find_state(kName).value_or("");
  if (const auto seed = find_line(known, key)) return static_cast<uint64_t>(parse_int(*seed, kName));
  recovery.set_state(kName, with_line(known, key, std::to_string(static_cast<int64_t>(own))));
  return own;
}

}  // namespace

ModelCore::ModelCore(cluster::Context& the_context, const TrainedCells& the_cells, const ModelOptions& the_options)
    : context(the_context), cells(the_cells), options(with_servers(the_context, the_options)) {
  check_options(options, context.size());
  if (context.rank() == 0) {
    for (const auto& line : unused_options(options, context.size())) log_warning("{}", line);
  }
  mode = make_mode({context, options, cells});
  if (mode->is_shared()) {
    if (context.recovery() != nullptr && context.rank() == 0)
      options.seed = seed_of_job(*context.recovery(), options.seed);
    auto seed = static_cast<int64_t>(options.seed);
    context.world().broadcast(&seed, 1, DType::kI64, 0, "agreeing on the seed");
    options.seed = static_cast<uint64_t>(seed);
  }
  limit_values_of_servers(options, context);
  for (const nn::Parameter* parameter : cells.trainable_parameters()) {
    options.session.partition.fusion_ids[parameter->full_name()] = parameter->comm_fusion;
  }
  values = std::make_unique<ModelValues>(context, cells, options, *mode);
}

}  // namespace tessera::train
