#include "tessera/tools/graph_text.h"

#include "tessera/tools/dot.h"

namespace tessera::tools {
std::string graph_text(const GraphOptions& options) {
  const bool dot = options.format == "dot";
  const auto show = [&](const ir::Graph& graph) { return dot ? dot_of(graph) : ir::print(graph); };
  if (options.stage == "forward") return show(forward_graph(options.step));
  if (options.stage == "backward") return show(backward_graph(options.step));

  const auto step = step_graph(options.step);
  if (options.stage == "logical") return show(step);
  const auto spread = spread_of(options.step, step);
  require_rank(spread.mesh, options.rank);
  auto compiled = plan_ranks(options.step, step, spread);
  if (options.stage == "plan") {
    return dot ? dot_of(compiled.logical, compiled.plan) : compiler::print(compiled.logical, compiled.plan);
  }
  compiler::compile_rank(compiled, options.rank, compiler::layout_of(compiled, options.rank),
                         catalogue_of(options.step), spread.compile);
  if (options.stage == "local") return show(compiled.local);
  return dot ? dot_of(compiled.schedule) : ir::print(compiled.schedule);
}

}  // namespace tessera::tools
