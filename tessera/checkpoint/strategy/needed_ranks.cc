#include "tessera/checkpoint/strategy/needed_ranks.h"

#include <set>

#include "tessera/base/error.h"
#include "tessera/base/files/protobuf_wire.h"

namespace tessera::checkpoint {

Slicing slicing_for(const ParameterPlacement::InStage& parameter, int ndim, const std::string& strategy) {
  if (parameter.slicing.ndim() == ndim) return parameter.slicing;
  if (parameter.slicing.ndim() == 0) return Slicing::whole(ndim, parameter.slicing.num_ranks());
  throw InvalidArgument("{}: the layout of {} has {} dims, the tensor has {}", strategy,
                        quoted_name(parameter.layout.name), parameter.slicing.ndim(), ndim);
}

std::map<int64_t, int64_t> choose_holders(const Slicing& slicing, const Shape& global, const Region& wanted,
                                          int64_t home, FunctionRef<bool(int64_t)> is_there) {
  std::map<int64_t, int64_t> holders;
  for (int64_t position = 0; position < slicing.num_ranks(); ++position) {
    if (!intersection(slicing.region(global, position), wanted) || !is_there(position)) continue;
    const auto [it, is_first] = holders.emplace(slicing.slice_index(position), position);
    if (!is_first && slicing.replica(position) == slicing.replica(home)) it->second = position;
  }
  return holders;
}

std::vector<int64_t> needed_stages(const ParameterPlacement& from, const ParameterPlacement& to, int64_t to_stage) {
  std::set<int64_t> needed;
  for (const auto& [name, parameter] : from.parameters()) {
    const auto* wanted = to.find(name);
    if (wanted == nullptr || !wanted->is_in(to_stage)) continue;
    for (const auto& [stage, in_stage] : parameter.stages) needed.insert(stage);
  }
  if (needed.empty()) {
    for (int64_t stage = 0; stage < from.num_stages(); ++stage) needed.insert(stage);
  }
  return {needed.begin(), needed.end()};
}

int64_t home_rank(const ParameterPlacement& from, const ParameterPlacement& to, int64_t from_stage, int64_t rank) {
  return from.first_rank_of(from_stage) + to.position_of(rank) % from.num_ranks_of(from_stage);
}

}  // namespace tessera::checkpoint
