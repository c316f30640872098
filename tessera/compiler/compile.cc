#include "tessera/compiler/compile.h"

#include "tessera/base/error.h"
#include "tessera/compiler/recompute_blocks.h"
#include "tessera/compiler/schedule/host_copies.h"
#include "tessera/compiler/search/plan_record.h"
#include "tessera/compiler/verify/verify_local.h"
#include "tessera/compiler/verify/verify_plan.h"
#include "tessera/ops/verify.h"

namespace tessera::compiler {
namespace {

void require_none(const std::vector<std::string>& faults, const std::string& graph) {
  if (faults.empty()) return;
  throw InternalError(fmt::format("the local graphs of {} have {} fault{}:\n  {}", graph, faults.size(),
                                  faults.size() == 1 ? "" : "s", fmt::join(faults, "\n  ")));
}

// What is given of inputs holds; all else is as the record says.
Plan plan_of_record(const ir::Graph& logical, const ShardingHints& hints, const PlanOptions& options) {
  auto choices = choices_for(logical, *options.record);
  auto layouts = on_mesh(choices.mesh, choices.inputs);
  for (const auto& [name, layout] : hints) layouts[name] = layout;
  PlanOptions recorded = options;
  recorded.strategies = false;
  recorded.fixed = std::move(choices.nodes);
  recorded.copies = std::move(choices.copies);
  Plan plan = propagate(logical, choices.mesh, layouts, recorded);
  if (!(plan.meshes[0] == choices.mesh)) {
    throw InvalidArgument("the inputs of {} lie on a finer grid than the plan's {}", logical.name(),
                          choices.mesh.to_string());
  }
  return plan;
}

}  // namespace

ir::Graph simplify(const ir::Graph& graph) {
  ops::verify_or_throw(graph);
  ir::Graph logical = remove_dead_code(graph);
  logical = fold_constants(logical);
  logical = merge_common_subexpressions(logical);
  logical = remove_dead_code(logical);
  return keep_results_wide(logical);
}

Compiled plan_ranks(const ir::Graph& graph, const mesh::Mesh& mesh, const ShardingHints& hints,
                    const CompileOptions& options) {
  Compiled result;

  // Logical: global shapes, no rank in it.
  result.logical = simplify(graph);

  // Plan: the shardings of all values; still no rank.
  result.plan = options.plan.record != nullptr ? plan_of_record(result.logical, hints, options.plan)
                                               : propagate(result.logical, mesh, hints, options.plan);
  recompute_blocks(result.logical, result.plan, options.partition);
  if (options.verification != Verification::kNone) verify_plan_or_throw(result.logical, result.plan);
  return result;
}

void compile_rank(Compiled& planned, int rank, const ir::PersistentLayout& persistent,
                  const ops::KernelCatalogue& catalogue, const CompileOptions& options) {
  options.deadline.throw_if_over();
  // Local: this rank's shapes, collectives as nodes.
  planned.local = partition(planned.logical, planned.plan, rank, options.partition, &planned.groups);
  ops::verify_or_throw(planned.local);
  if (options.verification != Verification::kNone) {
    require_none(verify_collectives(planned.local, rank), planned.local.name());
  }
  if (options.verification == Verification::kAllRanks && planned.plan.ranks().size() > 1) {
    const auto ranks = partition_all(planned.logical, planned.plan, options.partition);
    require_none(verify_local(planned.logical, planned.plan, ranks), planned.local.name());
  }
  options.deadline.throw_if_over();
  planned.local = fuse(planned.local, options.fusions, options.schedule.channels_last);

  // Schedule: kernels, lanes, offsets.
  options.deadline.throw_if_over();
  if (options.memory_limit_bytes == 0) {
    planned.schedule = make_schedule(planned.local, persistent, catalogue, options.schedule);
  } else {
    auto fitted = fit_memory(planned.local, persistent, catalogue, options.schedule, options.memory_limit_bytes,
                             options.deadline);
    planned.local = std::move(fitted.local);
    planned.schedule = std::move(fitted.schedule);
    planned.recomputed = std::move(fitted.recomputed);
  }
  if (options.schedule.host_copies) {
    planned.schedule = with_host_copies(planned.schedule, options.schedule.communicates_there);
  }
}

Compiled compile(const ir::Graph& graph, const mesh::Mesh& mesh, const ShardingHints& hints, int rank,
                 const ir::PersistentLayout& persistent, const ops::KernelCatalogue& catalogue,
                 const CompileOptions& options) {
  Compiled result = plan_ranks(graph, mesh, hints, options);
  compile_rank(result, rank, persistent, catalogue, options);
  return result;
}

Compiled compile(const ir::Graph& graph, const mesh::Mesh& mesh, const ShardingHints& hints, int rank,
                 const ops::KernelCatalogue& catalogue, const CompileOptions& options) {
  Compiled result = plan_ranks(graph, mesh, hints, options);
  compile_rank(result, rank, layout_of(result, rank), catalogue, options);
  return result;
}

ir::PersistentLayout layout_of(const Compiled& planned, int rank) {
  ir::PersistentLayout layout;
  for (const auto& input : planned.logical.inputs()) {
    if (input.kind == ir::InputKind::kInput) continue;
    const Type& type = planned.logical.type(input.value);
    const auto where = planned.plan.layout(input.value);
    layout.add(input.name, {type.dtype, mesh::local_shape(type.shape, where.sharding, where.mesh, rank)});
  }
  return layout;
}

}  // namespace tessera::compiler
