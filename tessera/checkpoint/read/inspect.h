// What is in a checkpoint, for people and for programs: `tessera ckpt inspect FILE [--json]`.
#pragma once

#include <string>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/read/load.h"

namespace tessera::checkpoint {

struct Inspection {
  Verified state = Verified::kNo;
  std::string problem;  // "" unless state is kNo
  std::string text;     // ends with a new line
};

// A table of the values (name, type, size, CRC-32C, and the value of 0-d ones) under what the manifest says, and the
// size of all files that it names, as `tessera ckpt ls` has it. `path` may be any of these files. A damaged checkpoint
// is shown as far as it can be read, file by file, with the damaged tensors marked. Throws IoError when the file cannot
// be read.
Inspection inspect_table(FileSystem& files, const std::string& path);
// The same as one JSON object; docs/checkpoint_format.md lists its members.
Inspection inspect_json(FileSystem& files, const std::string& path);

}  // namespace tessera::checkpoint
