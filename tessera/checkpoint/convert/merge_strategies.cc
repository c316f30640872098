#include "tessera/checkpoint/convert/merge_strategies.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/checkpoint/format/ckpt_path.h"
#include "tessera/checkpoint/format/region.h"
#include "tessera/checkpoint/strategy/placement.h"
#include "tessera/mesh/mesh.h"

namespace tessera::checkpoint {
namespace {

struct StageFile {
  std::string path;
  StrategyFile strategy;
};

std::map<int64_t, StageFile> read_stages(FileSystem& files, const std::string& directory) {
  std::set<std::string_view> suffixes;
  std::map<int64_t, StageFile> stages;
  for (const auto& name : files.list(directory)) {
    const bool is_json = name.ends_with(".json");
    if (!is_json && !name.ends_with(kCheckpointSuffix)) continue;
    suffixes.insert(is_json ? ".json" : kCheckpointSuffix);
    if (suffixes.size() > 1) throw InvalidArgument("{}: holds both .ckpt and .json files; keep one form", directory);
    const auto path = join_path(directory, name);
    auto strategy = read_strategy_file(files, path);
    if (strategy.strategies.empty() || strategy.layouts.empty()) {
      throw InvalidArgument("{}: the strategy file is empty: it must have strategies and layouts", path);
    }
    const int64_t stage = strategy.strategies[0].stage;
    for (const auto& node : strategy.strategies) {
      if (node.stage == stage) continue;
      throw InvalidArgument("{}: has operators of stages {} and {}, it must be of one", path, stage, node.stage);
    }
    const auto [it, is_first] = stages.try_emplace(stage, StageFile{path, strategy});
    if (!is_first && !(it->second.strategy == strategy)) {
      throw InvalidArgument("{} and {} are both of stage {}, but differ: they must be of one run", it->second.path,
                            path, stage);
    }
  }
  return stages;
}

TensorView part_of(const Tensor& whole, const Region& region) {
  std::vector<mesh::Range> ranges;
  for (int dim = 0; dim < region.ndim(); ++dim) ranges.push_back({region.offset[dim], region.shape[dim]});
  return mesh::piece_of(whole.view(), ranges);
}

void copy_to_region(const Tensor& slice, const Tensor& whole, const Region& region) {
  copy_elements(slice.view(), part_of(whole, region));
}

// Slices one below the other.
Tensor joined_rows(const std::vector<Tensor>& slices) {
  if (slices[0].ndim() == 0) throw InvalidArgument("merge_sliced_parameter: scalars have no rows to join");
  Shape shape = slices[0].shape();
  shape[0] = 0;
  for (const auto& slice : slices) {
    Shape expected = slices[0].shape();
    if (slice.ndim() == expected.ndim()) expected[0] = slice.shape()[0];
    if (slice.dtype() != slices[0].dtype() || slice.shape() != expected) {
      throw InvalidArgument("merge_sliced_parameter: slices {} and {} cannot be joined along dim 0",
                            slices[0].type().to_string(), slice.type().to_string());
    }
    shape[0] += slice.shape()[0];
  }
  Tensor whole(slices[0].dtype(), shape);
  Region region = Region::whole(shape);
  for (const auto& slice : slices) {
    region.shape[0] = slice.shape()[0];
    copy_to_region(slice, whole, region);
    region.offset[0] += region.shape[0];
  }
  return whole;
}

}  // namespace

void merge_pipeline_strategys(FileSystem& files, const std::string& directory, const std::string& dst_strategy_file) {
  if (!files.is_directory(directory)) throw InvalidArgument("{}: is no directory of strategy files", directory);
  const auto stages = read_stages(files, directory);
  if (stages.empty()) throw InvalidArgument("{}: holds no strategy file (.ckpt or .json)", directory);
  StrategyFile merged;
  for (const auto& [stage, file] : stages) {
    for (auto layout : file.strategy.layouts) {
      layout.name = fmt::format("{}-{}", stage, layout.name);
      merged.layouts.push_back(std::move(layout));
    }
    merged.strategies.insert(merged.strategies.end(), file.strategy.strategies.begin(), file.strategy.strategies.end());
  }
  const ParameterPlacement checked(merged, directory);
  write_strategy_file(files, dst_strategy_file, merged);
}

std::map<std::string, ParameterLayout> build_searched_strategy(FileSystem& files, const std::string& path) {
  std::map<std::string, ParameterLayout> layouts;
  for (auto& layout : read_strategy_file(files, path).layouts) layouts.emplace(layout.name, std::move(layout));
  return layouts;
}

Tensor merge_sliced_parameter(const std::vector<Tensor>& slices, const ParameterLayout* layout) {
  if (slices.empty()) throw InvalidArgument("merge_sliced_parameter: there are no slices");
  if (layout == nullptr) return joined_rows(slices);
  const auto num_slices = std::ssize(slices);
  const Slicing slicing(*layout, "merge_sliced_parameter");
  if (slicing.num_ranks() != num_slices) {
    throw InvalidArgument("merge_sliced_parameter: the layout of \"{}\" is on {} ranks, {} slices were given",
                          layout->name, slicing.num_ranks(), num_slices);
  }
  std::vector<std::optional<Shape>> held;
  for (const auto& slice : slices) {
    if (slice.dtype() != slices[0].dtype() || slice.ndim() != slicing.ndim()) {
      throw InvalidArgument(
          "merge_sliced_parameter: slices of \"{}\" are {} and {}; they must have one dtype and {} dims", layout->name,
          slices[0].type().to_string(), slice.type().to_string(), slicing.ndim());
    }
    held.emplace_back(slice.shape());
  }
  const auto global = slicing.global_shape(held);
  const Tensor whole(slices[0].dtype(), global ? global->shape : slices[0].shape());
  for (int64_t position = 0; position < num_slices; ++position) {
    const auto& slice = slices[static_cast<size_t>(position)];
    const Region region = slicing.region(whole.shape(), position);
    if (region.shape != slice.shape()) {
      throw InvalidArgument("merge_sliced_parameter: slice {} of \"{}\" is {}, its place {} of {} has another shape",
                            position, layout->name, slice.type().to_string(), region.to_string(), whole.shape());
    }
    copy_to_region(slice, whole, region);
  }
  return whole;
}

Tensor slice_parameter(const Tensor& whole, const ParameterLayout& layout, int64_t rank) {
  const Slicing slicing(layout, "slice_parameter");
  if (rank < 0 || rank >= slicing.num_ranks()) {
    throw InvalidArgument("slice_parameter: there is no rank {}, the layout of \"{}\" is on {}", rank, layout.name,
                          slicing.num_ranks());
  }
  if (slicing.ndim() != whole.ndim()) {
    throw InvalidArgument("slice_parameter: \"{}\" is {}, its layout has {} dims", layout.name,
                          whole.type().to_string(), slicing.ndim());
  }
  return Tensor::copy_of(part_of(whole, slicing.region(whole.shape(), rank)));
}

}  // namespace tessera::checkpoint
