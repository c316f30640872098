// Mesh: the ranks of a stage arranged as a grid with named axes; row-major, the last axis varies fastest.
// Sharding: for one tensor on a mesh, which axes split which dims, and over which axes its values are still partial.
//
// Parts are balanced, larger first, axis by axis, outer first: 7 over 4 = 2,2,2,1; 10 over 2x3 = 2,2,1,2,2,1. A part
// may be empty. An axis splits at most one dim, or is partial, or neither (the tensor is replicated along it). A dim
// may be dealt in blocks of several elements, as the rows of samples that stay together are: 12 in blocks of 3 over 3 =
// 6,3,3.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::mesh {

struct Axis {
  std::string name;
  int size = 1;
  bool operator==(const Axis&) const = default;
};

class Mesh {
 public:
  Mesh() = default;
  // `ranks` are the world ranks in row-major order; empty means 0..product-1. Throws InvalidArgument for a size below
  // 1, a repeated axis name or rank, or a wrong number of ranks.
  explicit Mesh(std::vector<Axis> axes, std::vector<int> ranks = {});

  int num_axes() const { return static_cast<int>(axes_.size()); }
  const Axis& axis(int index) const { return axes_[static_cast<size_t>(index)]; }
  int size() const { return static_cast<int>(ranks().size()); }
  const std::vector<int>& ranks() const { return *ranks_; }
  // Throws InvalidArgument naming the axes that exist.
  int axis_index(std::string_view name) const;
  // Position of a world rank in ranks(). Throws InvalidArgument when it is not in the mesh.
  int position_of(int rank) const;
  // Its position in the grid; one entry per axis. Throws InvalidArgument when it is not in the mesh.
  std::vector<int> coordinates(int rank) const;
  // The world ranks that differ from `rank` only along `axes`, in the row-major order of those axes.
  std::vector<int> group(int rank, const std::vector<int>& axes) const;
  std::string to_string() const;  // "[data=4, model=2]"
  bool operator==(const Mesh& other) const {
    return axes_ == other.axes_ && (ranks_ == other.ranks_ || ranks() == other.ranks());
  }

 private:
  std::vector<Axis> axes_;
  // Shared by copies: every layout has a mesh, a mesh may have thousands of ranks.
  std::shared_ptr<const std::vector<int>> ranks_ = std::make_shared<const std::vector<int>>();
};

enum class Reduction { kSum, kMax, kMin, kProd };
const char* to_string(Reduction reduction);  // "sum"

struct Partial {
  int axis = 0;
  Reduction reduction = Reduction::kSum;
  bool operator==(const Partial&) const = default;
};

struct Sharding {
  std::vector<std::vector<int>> dims;  // per dim: the axes that split it, outer first
  std::vector<Partial> partial;        // sorted by axis
  // Per dim: how many elements stay together where it is split; empty where all are 1. See with_blocks() in layout.h.
  std::vector<int64_t> blocks = {};

  int64_t block(int dim) const { return blocks.empty() ? 1 : blocks[static_cast<size_t>(dim)]; }
  static Sharding replicated(int ndim) { return {std::vector<std::vector<int>>(static_cast<size_t>(ndim)), {}}; }
  bool is_replicated() const;
  bool is_partial() const { return !partial.empty(); }
  bool splits(int axis) const;
  // "[data,_] +model"; partial maxima as "+model:max", a dim in blocks of 64 elements as "data:64".
  std::string to_string(const Mesh& mesh) const;
  bool operator==(const Sharding&) const = default;
};
// Reads what to_string() writes. Throws InvalidArgument naming the text, or an axis that the mesh does not have.
Sharding parse_sharding(std::string_view text, const Mesh& mesh);

// The piece [offset, offset + size) of `size` elements that part `index` of `parts` holds.
struct Range {
  int64_t offset = 0;
  int64_t size = 0;
  bool operator==(const Range&) const = default;
};
Range balanced_part(int64_t size, int parts, int index);
// The sizes of all parts, in order.
std::vector<int64_t> balanced_sizes(int64_t size, int parts);

// What `rank` holds of a tensor of the global shape: one range per dim. Throws InvalidArgument when the sharding does
// not fit the shape or the mesh.
std::vector<Range> slice_of(const Shape& shape, const Sharding& sharding, const Mesh& mesh, int rank);
Shape local_shape(const Shape& shape, const Sharding& sharding, const Mesh& mesh, int rank);
// The part of a tensor that lies at these ranges; the same memory.
TensorView piece_of(const TensorView& whole, const std::vector<Range>& slice);

}  // namespace tessera::mesh
