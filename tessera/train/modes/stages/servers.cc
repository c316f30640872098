#include "tessera/train/modes/stages/servers.h"

#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/printable.h"
#include "tessera/base/strings.h"
#include "tessera/comm/stretch_receiver.h"
#include "tessera/compiler/stages/listed_lookups.h"
#include "tessera/compiler/stages/shared_parameters.h"
#include "tessera/compiler/stages/summed_lookups.h"
#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/train/options/precision.h"

namespace tessera::train {
namespace {

mesh::StageRanks ranks_of_servers(const ModelOptions& options, int num_ranks) {
  if (options.servers < num_ranks) return mesh::StageRanks({options.servers, num_ranks - options.servers});
  throw InvalidArgument(
      "servers: {} of {} are to keep parameters, which leaves none to train: use fewer servers, or more ranks",
      options.servers, plural(num_ranks, "rank"));
}

}  // namespace

Servers::Servers(const ModeParts& parts) : Staged(parts, ranks_of_servers(parts.options, parts.context.size())) {
  if (options_.parallel_mode != ParallelMode::kDataParallel) {
    throw InvalidArgument("servers are there in data_parallel, got {}: a pipeline's stages keep their parameters",
                          to_string(options_.parallel_mode));
  }
  if (options_.pipeline.micro_batches != 0) {
    compiler::require_micro_batches({.num_stages = 1}, static_cast<int>(options_.pipeline.micro_batches));
  }
}

std::optional<mesh::Layout> Servers::first_layout(const nn::Parameter& value) const {
  const nn::Parameter* parameter = parameter_of(value);
  const Shape& shape = value.type.shape;
  const int servers = ranks_.count(0);
  if (parameter == nullptr || !parameter->on_servers || shape.ndim() == 0 || shape[0] < servers) return std::nullopt;
  return mesh::Layout{mesh::Mesh({{"data", servers}}, ranks_.ranks_of(0)), split_rows(shape)};
}

std::unique_ptr<session::Executable> Servers::compile(session::Session& session, const ir::Graph& graph,
                                                      const InputSpecs& inputs) const {
  auto step = Staged::compile(session, graph, inputs);
  if (options_.session.values_limit_bytes > 0 && context_.rank() == 0) say_memory(session, graph.name());
  return step;
}

// The limit is one of values: what a step needs comes on top.
void Servers::say_memory(const session::Session& session, const std::string& graph) const {
  const int64_t limit = options_.session.values_limit_bytes;
  const int64_t bytes = session.arena_bytes() - session.values().layout().bytes;
  log_info("server 0 needs {} of memory beside its values for {}", format_bytes(bytes), graph);
  if (bytes <= limit) return;
  log_warning(
      "server 0 needs {} of memory beside its values for {}, more than server_memory_limit, {}, which counts values "
      "only: an optimizer that moves rows which no batch looks up needs a gradient as large as the table; LazyAdam "
      "moves none of them, and docs/servers.md names others",
      format_bytes(bytes), graph, format_bytes(limit));
}

mesh::Sharding Servers::split_rows(const Shape& shape) {
  auto rows = mesh::Sharding::replicated(shape.ndim());
  rows.dims[0] = {0};
  return rows;
}

const nn::Parameter* Servers::parameter_of(const nn::Parameter& value) const {
  const auto name = value.full_name();
  const nn::Parameter* found = nullptr;
  for (const auto* parameter : cells_.trainable_parameters()) {
    const auto own = parameter->full_name();
    const bool is_longest = found == nullptr || own.size() > found->full_name().size();
    if (name.ends_with(own) && is_longest) found = parameter;
  }
  const bool fits = found != nullptr && found->type.shape == value.type.shape &&
                    (value.kind != ir::InputKind::kParameter || found->full_name() == name);
  return fits ? found : nullptr;
}

int64_t Servers::micro_batches() const {
  return options_.pipeline.micro_batches != 0 ? options_.pipeline.micro_batches : 1;
}

void Servers::place(ir::Graph& graph) const {
  const auto kept = served();
  compiler::place_for_servers(graph, kept);
  // A device has no kernel for that.
  const auto& session = options_.session;
  if (session.backend != nullptr || (!session.device.empty() && session.device != "cpu")) return;
  auto accumulators = nn::accumulators_by_name(cells_.trainable_parameters());
  std::erase_if(accumulators, [&](const auto& accumulator) { return !kept.contains(accumulator.second); });
  graph = compiler::sum_lookups(graph, {.accumulators = std::move(accumulators),
                                        .num_workers = ranks_.count(1),
                                        .clears = loss_scale_of(options_).has_value()});
  graph = compiler::list_lookups(
      graph,
      {.num_workers = ranks_.count(1),
       .small_row_bytes = shared_world() != nullptr ? compiler::kBytesOfSmallRowInMemory : compiler::kBytesOfSmallRow});
}

std::set<std::string> Servers::served() const {
  std::set<std::string> names;
  for (const auto* parameter : cells_.trainable_parameters()) {
    if (parameter->on_servers) names.insert(parameter->full_name());
  }
  if (names.empty()) {
    throw InvalidArgument(
        "servers: {} {} to keep parameters, but no parameter is set_on_servers(): call it on a cell that has "
        "some, or use no servers",
        plural(options_.servers, "rank"), options_.servers == 1 ? "is" : "are");
  }
  return names;
}

// Null where ranks do not share memory.
const comm::StretchReceiver* Servers::shared_world() const {
  if (context_.local_size() != context_.size()) return nullptr;
  return dynamic_cast<const comm::StretchReceiver*>(&context_.world());
}

// A limit (ulimit -f) may leave a rank no memory that others reach. The limit of values is known to servers only.
bool Servers::reads_rows_in_place(const session::Session& session) const {
  const comm::StretchReceiver* world = shared_world();
  if (world == nullptr || options_.server_memory_limit_bytes != 0) return false;
  if (!are_in_reach_) {
    int64_t all = world->is_in_reach(session.arena_data(), 1) ? 1 : 0;
    context_.world().all_reduce(&all, 1, DType::kI64, comm::ReduceOp::kMin, "whether servers' rows are in reach");
    are_in_reach_ = all != 0;
  }
  return *are_in_reach_;
}

void Servers::adapt(compiler::WithinStage& within, int stage) const {
  if (stage != 0) return;
  const auto& mesh = within.mesh;
  // Each looks up in its own rows what all workers ask for.
  within.plan.batch_by_default = false;
  for (auto& [name, layout] : within.hints)
    layout.sharding = mesh::Sharding::replicated(static_cast<int>(layout.sharding.dims.size()));
  const auto trainable = cells_.trainable_parameters();
  const auto accumulators = nn::gradient_accumulators(trainable);
  for (size_t i = 0; i < trainable.size(); ++i) {
    const auto& shape = trainable[i]->type.shape;
    if (!trainable[i]->on_servers || shape.ndim() == 0 || shape[0] < mesh.size()) continue;
    const auto rows = split_rows(shape);
    // They are shards already, which are not gathered.
    within.plan.optimizer_shards.erase(trainable[i]->full_name());
    within.hints[trainable[i]->full_name()] = {mesh, rows};
    // What workers have added up comes as it is to lie.
    within.hints[accumulators[i].full_name()] = {mesh, rows};
    within.plan.partial_states.erase(accumulators[i].full_name());
  }
}

session::PipelinedOptions Servers::pipelined(const ir::Graph&) const {
  return {.micro_batches = static_cast<int>(micro_batches()),
          .schedule = micro_batches() < num_stages() ? "auto" : options_.pipeline.schedule,
          .receive_ahead = options_.pipeline.receive_ahead,
          .profile = options_.pipeline.profile.value_or(compiler::example_profile())};
}

std::string Servers::who_works() const {
  const int num_workers = ranks_.count(1);
  return fmt::format("{} {} {}, {} {}", plural(options_.servers, "server"), options_.servers == 1 ? "keeps" : "keep",
                     plural(std::ssize(served()), "parameter"), plural(num_workers, "rank"),
                     num_workers == 1 ? "trains" : "train");
}

void Servers::say(const session::PipelinedStep&, const std::string&) const { log_info("{}", who_works()); }

std::unique_ptr<Mode> make_servers(const ModeParts& parts) { return std::make_unique<Servers>(parts); }

}  // namespace tessera::train
