#include "tessera/checkpoint/strategy/placement.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/files/protobuf_wire.h"
#include "tessera/mesh/mesh.h"

namespace tessera::checkpoint {
namespace {

// Far beyond any machine; a file that claims more is damaged, and going through its ranks would take for ever.
constexpr int64_t kMaxRanks = int64_t{1} << 20;

// Of a layout as check_strategy has it, however it came to be here: sizes and axes are multiplied and looked up below.
int64_t num_devices(const ParameterLayout& layout, const std::string& where) {
  check_layout(layout, where);
  int64_t product = 1;
  for (const int64_t size : layout.device_matrix) product *= size;
  if (product > kMaxRanks) {
    throw InvalidArgument("{}: the layout of {} is on {} devices, at most {} are accepted", where,
                          quoted_name(layout.name), product, kMaxRanks);
  }
  return product;
}

// "1-fc.weight" is fc.weight of stage 1; a name without a stage is its own.
struct StageName {
  std::optional<int64_t> stage;
  std::string name;
};

StageName stage_name(const std::string& full) {
  const size_t digits = full.find_first_not_of("0123456789");
  constexpr size_t kMaxDigits = 6;
  const bool has_stage = digits != std::string::npos && digits > 0 && digits <= kMaxDigits && full[digits] == '-' &&
                         digits + 1 < full.size();
  if (!has_stage) return {std::nullopt, full};
  return {std::stoll(full.substr(0, digits)), full.substr(digits + 1)};
}

// Stages may cut a parameter in ways of their own, but it is one: a layout that says less, no dims or no shape, agrees
// with any.
void require_one_parameter(const ParameterPlacement::Parameter& parameter, int64_t stage, const ParameterLayout& layout,
                           const std::string& where) {
  for (const auto& [other, known] : parameter.stages) {
    const auto fail = [&, other = other](const std::string& theirs, const std::string& own) {
      throw InvalidArgument(
          "{}: {} is {} in stage {} and {} in stage {}; a parameter that stages share is one, however each cuts it: "
          "the strategy files must be of one run",
          where, quoted_name(layout.name), theirs, other, own, stage);
    };
    const auto num_dims = [](const ParameterLayout& of) { return fmt::format("of {} dims", of.tensor_map.size()); };
    const auto shape = [](const ParameterLayout& of) { return fmt::format("[{}]", fmt::join(of.tensor_shape, ",")); };
    const bool have_dims = !known.layout.tensor_map.empty() && !layout.tensor_map.empty();
    if (have_dims && known.layout.tensor_map.size() != layout.tensor_map.size()) {
      fail(num_dims(known.layout), num_dims(layout));
    }
    const bool have_shapes = !known.layout.tensor_shape.empty() && !layout.tensor_shape.empty();
    if (have_shapes && known.layout.tensor_shape != layout.tensor_shape) fail(shape(known.layout), shape(layout));
  }
}

}  // namespace

Slicing Slicing::whole(int ndim, int64_t num_ranks) {
  Slicing slicing;
  slicing.cuts_.resize(static_cast<size_t>(ndim));
  slicing.num_ranks_ = num_ranks;
  return slicing;
}

Slicing::Slicing(const ParameterLayout& layout, const std::string& where) : num_ranks_(num_devices(layout, where)) {
  const auto fail = [&](const std::string& what) {
    throw InvalidArgument("{}: the layout of {} {}", where, quoted_name(layout.name), what);
  };
  if (!layout.param_split_shape.empty()) fail("is split by hand (param_split_shape), which cannot be converted");
  const auto& matrix = layout.device_matrix;
  for (const auto& axes : layout.tensor_map) {
    auto& cuts = cuts_.emplace_back();
    for (const int64_t axis : axes) {
      const auto index = matrix.size() - 1 - static_cast<size_t>(axis);
      int64_t stride = 1;
      for (size_t inner = index + 1; inner < matrix.size(); ++inner) stride *= matrix[inner];
      if (matrix[index] > 1) cuts.push_back({matrix[index], stride});
    }
  }
  const int64_t shards = layout.num_optimizer_shards();
  if (shards == 1) return;
  if (cuts_.empty()) fail("has optimizer shards, but no dims");
  cuts_[0].push_back({shards, layout.opt_weight_shard_step});
  if (!every_part_is_held()) {
    fail(
        fmt::format("has {} optimizer shards {} ranks apart, of which some are on no rank; the step must be the number "
                    "of ranks over which the slices lie",
                    shards, layout.opt_weight_shard_step));
  }
}

bool Slicing::every_part_is_held() const {
  int64_t num_slices = 1;
  for (int dim = 0; dim < ndim(); ++dim) {
    if (__builtin_mul_overflow(num_slices, num_parts(dim), &num_slices)) return false;
  }
  if (num_slices > num_ranks_) return false;
  std::set<int64_t> held;
  for (int64_t position = 0; position < num_ranks_; ++position) {
    held.insert(slice_index(position));
  }
  return static_cast<int64_t>(held.size()) == num_slices;
}

int64_t Slicing::slice_index(int64_t position) const {
  int64_t index = 0;
  for (int dim = 0; dim < ndim(); ++dim) index = index * num_parts(dim) + part(dim, position);
  return index;
}

bool Slicing::is_whole() const {
  return std::all_of(cuts_.begin(), cuts_.end(), [](const auto& cuts) { return cuts.empty(); });
}

bool Slicing::cuts_like(const Slicing& other) const {
  if (is_whole() || other.is_whole()) return is_whole() && other.is_whole();
  return num_ranks_ == other.num_ranks_ && cuts_ == other.cuts_;
}

int64_t Slicing::num_parts(int dim) const {
  int64_t parts = 1;
  for (const Cut& cut : cuts_[static_cast<size_t>(dim)]) parts *= cut.parts;
  return parts;
}

int64_t Slicing::part(int dim, int64_t position) const {
  int64_t index = 0;
  for (const Cut& cut : cuts_[static_cast<size_t>(dim)]) index = index * cut.parts + cut.part(position);
  return index;
}

Region Slicing::region(const Shape& global, int64_t position) const {
  check_equal(global.ndim(), ndim(), "dims of a tensor and its slicing");
  Region region = Region::whole(global);
  for (int dim = 0; dim < ndim(); ++dim) {
    for (const Cut& cut : cuts_[static_cast<size_t>(dim)]) {
      const auto part =
          mesh::balanced_part(region.shape[dim], static_cast<int>(cut.parts), static_cast<int>(cut.part(position)));
      region.offset[dim] += part.offset;
      region.shape[dim] = part.size;
    }
  }
  return region;
}

int64_t Slicing::replica(int64_t position) const {
  int64_t rest = position;
  for (const auto& cuts : cuts_) {
    for (const Cut& cut : cuts) rest -= cut.part(position) * cut.stride;
  }
  return rest;
}

std::optional<Slicing::Inferred> Slicing::global_shape(std::span<const std::optional<Shape>> held) const {
  auto known =
      std::find_if(held.begin(), held.end(), [&](const auto& shape) { return shape && shape->num_elements() > 0; });
  const bool has_elements = known != held.end();
  if (!has_elements)
    known = std::find_if(held.begin(), held.end(), [](const auto& shape) { return shape.has_value(); });
  if (known == held.end()) return std::nullopt;
  Inferred global{**known};
  for (int dim = 0; dim < ndim(); ++dim) {
    const int64_t parts = num_parts(dim);
    std::vector<std::optional<int64_t>> sizes(static_cast<size_t>(parts));
    for (int64_t position = 0; position < num_ranks_; ++position) {
      const auto& shape = held[static_cast<size_t>(position)];
      bool is_first_elsewhere = shape.has_value();
      for (int other = 0; other < ndim() && is_first_elsewhere; ++other) {
        is_first_elsewhere = other == dim || part(other, position) == 0;
      }
      if (!is_first_elsewhere) continue;
      const bool holds_none = has_elements && shape->num_elements() == 0;
      sizes[static_cast<size_t>(part(dim, position))] = holds_none ? 0 : (*shape)[dim];
    }
    int64_t sum = 0;
    bool is_complete = true;
    for (const auto& size : sizes) {
      is_complete = is_complete && size.has_value();
      sum += size.value_or(0);
    }
    global.is_certain = global.is_certain && is_complete;
    int64_t guess = 0;
    if (__builtin_mul_overflow((**known)[dim], parts, &guess)) {
      throw InvalidArgument("a dim of {} parts of {} is longer than an int64 counts", parts, (**known)[dim]);
    }
    global.shape[dim] = is_complete ? sum : guess;
  }
  return global;
}

ParameterPlacement::ParameterPlacement(const StrategyFile& strategy, const std::string& path) : path_(path) {
  if (strategy.layouts.empty()) throw InvalidArgument("{}: has no layouts, so it says nothing of any parameter", path);
  const bool is_merged = std::all_of(strategy.layouts.begin(), strategy.layouts.end(),
                                     [](const auto& layout) { return stage_name(layout.name).stage.has_value(); });
  for (const auto& node : strategy.strategies) {
    if (!is_merged && node.stage != 0) {
      throw InvalidArgument(
          "{}: is the file of stage {} alone; merge those of all stages first (merge_pipeline_strategys)", path,
          node.stage);
    }
  }
  std::map<int64_t, std::pair<std::string, int64_t>> devices_of;  // by stage, as the first of its layouts says
  for (const auto& given : strategy.layouts) {
    ParameterLayout layout = given;
    int64_t stage = 0;
    if (is_merged) {
      auto split = stage_name(given.name);
      stage = *split.stage;
      layout.name = std::move(split.name);
    }
    const int64_t devices = num_devices(layout, path);
    const auto& [first, of_stage] = devices_of.try_emplace(stage, given.name, devices).first->second;
    if (devices != of_stage) {
      throw InvalidArgument("{}: {} is laid out on {} devices, {} on {}; they are of one stage", path,
                            quoted_name(given.name), devices, quoted_name(first), of_stage);
    }
    Parameter& parameter = layouts_[layout.name];
    if (parameter.is_in(stage)) {
      throw InvalidArgument("{}: {} has two layouts in stage {}", path, quoted_name(layout.name), stage);
    }
    require_one_parameter(parameter, stage, layout, path);
    Slicing slicing(layout, path);
    parameter.stages.emplace(stage, InStage{std::move(layout), std::move(slicing)});
  }
  const int64_t last = devices_of.rbegin()->first;
  std::vector<int> counts;
  for (int64_t stage = 0; stage <= last; ++stage) {
    const auto found = devices_of.find(stage);
    if (found == devices_of.end()) {
      throw InvalidArgument("{}: has layouts of stage {}, but none of stage {}", path, last, stage);
    }
    counts.push_back(static_cast<int>(found->second.second));
  }
  ranks_ = mesh::StageRanks(counts);
}

ParameterPlacement ParameterPlacement::read(FileSystem& files, const std::string& path) {
  return path.empty() ? ParameterPlacement() : ParameterPlacement(read_strategy_file(files, path), path);
}

int64_t ParameterPlacement::stage_of(int64_t rank) const {
  if (rank < 0 || rank >= num_ranks()) {
    throw InvalidArgument("{}: has ranks 0 to {}, none of number {}",
                          path_.empty() ? "a placement without a strategy file" : path_, num_ranks() - 1, rank);
  }
  return ranks_.stage_of(static_cast<int>(rank));
}

bool ParameterPlacement::Parameter::is_whole() const {
  return std::all_of(stages.begin(), stages.end(), [](const auto& it) { return it.second.slicing.is_whole(); });
}

bool ParameterPlacement::Parameter::is_cut_alike() const {
  const Slicing& first = stages.begin()->second.slicing;
  return std::all_of(stages.begin(), stages.end(), [&](const auto& it) { return first.cuts_like(it.second.slicing); });
}

int ParameterPlacement::Parameter::ndim() const {
  int ndim = 0;
  for (const auto& [stage, in_stage] : stages) ndim = std::max(ndim, in_stage.slicing.ndim());
  return ndim;
}

std::vector<int64_t> ParameterPlacement::Parameter::shape() const {
  for (const auto& [stage, in_stage] : stages) {
    if (!in_stage.layout.tensor_shape.empty()) return in_stage.layout.tensor_shape;
  }
  return {};
}

const ParameterPlacement::Parameter* ParameterPlacement::find(const std::string& name) const {
  const auto it = layouts_.find(name);
  return it == layouts_.end() ? nullptr : &it->second;
}

}  // namespace tessera::checkpoint
