#include "tessera/compiler/pipeline.h"

#include "tessera/ops/verify.h"

namespace tessera::compiler {

Compiled compile(const ir::Graph& graph, const mesh::Mesh& mesh, const ShardingHints& hints, int rank,
                 const ir::PersistentLayout& persistent, const ops::KernelCatalogue& catalogue,
                 const CompileOptions& options) {
  Compiled result;

  // Logical: global shapes, no rank in it.
  ops::verify_or_throw(graph);
  result.logical = remove_dead_code(graph);
  result.logical = fold_constants(result.logical);
  result.logical = merge_common_subexpressions(result.logical);
  result.logical = remove_dead_code(result.logical);

  // Plan: the shardings of all values; still no rank.
  result.plan = propagate(result.logical, mesh, hints, options.plan);

  // Local: this rank's shapes, collectives as nodes.
  result.local = partition(result.logical, result.plan, rank, options.partition, &result.groups);
  ops::verify_or_throw(result.local);
  if (options.fuse) result.local = fuse_elementwise(result.local);

  // Schedule: kernels, lanes, offsets.
  result.schedule = make_schedule(result.local, persistent, catalogue, options.schedule);
  return result;
}

}  // namespace tessera::compiler
