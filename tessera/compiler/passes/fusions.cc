#include <map>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/compiler/passes/passes.h"

namespace tessera::compiler {
namespace {

const std::map<std::string, bool Fusions::*>& fusions_by_name() {
  static const std::map<std::string, bool Fusions::*> names = {
      {"batch_norm_statistics", &Fusions::batch_norm_statistics},
      {"batch_norm", &Fusions::batch_norm},
      {"matmul", &Fusions::matmul},
      {"matmul_epilogues", &Fusions::matmul_epilogues},
      {"elementwise", &Fusions::elementwise},
      {"updates", &Fusions::updates}};
  return names;
}

}  // namespace

Fusions parse_fusions(const std::string& text) {
  if (text == "all") return {};
  Fusions fusions = Fusions::none();
  if (text == "none") return fusions;
  for (const std::string_view part : split(text, ',')) {
    const std::string name(part);
    const auto found = fusions_by_name().find(name);
    if (found == fusions_by_name().end()) {
      std::vector<std::string> names;
      for (const auto& [known, member] : fusions_by_name()) names.push_back(known);
      throw InvalidArgument("\"{}\" is no fusion; give all, none, or some of {}", name, fmt::join(names, ","));
    }
    fusions.*(found->second) = true;
  }
  return fusions;
}

std::string to_string(const Fusions& fusions) {
  std::vector<std::string> names;
  for (const auto& [name, member] : fusions_by_name()) {
    if (fusions.*member) names.push_back(name);
  }
  if (names.empty()) return "none";
  return names.size() == fusions_by_name().size() ? "all" : fmt::format("{}", fmt::join(names, ","));
}

ir::Graph fuse(const ir::Graph& local, const Fusions& fusions, bool channels_last) {
  ir::Graph graph = local;
  if (fusions.batch_norm_statistics) graph = fuse_batch_norm_statistics(graph, channels_last);
  if (fusions.batch_norm) graph = fuse_batch_norm(graph, channels_last);
  if (fusions.matmul) graph = fuse_matmul(graph);
  if (fusions.matmul_epilogues) graph = fuse_matmul_epilogues(graph);
  if (fusions.elementwise) graph = fuse_elementwise(graph);
  if (fusions.updates) graph = fuse_updates(graph);
  return graph;
}

}  // namespace tessera::compiler
