// The search space of redistribute(): the shardings of one mesh, and what steps between them cost. All is closed form
// in sizes of dims and axes: the first part of a dim is its largest, the last its smallest. No rank is looked at, but
// for an exchange of uneven dims, whose ranks differ in what they have already.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <vector>

#include "tessera/mesh/redistribution/redistribution_search.h"

namespace tessera::mesh {

inline constexpr int kMaxSearchAxes = 16;

// A sharding in 16 bytes, one per axis: unused, partial, or the dim it splits and how deep it stands there, 0
// outermost. Axes are those that can move: larger than 1, not partial in the target too; numbered from 0.
struct ShardingState {
  static constexpr uint8_t kUnused = 0;
  static constexpr uint8_t kPartial = 1;
  static constexpr uint8_t kSplit = 0x80;
  std::array<uint8_t, kMaxSearchAxes> places{};

  static uint8_t place(int dim, int depth) { return static_cast<uint8_t>(kSplit | dim << 4 | depth); }
  bool operator==(const ShardingState&) const = default;
  uint64_t hash() const {
    std::array<uint64_t, 2> words{};
    std::memcpy(words.data(), places.data(), sizeof words);
    uint64_t h = words[0] * 0x9E3779B97F4A7C15u ^ (words[1] + 0x7F4A7C15u) * 0xC2B2AE3D27D4EB4Fu;
    h ^= h >> 32;
    return h * 0xD6E8FEB86659FD93u ^ h >> 29;
  }
};

// An UnpackedState is a ShardingState by dim.
struct UnpackedState {
  std::array<std::array<uint8_t, kMaxSearchAxes>, kMaxNdim> axes{};  // outer first
  std::array<int, kMaxNdim> num_axes{};
  std::array<int64_t, kMaxNdim> parts{};
  uint32_t unused = 0;  // masks of axes
  uint32_t partial = 0;
};

struct MoveCost {
  int64_t elements = 0;  // received by the busiest rank
  int32_t latencies = 0;
  int32_t exchanges = 0;
  int32_t steps = 0;  // the steps that communicate

  MoveCost operator+(const MoveCost& other) const {
    return {elements + other.elements, latencies + other.latencies, exchanges + other.exchanges, steps + other.steps};
  }
  bool operator==(const MoveCost&) const = default;
};
inline MoveCost collective_cost(int64_t elements) { return {elements, 1, 0, 1}; }
inline MoveCost exchange_cost(int64_t elements) { return {elements, 2, 1, 1}; }

class SearchSpace {
 public:
  // Keeps a reference. Throws InvalidArgument for more than kMaxSearchAxes axes.
  explicit SearchSpace(const RedistributionProblem& problem);

  int ndim() const { return shape_.ndim(); }
  int num_axes() const { return num_axes_; }
  int64_t axis_size(int axis) const { return sizes_[static_cast<size_t>(axis)]; }
  bool is_within_mesh() const { return problem_.to != nullptr; }
  Reduction reduction() const { return reduction_; }
  const ShardingState& target() const { return target_; }  // no state of the mesh if that is not within it

  ShardingState pack(const Sharding& sharding) const;
  UnpackedState unpack(const ShardingState& state) const;
  Sharding sharding_of(const ShardingState& state) const;

  // Returns bytes and latencies in one number.
  double total(const MoveCost& cost) const {
    return static_cast<double>(cost.elements) * static_cast<double>(problem_.element_bytes) +
           problem_.latency_bytes * cost.latencies;
  }
  bool is_cheaper(const MoveCost& a, const MoveCost& b) const {
    const double total_a = total(a);
    const double total_b = total(b);
    return std::tie(total_a, a.elements, a.exchanges, a.steps) < std::tie(total_b, b.elements, b.exchanges, b.steps);
  }

  // How the split of a dim relates to the target's: `common` outer axes are the same.
  struct Overlap {
    int common;
    bool extends_to_target;  // whether slicing makes the target of it, or it is the target
    bool conflict;           // both go on, differently
  };
  Overlap compare(const UnpackedState& state, int dim) const;

  // A lower bound of the cost from a state to the target.
  MoveCost estimate(const ShardingState& state) const;

  // --- the elements that the busiest rank receives ---

  // The elements that a gather of the innermost axes of a dim, `ways` in all, moves.
  int64_t gathered_elements(const UnpackedState& state, int dim, int64_t ways) const;
  // The elements that an all_to_all of the axes of `dim` from depth `first` on, to `to_dim`, moves.
  int64_t moved_elements(const UnpackedState& state, int dim, int first, int to_dim) const;
  // The elements that a reduce_scatter onto `dim` of axes with `ways` in all moves.
  int64_t scattered_elements(const UnpackedState& state, int dim, int64_t ways) const;
  int64_t all_reduced_elements(const UnpackedState& state, int64_t ways) const;
  // The elements that go point to point from a whole state to the target.
  int64_t exchanged_elements(const ShardingState& state) const;

  int64_t product_of(uint32_t axes) const;

 private:
  int number_of(int mesh_axis) const;
  int64_t local_size(const UnpackedState& state, int dim) const;
  int64_t local_elements(const UnpackedState& state, int but = -1, int and_but = -1) const;
  int64_t mean_elements(int64_t contributions) const;
  MoveCost estimate_partial(const UnpackedState& state) const;
  MoveCost estimate_whole(const UnpackedState& state) const;
  int64_t one_step_elements(const UnpackedState& state) const;
  int64_t uneven_exchanged_elements(const UnpackedState& state) const;

  const RedistributionProblem& problem_;
  const Shape& shape_;
  std::vector<int> mesh_axis_;  // the axis of the mesh, by number
  std::vector<int64_t> sizes_;
  int num_axes_ = 0;
  int64_t num_ranks_ = 1;  // the ranks that share a value
  int64_t num_elements_ = 0;
  int64_t largest_need_ = 1;
  Reduction reduction_ = Reduction::kSum;
  ShardingState target_;
  UnpackedState target_dims_;
};

}  // namespace tessera::mesh
