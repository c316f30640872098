// DeviceLayout: the form in which strategy files and checkpoints state how a tensor is split. The ranks of a stage, in
// the order of its rank list, are read row-major as a device matrix; each dim names the device axes that split it,
// counted from the right: with matrix [2,4], 0 is the axis of size 4. One axis per dim is the classic form; several,
// outer first, split the parts of the former. Parts are those of Sharding.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/mesh/mesh.h"

namespace tessera::mesh {

struct DeviceLayout {
  std::vector<int64_t> device_matrix;
  std::vector<std::vector<int>> tensor_map;  // per dim; empty: not split, written -1

  int64_t num_ranks() const;
  // The number of slices of each dim.
  std::vector<int64_t> slice_counts() const;
  bool operator==(const DeviceLayout&) const = default;
};

// These two write "([2,2,4],[(2,1),-1,0])", and read it. Parsing throws InvalidArgument naming the text, and what
// validate() throws.
std::string to_string(const DeviceLayout& layout);
DeviceLayout parse_device_layout(std::string_view text);
// Throws InvalidArgument for a size below 1, an axis outside the matrix, or one that is used twice.
void validate(const DeviceLayout& layout);

// The layout without device axes of size 1: ([16,1,1],[2,0]) becomes ([16],[0,-1]). This is what strategy files store.
DeviceLayout standard_form(const DeviceLayout& layout);
// The same layout on `num_ranks` ranks: what is left over becomes a last axis along which slices repeat. Throws
// InvalidArgument when the matrix does not divide num_ranks.
DeviceLayout repeated(const DeviceLayout& layout, int64_t num_ranks);

// The standard form with the fewest axes: neighbours in the mesh that split one dim one right inside the other, or that
// both split nothing, are one device axis. With a shape only where that leaves every slice as it is, which it does for
// all dims that divide. Throws InvalidArgument for partial values: a layout has no word for them.
DeviceLayout device_layout(const Sharding& sharding, const Mesh& mesh);
DeviceLayout device_layout(const Sharding& sharding, const Mesh& mesh, const Shape& shape);
// The sharding of a layout on a mesh whose axes, in order, are factors of the device axes; a smaller matrix is repeated
// first. Throws InvalidArgument when the mesh does not refine it.
Sharding sharding_of(const DeviceLayout& layout, const Mesh& mesh);

// Positions count from 0 in the stage's rank list; they are world ranks where the stage is the world.
//
// Which slice, counted row-major over the slices of the tensor, the rank at `position` holds.
int64_t slice_index(const DeviceLayout& layout, int64_t position);
// The positions that hold the same slice as `position`, ascending, itself included.
std::vector<int64_t> replicas(const DeviceLayout& layout, int64_t position);
// All groups of positions that hold the same slice, by slice index.
std::vector<std::vector<int64_t>> replica_groups(const DeviceLayout& layout);
// The positions that differ from `position` only along `axis`, counted from the right, in the axis' order.
std::vector<int64_t> axis_group(const DeviceLayout& layout, int axis, int64_t position);

}  // namespace tessera::mesh
