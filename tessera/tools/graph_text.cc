#include "tessera/tools/graph_text.h"

#include <algorithm>

#include "tessera/tools/dot.h"

namespace tessera::tools {
namespace {

void require_one_of(const std::string& word, const char* what, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), word) != known.end()) return;
  throw InvalidArgument("unknown {} \"{}\"; there are: {}", what, word, fmt::join(known, ", "));
}

}  // namespace

std::string graph_text(const GraphOptions& options) {
  require_one_of(options.stage, "stage", {"forward", "backward", "logical", "plan", "local", "schedule"});
  require_one_of(options.format, "format", {"text", "dot"});
  const bool dot = options.format == "dot";
  const auto show = [&](const ir::Graph& graph) { return dot ? dot_of(graph) : ir::print(graph); };
  if (options.stage == "forward") return show(forward_graph(options.step));
  if (options.stage == "backward") return show(backward_graph(options.step));

  const auto step = step_graph(options.step);
  if (options.stage == "logical") return show(step);
  const auto spread = spread_of(options.step, step);
  if (options.rank < 0 || options.rank >= spread.mesh.size()) {
    throw InvalidArgument("--rank {} must be one of the {} ranks of mesh {}", options.rank, spread.mesh.size(),
                          spread.mesh.to_string());
  }
  auto compiled = compiler::plan_ranks(step, spread.mesh, spread.hints, spread.compile);
  if (options.stage == "plan") {
    return dot ? dot_of(compiled.logical, compiled.plan) : compiler::print(compiled.logical, compiled.plan);
  }
  compiler::compile_rank(compiled, options.rank, compiler::layout_of(compiled, options.rank),
                         catalogue_of(options.step), spread.compile);
  if (options.stage == "local") return show(compiled.local);
  return dot ? dot_of(compiled.schedule) : ir::print(compiled.schedule);
}

}  // namespace tessera::tools
