#include "tessera/checkpoint/write/checkpoint_config.h"

#include <string_view>

#include "tessera/base/error.h"
#include "tessera/checkpoint/format/encryption.h"

namespace tessera::checkpoint {
namespace {

void require_not_negative(int64_t value, std::string_view field) {
  if (value < 0) throw InvalidArgument("CheckpointConfig: {} must not be negative, got {}", field, value);
}

}  // namespace

CheckpointConfig validated(CheckpointConfig config) {
  const int64_t steps = config.save_checkpoint_steps.value_or(config.save_checkpoint_seconds > 0 ? 0 : 1);
  const int64_t max = config.keep_checkpoint_max.value_or(config.keep_checkpoint_per_n_minutes > 0 ? 0 : 5);
  require_not_negative(steps, "save_checkpoint_steps");
  require_not_negative(config.save_checkpoint_seconds, "save_checkpoint_seconds");
  require_not_negative(max, "keep_checkpoint_max");
  require_not_negative(config.keep_checkpoint_per_n_minutes, "keep_checkpoint_per_n_minutes");
  if (steps == 0 && config.save_checkpoint_seconds == 0 && max == 0 && config.keep_checkpoint_per_n_minutes == 0) {
    throw InvalidArgument(
        "CheckpointConfig: save_checkpoint_steps, save_checkpoint_seconds, keep_checkpoint_max and "
        "keep_checkpoint_per_n_minutes are all 0; at least one must be positive");
  }
  check_encryption_to_write({config.enc_key, config.enc_mode});
  for (const auto& name : config.append_info) {
    if (name != "epoch_num" && name != "step_num") {
      throw InvalidArgument("CheckpointConfig: append_info takes \"epoch_num\" and \"step_num\", got \"{}\"", name);
    }
  }
  if (steps > 0) config.save_checkpoint_seconds = 0;
  if (max > 0) config.keep_checkpoint_per_n_minutes = 0;
  config.save_checkpoint_steps = steps;
  config.keep_checkpoint_max = max == 0 && config.keep_checkpoint_per_n_minutes == 0 ? 1 : max;
  return config;
}

std::vector<std::string> disabled_fields(const CheckpointConfig& config) {
  std::vector<std::string> lines;
  const auto compare = [&](std::string_view name, int64_t time, std::string_view by_number,
                           std::optional<int64_t> number) {
    if (time <= 0 || number.value_or(0) <= 0) return;
    lines.push_back(fmt::format("{} = {} has no effect beside {} = {}: leave one of them out", name, time, by_number,
                                number.value_or(0)));
  };
  compare("save_checkpoint_seconds", config.save_checkpoint_seconds, "save_checkpoint_steps",
          config.save_checkpoint_steps);
  compare("keep_checkpoint_per_n_minutes", config.keep_checkpoint_per_n_minutes, "keep_checkpoint_max",
          config.keep_checkpoint_max);
  return lines;
}

std::vector<Entry> appended_entries(const CheckpointConfig& config, const CheckpointInfo& info) {
  std::vector<Entry> entries;
  for (const auto& name : config.append_info) {
    entries.push_back(Entry::number(name, name == "epoch_num" ? info.epoch : info.step));
  }
  entries.insert(entries.end(), config.append_values.begin(), config.append_values.end());
  return entries;
}

}  // namespace tessera::checkpoint
