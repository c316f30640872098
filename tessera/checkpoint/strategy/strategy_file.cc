#include "tessera/checkpoint/strategy/strategy_file.h"

#include <set>
#include <unordered_set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files/mapped_guard.h"
#include "tessera/base/utf8.h"
#include "tessera/checkpoint/strategy/strategy_forms.h"

namespace tessera::checkpoint {
namespace {

// One item under check, and its name in messages.
struct Checked {
  const std::string& where;
  std::string item;

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw InvalidArgument("{}: {}: {}", where, item, fmt::format(format, std::forward<Args>(args)...));
  }
  void number(const char* name, int64_t value, int64_t min, int64_t max) const {
    if (value < min || value > max) fail("{} is {}, it must be from {} to {}", name, value, min, max);
  }
  void numbers(const char* name, const std::vector<int64_t>& values, int64_t min, int64_t max) const {
    for (size_t i = 0; i < values.size(); ++i) number(fmt::format("{}[{}]", name, i).c_str(), values[i], min, max);
  }
  void ndim(const char* name, size_t size) const {
    if (size > kMaxStrategyDims) fail("{} has {} elements, at most {} are accepted", name, size, kMaxStrategyDims);
  }
};

void check_name(std::string_view name, const std::string& where, const char* kind) {
  if (is_item_name(name)) return;
  throw InvalidArgument("{}: the name of {}, of {} bytes, must be UTF-8 of 1 to {} bytes", where, kind, name.size(),
                        kMaxItemNameBytes);
}

void check_node(const NodeStrategy& strategy, const std::string& where) {
  check_name(strategy.node, where, "a strategy");
  const Checked checked{where, fmt::format("the strategy of {}", quoted_name(strategy.node))};
  checked.number("stage", strategy.stage, 0, kMaxInt32);
  for (size_t input = 0; input < strategy.inputs.size(); ++input) {
    const auto name = fmt::format("inputs[{}]", input);
    checked.ndim(name.c_str(), strategy.inputs[input].size());
    checked.numbers(name.c_str(), strategy.inputs[input], 1, kMaxInt32);
  }
}

void check_tensor_map(const Checked& checked, const ParameterLayout& layout) {
  const size_t num_axes = layout.device_matrix.size();
  checked.ndim("tensor_map", layout.tensor_map.size());
  std::vector<bool> used(num_axes);
  for (size_t dim = 0; dim < layout.tensor_map.size(); ++dim) {
    for (const int64_t axis : layout.tensor_map[dim]) {
      if (axis < 0 || static_cast<size_t>(axis) >= num_axes) {
        checked.fail("tensor_map[{}] names axis {}, dev_matrix has {} axes", dim, axis, num_axes);
      }
      if (used[static_cast<size_t>(axis)]) checked.fail("tensor_map[{}] names axis {}, which is taken", dim, axis);
      used[static_cast<size_t>(axis)] = true;
    }
  }
}

void require_at_most_max(size_t size_bytes, const std::string& path, std::string_view what) {
  if (size_bytes <= kMaxStrategyBytes) return;
  throw InvalidArgument("{}: has {} bytes, {} has at most {}", path, size_bytes, what, kMaxStrategyBytes);
}

bool looks_like_json(std::string_view bytes) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (bytes[first] == '{' || bytes[first] == '[');
}

}  // namespace

void check_layout(const ParameterLayout& layout, const std::string& where) {
  check_name(layout.name, where, "a layout");
  const Checked checked{where, fmt::format("the layout of {}", quoted_name(layout.name))};
  checked.ndim("dev_matrix", layout.device_matrix.size());
  checked.numbers("dev_matrix", layout.device_matrix, 1, kMaxInt32);
  int64_t num_devices = 1;
  for (const int64_t size : layout.device_matrix) {
    num_devices *= size;  // both below 2^31
    if (num_devices > kMaxInt32) checked.fail("dev_matrix has more than {} devices", kMaxInt32);
  }
  check_tensor_map(checked, layout);
  if (!layout.tensor_shape.empty() && layout.tensor_shape.size() != layout.tensor_map.size()) {
    checked.fail("tensor_shape has {} dims, tensor_map {}", layout.tensor_shape.size(), layout.tensor_map.size());
  }
  checked.numbers("tensor_shape", layout.tensor_shape, 0, INT64_MAX);
  if (layout.param_split_shape.size() != layout.indices_offset.size()) {
    checked.fail("param_split_shape has {} elements, indices_offset {}; they must be as many",
                 layout.param_split_shape.size(), layout.indices_offset.size());
  }
  checked.numbers("param_split_shape", layout.param_split_shape, 0, INT64_MAX);
  checked.numbers("indices_offset", layout.indices_offset, 0, INT64_MAX);
  checked.number("field", layout.field, 0, kMaxInt32);
  checked.number("opt_weight_shard_step", layout.opt_weight_shard_step, 0, kMaxInt32);
  checked.number("opt_weight_shard_size", layout.opt_weight_shard_size, -1, kMaxInt32);
}

void check_size(std::string_view bytes, const std::string& path, std::string_view what) {
  if (bytes.empty()) throw InvalidArgument("{}: is empty, it must hold {}", path, what);
  require_at_most_max(bytes.size(), path, what);
}

std::unique_ptr<ReadableFile> open_strategy(FileSystem& files, const std::string& path, std::string_view what) {
  if (files.exists(path)) require_at_most_max(static_cast<size_t>(files.size_bytes(path)), path, what);
  return files.open(path);
}

bool is_item_name(std::string_view name) { return !name.empty() && name.size() <= kMaxItemNameBytes && is_utf8(name); }

int64_t ParameterLayout::num_optimizer_shards() const {
  if (opt_weight_shard_step == 0 || opt_weight_shard_size == 0) return 1;
  if (opt_weight_shard_size > 0) return opt_weight_shard_size;
  int64_t repeats = 1;
  for (const int64_t size : device_matrix) repeats *= size;
  for (const auto& axes : tensor_map) {
    for (const int64_t axis : axes) repeats /= device_matrix.at(device_matrix.size() - 1 - static_cast<size_t>(axis));
  }
  return repeats;
}

void check_strategy(const StrategyFile& strategy, const std::string& where) {
  if (strategy.current_stage < 0 || strategy.current_stage > kMaxInt32) {
    throw InvalidArgument("{}: current_stage is {}, it must be from 0 to {}", where, strategy.current_stage, kMaxInt32);
  }
  if (strategy.strategies.size() > kMaxStrategyItems || strategy.layouts.size() > kMaxStrategyItems) {
    throw InvalidArgument("{}: has {} strategies and {} layouts, at most {} of each are accepted", where,
                          strategy.strategies.size(), strategy.layouts.size(), kMaxStrategyItems);
  }
  std::set<std::pair<std::string_view, int64_t>> nodes;
  for (const auto& item : strategy.strategies) {
    check_node(item, where);
    if (!nodes.emplace(item.node, item.stage).second) {
      throw InvalidArgument("{}: the node {} has two strategies in stage {}", where, quoted_name(item.node),
                            item.stage);
    }
  }
  std::unordered_set<std::string_view> names;
  for (const auto& item : strategy.layouts) {
    check_layout(item, where);
    if (!names.insert(item.name).second) {
      throw InvalidArgument("{}: the parameter {} has two layouts", where, quoted_name(item.name));
    }
  }
}

StrategyFile parse_strategy_file(std::string_view bytes, const std::string& path) {
  check_size(bytes, path, "a strategy file");
  auto strategy = looks_like_json(bytes) ? parse_json_strategy(bytes, path) : parse_protobuf_strategy(bytes, path);
  check_strategy(strategy, path);
  return strategy;
}

StrategyFile read_strategy_file(FileSystem& files, const std::string& path) {
  const auto file = open_strategy(files, path, "a strategy file");
  return parse_guarded(file->bytes(), path, [&](auto bytes) { return parse_strategy_file(as_text(bytes), path); });
}

void write_strategy_file(FileSystem& files, const std::string& path, const StrategyFile& strategy, StrategyForm form) {
  const bool json = form == StrategyForm::kJson || (form == StrategyForm::kBySuffix && path.ends_with(".json"));
  const auto bytes = json ? strategy_to_json(strategy) : strategy_to_protobuf(strategy);
  files.create_directories(parent_path(path));
  files.write_atomically(path, bytes, 0600);
}

}  // namespace tessera::checkpoint
