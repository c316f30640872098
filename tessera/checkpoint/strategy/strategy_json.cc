#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/checkpoint/manifest/json_field.h"
#include "tessera/checkpoint/strategy/strategy_forms.h"

namespace tessera::checkpoint {
namespace {

using SortedJson = nlohmann::json;  // members sorted by name, as the reference writes them
using Numbers = std::vector<int64_t>;

// The text is bounded, so is the length of its lists.
constexpr size_t kAnyLength = kMaxStrategyBytes;

Numbers read_json_numbers(const JsonField& field, int64_t min, int64_t max) {
  Numbers numbers;
  for (const auto& item : field.items(kAnyLength)) numbers.push_back(item.integer(min, max));
  return numbers;
}

NodeStrategy read_strategy(const std::string& name, const JsonField& field) {
  NodeStrategy strategy{.node = name, .stage = field["stage"].count(kMaxInt32)};
  for (const auto& splits : field["parallel_strategy"].items(kAnyLength)) {
    strategy.inputs.push_back(read_json_numbers(splits, 1, kMaxInt32));
  }
  return strategy;
}

// A dim is an axis or -1; where several axes split it, the list of them.
Numbers read_axes(const JsonField& dim) {
  auto axes = dim.is_array() ? read_json_numbers(dim, -1, kMaxInt32) : Numbers{dim.integer(-1, kMaxInt32)};
  return axes == Numbers{-1} ? Numbers{} : axes;
}

SortedJson axes_json(const Numbers& axes) {
  if (axes.empty()) return -1;
  return axes.size() == 1 ? SortedJson(axes[0]) : SortedJson(axes);
}

ParameterLayout read_layout(const std::string& name, const JsonField& field) {
  ParameterLayout layout{.name = name};
  layout.device_matrix = read_json_numbers(field["dev_matrix"], 1, kMaxInt32);
  for (const auto& dim : field["tensor_map"].items(kAnyLength)) layout.tensor_map.push_back(read_axes(dim));
  layout.tensor_shape = read_json_numbers(field["tensor_shape"], 0, INT64_MAX);
  if (!layout.tensor_shape.empty() && layout.tensor_shape.size() != layout.tensor_map.size()) {
    field["tensor_shape"].fail(fmt::format("must have {} dims, as tensor_map has", layout.tensor_map.size()));
  }
  if (field.has("param_split_shape")) {
    layout.param_split_shape = read_json_numbers(field["param_split_shape"], 0, INT64_MAX);
  }
  if (field.has("indices_offset")) layout.indices_offset = read_json_numbers(field["indices_offset"], 0, INT64_MAX);
  layout.field = field["field"].count(kMaxInt32);
  layout.opt_weight_shard_step = field["opt_weight_shard_step"].count(kMaxInt32);
  layout.opt_weight_shard_size = field["opt_weight_shard_size"].integer(-1, kMaxInt32);
  return layout;
}

SortedJson layout_json(const ParameterLayout& layout) {
  SortedJson json{{"dev_matrix", layout.device_matrix},
                  {"tensor_map", SortedJson::array()},
                  {"tensor_shape", layout.tensor_shape},
                  {"field", layout.field},
                  {"opt_weight_shard_step", layout.opt_weight_shard_step},
                  {"opt_weight_shard_size", layout.opt_weight_shard_size}};
  for (const auto& axes : layout.tensor_map) json["tensor_map"].push_back(axes_json(axes));
  if (!layout.param_split_shape.empty()) {
    json["param_split_shape"] = layout.param_split_shape;
    json["indices_offset"] = layout.indices_offset;
  }
  return json;
}

}  // namespace

StrategyFile parse_json_strategy(std::string_view text, const std::string& path) {
  const auto json = parse_json(text, path);
  const JsonField root(path, "the strategy file", json);
  StrategyFile strategy{.current_stage = root["current_stage"].count(kMaxInt32)};
  // The reference leaves out a list that is empty.
  if (root.has("parallel_strategy_item")) {
    for (const auto& [name, item] : root["parallel_strategy_item"].members(kMaxStrategyItems)) {
      strategy.strategies.push_back(read_strategy(name, item));
    }
  }
  if (root.has("parallel_layout_item")) {
    for (const auto& [name, item] : root["parallel_layout_item"].members(kMaxStrategyItems)) {
      strategy.layouts.push_back(read_layout(name, item));
    }
  }
  return strategy;
}

std::string strategy_to_json(const StrategyFile& strategy) {
  check_strategy(strategy, "strategy file");
  SortedJson strategies = SortedJson::object();
  for (const auto& item : strategy.strategies) {
    if (strategies.contains(item.node)) {
      throw InvalidArgument(
          "strategy file: the node {} has strategies in two stages, the JSON form holds one; write the file without "
          ".json",
          quoted_name(item.node));
    }
    strategies[item.node] = {{"stage", item.stage}, {"parallel_strategy", item.inputs}};
  }
  SortedJson layouts = SortedJson::object();
  for (const auto& item : strategy.layouts) layouts[item.name] = layout_json(item);
  return SortedJson{{"current_stage", strategy.current_stage},
                    {"parallel_strategy_item", std::move(strategies)},
                    {"parallel_layout_item", std::move(layouts)}}
      .dump();
}

}  // namespace tessera::checkpoint
