#include "tessera/testing/checkpoints/transform_cases.h"

#include <numeric>

#include "tessera/checkpoint/write/save.h"

namespace tessera::checkpoint {
namespace {

// A split on a grid whose axes are named by their place; `dims` holds for each dim the axes, outer first. Axes in
// `shards` cut dim 0 once more, as optimizer shards.
SplitCase split_on(const std::vector<int>& sizes, const std::vector<std::vector<int>>& dims, int shard_axis = -1) {
  std::vector<mesh::Axis> axes;
  for (size_t i = 0; i < sizes.size(); ++i) axes.push_back({fmt::format("a{}", i), sizes[i]});
  SplitCase split{.mesh = mesh::Mesh(axes), .sharding = {dims, {}}};
  split.layout.device_matrix.assign(sizes.begin(), sizes.end());
  const auto last = static_cast<int64_t>(sizes.size()) - 1;
  for (const auto& dim : dims) {
    auto& map = split.layout.tensor_map.emplace_back();
    for (const int axis : dim) map.push_back(last - axis);
  }
  if (shard_axis < 0) return split;
  split.sharding.dims[0].push_back(shard_axis);
  int64_t step = 1;
  for (size_t i = static_cast<size_t>(shard_axis) + 1; i < sizes.size(); ++i) step *= sizes[i];
  split.layout.opt_weight_shard_step = step;
  split.layout.opt_weight_shard_size = sizes[static_cast<size_t>(shard_axis)];
  return split;
}

Tensor random_tensor(const Type& type, std::mt19937& random) {
  Tensor tensor(type);
  for (std::byte& byte : tensor.bytes()) {
    byte = static_cast<std::byte>(type.dtype == DType::kBool ? random() & 1 : random());
  }
  return tensor;
}

void add_parameter(SideCase& side, const std::string& name, const Tensor& value, const std::vector<int>& stages,
                   std::mt19937& random) {
  ParameterCase parameter{name, value, {}};
  for (const int stage : stages) {
    const auto splits = all_splits(value.ndim(), side.ranks.count(stage));
    parameter.splits.emplace(stage, splits[random() % splits.size()]);
    auto layout = parameter.splits.at(stage).layout;
    layout.name = side.ranks.num_stages() > 1 ? fmt::format("{}-{}", stage, name) : name;
    layout.tensor_shape = value.shape().to_vector();
    side.strategy.layouts.push_back(layout);
  }
  side.parameters.push_back(std::move(parameter));
}

}  // namespace

Tensor ParameterCase::slice(int stage, int position) const {
  const auto& split = splits.at(stage);
  const auto ranges = mesh::slice_of(value.shape(), split.sharding, split.mesh, position);
  return Tensor::copy_of(mesh::piece_of(value.view(), ranges));
}

std::vector<SplitCase> all_splits(int ndim, int num_ranks) {
  const auto whole = std::vector<std::vector<int>>(static_cast<size_t>(ndim));
  std::vector<SplitCase> splits = {split_on({num_ranks}, whole)};
  const auto with = [&](int dim, std::vector<int> axes) {
    auto dims = whole;
    dims[static_cast<size_t>(dim)] = std::move(axes);
    return dims;
  };
  if (ndim == 0) return splits;
  for (int dim = 0; dim < ndim; ++dim) splits.push_back(split_on({num_ranks}, with(dim, {0})));
  splits.push_back(split_on({num_ranks}, whole, 0));
  for (int inner = 2; inner < num_ranks; ++inner) {
    if (num_ranks % inner != 0) continue;
    const int outer = num_ranks / inner;
    for (int dim = 0; dim < ndim; ++dim) {
      splits.push_back(split_on({outer, inner}, with(dim, {0})));
      splits.push_back(split_on({outer, inner}, with(dim, {1})));
      splits.push_back(split_on({outer, inner}, with(dim, {1, 0})));
      splits.push_back(split_on({outer, inner}, with(dim, {1}), 0));
    }
    splits.push_back(split_on({outer, inner}, whole, 1));
    if (ndim < 2) continue;
    auto both = whole;
    both[0] = {0};
    both[1] = {1};
    splits.push_back(split_on({outer, inner}, both));
    std::swap(both[0], both[1]);
    splits.push_back(split_on({outer, inner}, both));
  }
  return splits;
}

TransformCase make_case(const mesh::StageRanks& from, const mesh::StageRanks& to, std::mt19937& random) {
  TransformCase made;
  made.from.ranks = from;
  made.to.ranks = to;
  const std::vector<Type> types = {
      {DType::kF32, {}},        {DType::kF32, {31123}},  {DType::kBF16, {17}},         {DType::kF32, {127}},
      {DType::kF32, {17, 127}}, {DType::kF16, {127, 3}}, {DType::kU8, {31123, 1}},     {DType::kF32, {16, 48}},
      {DType::kI64, {1, 5}},    {DType::kBool, {6, 4}},  {DType::kF64, {2, 17, 3, 2}}, {DType::kF32, {5, 1, 127}},
      {DType::kF32, {0}},       {DType::kI32, {0, 3}},   {DType::kF32, {3, 0}},
  };
  constexpr int kCopies = 2;
  constexpr int kShared = 8;  // by all stages: vectors and matrices among them
  const int count = static_cast<int>(types.size()) * kCopies;
  for (int i = 0; i < count; ++i) {
    const auto value = random_tensor(types[static_cast<size_t>(i) % types.size()], random);
    const auto name = fmt::format("layer{}.weight", i);
    for (SideCase* side : {&made.from, &made.to}) {
      const int num_stages = side->ranks.num_stages();
      std::vector<int> stages = {i * num_stages / count};
      if (i < kShared) {
        stages.resize(static_cast<size_t>(num_stages));
        std::iota(stages.begin(), stages.end(), 0);
      }
      add_parameter(*side, name, value, stages, random);
    }
  }
  return made;
}

std::vector<std::pair<std::string, Tensor>> SideCase::held_by(int rank) const {
  const int stage = ranks.stage_of(rank);
  std::vector<std::pair<std::string, Tensor>> held;
  for (const auto& parameter : parameters) {
    if (!parameter.splits.contains(stage)) continue;
    held.emplace_back(parameter.name, parameter.slice(stage, rank - ranks.first(stage)));
  }
  held.emplace_back("learning_rate", Tensor::scalar(0.5F));
  return held;
}

void save_side(FileSystem& files, const SideCase& side, const std::string& directory, const std::string& name) {
  for (int rank = 0; rank < side.num_ranks(); ++rank) {
    std::vector<Entry> entries;
    for (const auto& [tensor_name, value] : side.held_by(rank)) entries.emplace_back(tensor_name, value);
    save(files,
         {.path = fmt::format("{}/rank_{}/{}{}.ckpt", directory, rank, name, rank),
          .append_info = {Entry::number("epoch_num", int64_t{2}), Entry("note", "all ranks"), Entry("nothing", "")}},
         entries, {.epoch = 2, .step_in_epoch = 7, .step = 21, .job_id = "laws", .world_size = side.num_ranks()});
  }
}

}  // namespace tessera::checkpoint
