// What single things cost by a machine profile: the work of an operator, a value's way from one layout to another.
// Internal to the compiler.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/compiler/machine_profile.h"
#include "tessera/ir/graph.h"
#include "tessera/mesh/redistribution.h"

namespace tessera::compiler {

// What the rank with the largest slice holds. Parts of sums of half types are f32.
Type largest_part(const Type& type, const mesh::Mesh& mesh, const mesh::Sharding& sharding);

// The longer of arithmetic and of reading and writing, and the overhead.
double work_seconds(const ir::Node& node, std::span<const Type> inputs, std::span<const Type> outputs,
                    const MachineProfile& profile);

struct WayPrice {
  double seconds = 0;  // infinite where there is no way: a sum cannot be taken apart
  int64_t received_bytes = 0;
};
WayPrice price_of_way(const Type& type, const mesh::Layout& from, const mesh::Layout& to, const MachineProfile& profile,
                      const mesh::RedistributionOptions& options);

}  // namespace tessera::compiler
