// open_newest() takes the newest checkpoint of a directory, for tests.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "tessera/checkpoint/read/candidates.h"
#include "tessera/checkpoint/resume/global_checkpoint.h"

namespace tessera::checkpoint {

// The newest checkpoint of a directory that can be opened, for a job of this name; says what was passed over.
inline GlobalCheckpoint open_newest(FileSystem& files, const std::string& directory, const std::string& job_name = "") {
  Candidates candidates(files, directory);
  std::optional<GlobalCheckpoint> opened;
  const bool found = candidates.choose([&](const DirectoryEntry& entry) {
    opened = GlobalCheckpoint::open(files, entry.path, job_name);
    opened->require_all_files();
  });
  if (!found) candidates.give_up();
  candidates.warn();
  return std::move(*opened);
}

}  // namespace tessera::checkpoint
