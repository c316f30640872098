#include "tessera/train/modes/mode.h"

#include <array>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/train/modes/mode_options.h"

namespace tessera::train {

double Mode::mean_loss(const TensorView& loss) const {
  if (loss.num_elements() == 1 && loss.dtype == DType::kF32) return static_cast<double>(*loss.as<float>());
  const auto values = Tensor::copy_of(loss).to_doubles();
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

void Mode::stop_training() {
  if (context_.size() > 1 && is_shared()) context_.world().barrier("end of a training that a callback has stopped");
}

std::string Mode::rows_of_ranks(const data::Dataset& dataset) {
  if (dataset.num_shards() <= 1) return "";
  return fmt::format("its data set gives each rank rows of its own (num_shards is {})", dataset.num_shards());
}

std::string Mode::why_fixed(const data::Dataset&) const { return why_not_held_by_fewer(); }

std::string Mode::why_not_held_by_fewer() const {
  if (context_.num_servers() > 0) return "servers keep some of them";
  return fmt::format("it trains in {}, not in {} or {}", to_string(working_mode(options_)),
                     to_string(ParallelMode::kDataParallel), to_string(ParallelMode::kAutomatic));
}

std::unique_ptr<session::Executable> Mode::compile(session::Session& session, const ir::Graph& graph,
                                                   const InputSpecs&) const {
  return session.compile(graph, mesh(), {}, {.strategies = false});
}

std::unique_ptr<session::Executable> Mode::compile_prediction(session::Session& session, const ir::Graph& graph,
                                                              bool) const {
  return session.compile(graph, mesh(), {}, {.strategies = false});
}

namespace {

// The first cell, at `cell` or below, that names a stage behind the first, or null.
const nn::Cell* cell_of_later_stage(const nn::Cell& cell) {
  if (cell.stage() > 0) return &cell;
  for (const auto& [name, child] : cell.children()) {
    if (const auto* found = cell_of_later_stage(*child)) return found;
  }
  return nullptr;
}

// Says that stages do nothing in a mode that has none.
void warn_of_stages(const ModeParts& parts) {
  const auto mode = working_mode(parts.options);
  if (mode == ParallelMode::kPipeline || parts.context.rank() != 0) return;
  if (const auto* cell = cell_of_later_stage(parts.cells.network)) {
    log_warning("the stages of cells have no effect in {}: only in {}; \"{}\" is on stage {}", to_string(mode),
                to_string(ParallelMode::kPipeline), cell->path(), cell->stage());
  }
}

}  // namespace

std::unique_ptr<Mode> make_mode(const ModeParts& parts) {
  warn_of_stages(parts);
  if (parts.context.size() == 1) return make_stand_alone(parts);
  const auto mode = working_mode(parts.options);
  const auto& staleness = parts.options.server_staleness;
  if (mode == ParallelMode::kPipeline && parts.options.servers > 0)
    return staleness.is_synchronous() ? make_servers(parts) : make_stale_servers(parts);
  if (mode == ParallelMode::kPipeline && !staleness.is_synchronous()) {
    throw InvalidArgument(
        "server_staleness {} is of parameter servers, of which a pipeline has none: use data_parallel",
        staleness.to_string());
  }
  // By ParallelMode.
  constexpr auto kMakers = std::to_array(
      {make_stand_alone, make_data_parallel, make_hybrid, make_semi_automatic, make_automatic, make_pipeline});
  static_assert(kMakers.size() == kNumParallelModes);
  return kMakers[static_cast<size_t>(mode)](parts);
}

}  // namespace tessera::train
