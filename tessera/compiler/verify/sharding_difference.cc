#include "tessera/compiler/verify/sharding_difference.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/mesh/redistribution/redistribution.h"

namespace tessera::compiler {

using mesh::Mesh;
using mesh::Partial;
using mesh::Sharding;

const Partial* find_partial(const Sharding& sharding, int axis) {
  const auto it =
      std::find_if(sharding.partial.begin(), sharding.partial.end(), [axis](const auto& p) { return p.axis == axis; });
  return it == sharding.partial.end() ? nullptr : &*it;
}

std::string way_between(const Type& type, const Mesh& mesh, const Sharding& had, const Sharding& wanted) {
  std::string text;
  try {
    const auto steps = mesh::to_string(
        mesh::redistribute(type.shape, static_cast<int64_t>(size_bytes(type.dtype)), {mesh, had}, {mesh, wanted}));
    for (const auto step : split(steps, '\n')) {
      if (step.empty()) continue;
      text += (text.empty() ? "; insert: " : ", then ") + std::string(step.substr(0, step.find(" -> ")));
    }
  } catch (const InvalidArgument&) {
    return "";  // nothing does; the fault has been said
  }
  return text;
}

std::string difference(const Mesh& mesh, const Sharding& had, const Sharding& said) {
  std::string text;
  const auto add = [&](int axis, const std::string& what) {
    text += fmt::format("; along {} {}", mesh.axis(axis).name, what);
  };
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    const Partial* partial = find_partial(had, axis);
    const Partial* said_partial = find_partial(said, axis);
    if (partial != nullptr && said_partial == nullptr) {
      add(axis, fmt::format("each rank has its part of a {} only", mesh::to_string(partial->reduction)));
    } else if (partial != nullptr && partial->reduction != said_partial->reduction) {
      add(axis, fmt::format("it is a partial {}", mesh::to_string(partial->reduction)));
    } else if (partial == nullptr && said_partial != nullptr) {
      add(axis, fmt::format("its completion would count it {} times", mesh.axis(axis).size));
    }
    if (had.splits(axis) && !said.splits(axis)) add(axis, "the ranks hold different parts");
    if (!had.splits(axis) && said.splits(axis)) add(axis, "every rank has all of it");
  }
  return text;
}

}  // namespace tessera::compiler
