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
  require_not_negative(config.save_checkpoint_steps, "save_checkpoint_steps");
  require_not_negative(config.save_checkpoint_seconds, "save_checkpoint_seconds");
  require_not_negative(config.keep_checkpoint_max, "keep_checkpoint_max");
  require_not_negative(config.keep_checkpoint_per_n_minutes, "keep_checkpoint_per_n_minutes");
  if (config.save_checkpoint_steps == 0 && config.save_checkpoint_seconds == 0 && config.keep_checkpoint_max == 0 &&
      config.keep_checkpoint_per_n_minutes == 0) {
    throw InvalidArgument(
        "CheckpointConfig: save_checkpoint_steps, save_checkpoint_seconds, keep_checkpoint_max and "
        "keep_checkpoint_per_n_minutes are all 0; at least one must be positive");
  }
  if (config.enc_mode != kAesGcm && config.enc_mode != kReferenceAesGcm && config.enc_mode != kAesCbc) {
    throw InvalidArgument("CheckpointConfig: enc_mode must be \"{}\" or \"{}\", got \"{}\"", kAesGcm, kReferenceAesGcm,
                          config.enc_mode);
  }
  check_encryption_to_write({config.enc_key, config.enc_mode});
  for (const auto& name : config.append_info) {
    if (name != "epoch_num" && name != "step_num") {
      throw InvalidArgument("CheckpointConfig: append_info takes \"epoch_num\" and \"step_num\", got \"{}\"", name);
    }
  }
  if (config.save_checkpoint_steps > 0) config.save_checkpoint_seconds = 0;
  if (config.keep_checkpoint_max > 0) config.keep_checkpoint_per_n_minutes = 0;
  if (config.keep_checkpoint_max == 0 && config.keep_checkpoint_per_n_minutes == 0) config.keep_checkpoint_max = 1;
  return config;
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
