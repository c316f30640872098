// What a value's way from one layout to another costs by a machine profile.
// Internal to the compiler.
#pragma once

#include <cstdint>

#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/mesh/redistribution/redistribution.h"

namespace tessera::compiler {

// What the rank with the largest slice holds. Parts of sums of half types are f32.
Type largest_part(const Type& type, const mesh::Mesh& mesh, const mesh::Sharding& sharding);

struct WayPrice {
  double seconds = 0;  // infinite where there is no way: a sum cannot be taken apart
  int64_t received_bytes = 0;
};
WayPrice price_of_way(const Type& type, const mesh::Layout& from, const mesh::Layout& to, const MachineProfile& profile,
                      const mesh::RedistributionOptions& options);

}  // namespace tessera::compiler
