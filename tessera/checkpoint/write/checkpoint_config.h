// What a user says of saving: when it is done, in which form, and what is kept. The fields and defaults are those of
// the reference's CheckpointConfig, except that a time that is given alone holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/ckpt_file.h"
#include "tessera/checkpoint/manifest/manifest.h"

namespace tessera::checkpoint {

struct CheckpointConfig {
  // Save after this many steps; 0: by time; nullopt: by time where seconds are given, else after each step.
  std::optional<int64_t> save_checkpoint_steps = std::nullopt;
  int64_t save_checkpoint_seconds = 0;  // after this many seconds; ignored when steps are given
  // Keep this many; 0: by time; nullopt: by time where minutes are given, else 5.
  std::optional<int64_t> keep_checkpoint_max = std::nullopt;
  int64_t keep_checkpoint_per_n_minutes = 0;  // keep one per window of so many minutes; ignored when max is given
  bool integrated_save = true;                // one file of whole values; false: each rank writes its slices
  bool async_save = false;                    // a thread writes a copy while training goes on
  std::vector<std::string> append_info = {};  // some of "epoch_num", "step_num"
  std::vector<Entry> append_values = {};      // further information to append
  std::string enc_key = {};                   // encrypts the files, see encryption.h
  std::string enc_mode = "AES-GCM";
};

// The config with its rules applied, steps and max given: steps > 0 disables seconds, max > 0 disables minutes, and
// where both max and minutes are 0 one checkpoint is kept. Throws InvalidArgument when a field is negative, all four
// are 0, append_info has an unknown name, or enc_key and enc_mode are no key and mode of an encryption.
CheckpointConfig validated(CheckpointConfig config);
// A line for each field that is given and that another given one disables, as a user is to be warned of.
std::vector<std::string> disabled_fields(const CheckpointConfig& config);

// What append_info and append_values ask for: SaveOptions::append_info.
std::vector<Entry> appended_entries(const CheckpointConfig& config, const CheckpointInfo& info);

}  // namespace tessera::checkpoint
