#include "tessera/train/core/model_core.h"

#include <algorithm>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/random.h"
#include "tessera/base/strings.h"
#include "tessera/pipeline/search/named.h"
#include "tessera/train/core/job_lines.h"
#include "tessera/train/core/lasting_job_id.h"
#include "tessera/train/core/same_training.h"
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
  if (options.steps_in_flight < 0) {
    throw InvalidArgument("steps_in_flight must be at least 0, each step waited for, got {}", options.steps_in_flight);
  }
  if (options.session.num_threads < 0) {
    throw InvalidArgument("num_threads must be at least 0, all that the rank has, got {}", options.session.num_threads);
  }
  if (options.parallel_optimizer_threshold < 0) {
    throw InvalidArgument("parallel_optimizer_threshold must be at least 0 bytes, got {}",
                          options.parallel_optimizer_threshold);
  }
  precision_of(options);  // refuses what does not fit
  pipeline::require_schedule_name(options.pipeline.schedule);
  require_no_refused(options, num_ranks);
  if (const int parts = options.optimizer_weight_shard_size; parts < 0 || (parts > 0 && num_ranks % parts != 0)) {
    throw InvalidArgument("optimizer_weight_shard_size {} must divide the {} ranks", parts, num_ranks);
  }
}

// In a job whose launcher has started servers every model has them. Where a model has servers its workers train
// together.
ModelOptions with_servers(const cluster::Context& context, ModelOptions options) {
  const int of_job = context.num_servers();
  if (options.servers == 0) options.servers = of_job;
  if (of_job > 0 && options.servers != of_job) {
    throw InvalidArgument("servers is {}, but the job was started with {} (tessera run --servers): leave it out",
                          options.servers, of_job);
  }
  const bool has_servers = options.servers > 0 && context.size() > 1;
  if (has_servers && options.parallel_mode == ParallelMode::kStandAlone) {
    options.parallel_mode = ParallelMode::kDataParallel;
  }
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

// What a model is, for ranks that have come later.
TrainingSettings settings_of(const TrainedCells& cells, const ModelOptions& options) {
  std::string text;
  int64_t num_elements = 0;
  const auto parameters = cells.parameters();
  for (const nn::Parameter* parameter : parameters) {
    text += fmt::format("{} {}\n", parameter->full_name(), parameter->type);
    num_elements += parameter->type.shape.num_elements();
  }
  return {{"the network", fmt::format("one of {} parameters with {} elements ({:016x})", parameters.size(),
                                      num_elements, hash_name(text))},
          {"parallel_mode", std::string(to_string(options.parallel_mode))},
          {"the optimizer", cells.optimizer == nullptr ? "none" : cells.optimizer->name()},
          {"gradient_accumulation_steps", std::to_string(options.gradient_accumulation_steps)}};
}

// Rank 0's seed, `of_job`, which all ranks take. A rank's own, as that of a script which says seed=rank(), has no
// effect then: rank 0 says so.
uint64_t agreed_seed(cluster::Context& context, uint64_t own, uint64_t of_job) {
  const auto sent = static_cast<int64_t>(own);
  std::vector<int64_t> seeds(static_cast<size_t>(context.size()));
  const std::vector<int64_t> counts(seeds.size(), 1);
  context.world().all_gather(&sent, seeds.data(), counts, DType::kI64, "comparing seeds");
  auto seed = static_cast<int64_t>(of_job);
  context.world().broadcast(&seed, 1, DType::kI64, 0, "agreeing on the seed");
  const auto odd = std::ranges::find_if(seeds, [&](int64_t other) { return other != seeds[0]; });
  if (context.rank() == 0 && odd != seeds.end()) {
    const auto num_more = std::ranges::count_if(seeds, [&](int64_t other) { return other != seeds[0]; }) - 1;
    const std::string more = num_more == 0 ? "rank 0 has"
                             : num_more == 1
                                 ? "and 1 more rank has another than rank 0, which has"
                                 : fmt::format("and {} more ranks have others than rank 0, which has", num_more);
    log_warning(
        "rank {} has the seed {}, {} {}: initial values and random operators of all ranks follow rank 0's; give all "
        "ranks one seed; by parallel_mode stand_alone each trains a network of its own",
        odd - seeds.begin(), static_cast<uint64_t>(*odd), more, own);
  }
  return static_cast<uint64_t>(seed);
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
    if (mode->may_be_resized()) require_same_as_job(context, settings_of(cells, options));
    const bool is_jobs = context.recovery() != nullptr && context.rank() == 0;
    if (is_jobs) lasting_job_id(*context.recovery());  // before the ranks meet: each may ask for it then
    options.seed =
        agreed_seed(context, options.seed, is_jobs ? seed_of_job(*context.recovery(), options.seed) : options.seed);
  }
  limit_values_of_servers(options, context);
  for (const nn::Parameter* parameter : cells.trainable_parameters()) {
    options.session.partition.fusion_ids[parameter->full_name()] = parameter->comm_fusion;
  }
  values = std::make_unique<ModelValues>(context, cells, options, *mode);
}

void ModelCore::meet(const char* what) const {
  mode->come_together();
  if (context.size() > 1 && mode->is_shared() && !is_compared_with_job(context)) context.world().barrier(what);
}

}  // namespace tessera::train
