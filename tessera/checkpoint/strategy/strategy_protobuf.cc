#include <algorithm>
#include <optional>
#include <tuple>

#include "tessera/checkpoint/strategy/strategy_forms.h"

namespace tessera::checkpoint {
namespace {

using Numbers = std::vector<int64_t>;

NodeStrategy read_strategy(WireCursor item) {
  const size_t start = item.offset();
  auto named = read_named_message(item, "a strategy");
  WireCursor cursor = named.content;
  NodeStrategy strategy{.node = std::move(named.name)};
  const auto what = fmt::format("the strategy of {}", quoted_name(strategy.node));
  std::optional<int64_t> stage;
  while (!cursor.done()) {
    const size_t at = cursor.offset();
    const WireKey key = cursor.key();
    switch (key.field) {
      case 1:
        set_once(stage, read_number(cursor, key, what + ": stage", 0, kMaxInt32), cursor, at, what + ": stage");
        break;
      case 2: strategy.inputs.push_back(read_numbers(read_message(cursor, key, what), what, 1, kMaxInt32)); break;
      default: cursor.skip(key.wire_type);
    }
  }
  if (!stage) cursor.fail(start, "{} has no stage", what);
  strategy.stage = *stage;
  return strategy;
}

// One message says for each dim the one axis that splits it, or -1. Of several, each is the list of one dim's axes;
// empty ones only make them several.
std::vector<Numbers> tensor_map_of(const std::vector<Numbers>& messages) {
  std::vector<Numbers> tensor_map;
  if (messages.size() == 1) {
    for (const int64_t axis : messages[0]) tensor_map.push_back(axis < 0 ? Numbers{} : Numbers{axis});
    return tensor_map;
  }
  for (const auto& axes : messages) {
    if (!axes.empty()) tensor_map.push_back(axes == Numbers{-1} ? Numbers{} : axes);
  }
  return tensor_map;
}

ParameterLayout read_layout(WireCursor item) {
  const size_t start = item.offset();
  auto named = read_named_message(item, "a layout");
  WireCursor cursor = named.content;
  ParameterLayout layout{.name = std::move(named.name)};
  const auto what = fmt::format("the layout of {}", quoted_name(layout.name));
  std::optional<Numbers> device_matrix;
  std::optional<Numbers> split_shape;
  std::optional<Numbers> offsets;
  std::vector<Numbers> maps;
  std::optional<int64_t> field;
  std::optional<int64_t> step;
  std::optional<int64_t> size;
  while (!cursor.done()) {
    const size_t at = cursor.offset();
    const WireKey key = cursor.key();
    const auto numbers = [&](std::optional<Numbers>& to, const char* member, int64_t min, int64_t max) {
      const auto place = fmt::format("{}: {}", what, member);
      set_once(to, read_numbers(read_message(cursor, key, place), place, min, max), cursor, at, place);
    };
    const auto number = [&](std::optional<int64_t>& to, const char* member, int64_t min) {
      const auto place = fmt::format("{}: {}", what, member);
      set_once(to, read_number(cursor, key, place, min, kMaxInt32), cursor, at, place);
    };
    switch (key.field) {
      case 1: numbers(device_matrix, "dev_matrix", 1, kMaxInt32); break;
      case 2:
        maps.push_back(read_numbers(read_message(cursor, key, what), what + ": tensor_map", -1, kMaxInt32));
        break;
      case 3: numbers(split_shape, "param_split_shape", 0, INT64_MAX); break;
      case 4: numbers(offsets, "indices_offset", 0, INT64_MAX); break;
      case 5: number(field, "field", 0); break;
      case 6: number(step, "opt_weight_shard_step", 0); break;
      case 7: number(size, "opt_weight_shard_size", -1); break;
      default: cursor.skip(key.wire_type);
    }
  }
  if (!device_matrix) cursor.fail(start, "{} has no dev_matrix", what);
  if (maps.empty()) cursor.fail(start, "{} has no tensor_map", what);
  if (!field) cursor.fail(start, "{} has no field", what);
  layout.device_matrix = std::move(*device_matrix);
  layout.tensor_map = tensor_map_of(maps);
  layout.param_split_shape = std::move(split_shape).value_or(Numbers{});
  layout.indices_offset = std::move(offsets).value_or(Numbers{});
  layout.field = *field;
  layout.opt_weight_shard_step = step.value_or(0);  // the first releases did not have them
  layout.opt_weight_shard_size = size.value_or(0);
  return layout;
}

void append_tensor_map(std::string& to, const std::vector<Numbers>& tensor_map) {
  constexpr int kField = 2;
  if (std::all_of(tensor_map.begin(), tensor_map.end(), [](const Numbers& axes) { return axes.size() <= 1; })) {
    Numbers axis_of_dim;
    for (const auto& axes : tensor_map) axis_of_dim.push_back(axes.empty() ? -1 : axes[0]);
    append_numbers(to, kField, axis_of_dim);
    return;
  }
  for (const auto& axes : tensor_map) append_numbers(to, kField, axes.empty() ? Numbers{-1} : axes);
  if (tensor_map.size() == 1) append_numbers(to, kField, {});  // else it would be read as one axis a dim
}

std::string strategy_message(const NodeStrategy& strategy) {
  std::string message;
  append_number_field(message, 1, strategy.stage);
  for (const auto& splits : strategy.inputs) append_numbers(message, 2, splits);
  return message;
}

std::string layout_message(const ParameterLayout& layout) {
  std::string message;
  append_numbers(message, 1, layout.device_matrix);
  append_tensor_map(message, layout.tensor_map);
  append_numbers(message, 3, layout.param_split_shape);
  append_numbers(message, 4, layout.indices_offset);
  append_number_field(message, 5, layout.field);
  append_number_field(message, 6, layout.opt_weight_shard_step);
  append_number_field(message, 7, layout.opt_weight_shard_size);
  return message;
}

}  // namespace

StrategyFile parse_protobuf_strategy(std::string_view bytes, const std::string& path) {
  StrategyFile strategy;
  std::optional<int64_t> current_stage;
  WireCursor cursor(path, std::as_bytes(std::span(bytes)), 0);
  const auto check_count = [&](size_t at, size_t count) {
    if (count > kMaxStrategyItems) cursor.fail(at, "more than {} items", kMaxStrategyItems);
  };
  while (!cursor.done()) {
    const size_t at = cursor.offset();
    const WireKey key = cursor.key();
    switch (key.field) {
      case 1:
        if (key.wire_type == kLengthDelimited) {
          cursor.fail(at, "is not a strategy file: where its current_stage must be, a checkpoint's first value lies");
        }
        set_once(current_stage, read_number(cursor, key, "current_stage", 0, kMaxInt32), cursor, at, "current_stage");
        break;
      case 2:
        strategy.strategies.push_back(read_strategy(read_message(cursor, key, "a strategy")));
        check_count(at, strategy.strategies.size());
        break;
      case 3:
        strategy.layouts.push_back(read_layout(read_message(cursor, key, "a layout")));
        check_count(at, strategy.layouts.size());
        break;
      default: cursor.skip(key.wire_type);
    }
  }
  if (!current_stage) cursor.fail(0, "is not a strategy file, or damaged: current_stage is missing");
  strategy.current_stage = *current_stage;
  return strategy;
}

std::string strategy_to_protobuf(const StrategyFile& strategy) {
  check_strategy(strategy, "strategy file");
  auto strategies = strategy.strategies;
  auto layouts = strategy.layouts;
  std::sort(strategies.begin(), strategies.end(), [](const NodeStrategy& a, const NodeStrategy& b) {
    return std::tie(a.node, a.stage) < std::tie(b.node, b.stage);
  });
  std::sort(layouts.begin(), layouts.end(),
            [](const ParameterLayout& a, const ParameterLayout& b) { return a.name < b.name; });
  std::string bytes;
  append_number_field(bytes, 1, strategy.current_stage);
  for (const auto& item : strategies) append_named_message(bytes, 2, item.node, strategy_message(item));
  for (const auto& item : layouts) append_named_message(bytes, 3, item.name, layout_message(item));
  return bytes;
}

}  // namespace tessera::checkpoint
