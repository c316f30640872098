// What a user says of saving: when it is done, in which form, and what is kept. The fields and defaults are those of
// the reference's CheckpointConfig.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/ckpt_file.h"
#include "tessera/checkpoint/manifest/manifest.h"

namespace tessera::checkpoint {

struct CheckpointConfig {
  int64_t save_checkpoint_steps = 1;          // save after this many steps; 0: by time
  int64_t save_checkpoint_seconds = 0;        // after this many seconds; ignored when steps is set
  int64_t keep_checkpoint_max = 5;            // keep this many; 0: by time
  int64_t keep_checkpoint_per_n_minutes = 0;  // keep one per window of so many minutes; ignored when max is set
  bool integrated_save = true;                // one file of whole values; false: each rank writes its slices
  bool async_save = false;                    // a thread writes a copy while training goes on
  std::vector<std::string> append_info = {};  // some of "epoch_num", "step_num"
  std::vector<Entry> append_values = {};      // further information to append
  std::string enc_key = {};                   // encrypts the files, see encryption.h
  std::string enc_mode = "AES-GCM";
};

// The config with its rules applied: steps > 0 disables seconds, max > 0 disables minutes, and where both max and
// minutes are 0 one checkpoint is kept. Throws InvalidArgument when a field is negative, all four are 0, append_info
// has an unknown name, or enc_key and enc_mode are no key and mode of an encryption.
CheckpointConfig validated(CheckpointConfig config);

// What append_info and append_values ask for: SaveOptions::append_info.
std::vector<Entry> appended_entries(const CheckpointConfig& config, const CheckpointInfo& info);

}  // namespace tessera::checkpoint
