#include "tessera/checkpoint/resume/candidates.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/checkpoint/read/rank_folders.h"
#include "tessera/checkpoint/read/source_file.h"

namespace tessera::checkpoint {

Candidates::Candidates(FileSystem& files, const std::string& path) : is_of_directory_(files.is_directory(path)) {
  if (!is_of_directory_) {
    list_.push_back({.path = path});
    return;
  }
  list_ = checkpoints_newest_first(files, folder_of_checkpoints(files, path));
  if (list_.empty()) throw InvalidArgument("{}: holds no checkpoint: neither rank_N/*.ckpt nor *.ckpt", path);
  std::stable_partition(list_.begin(), list_.end(), [](const DirectoryEntry& entry) { return entry.has_manifest; });
}

void Candidates::pass_over(const std::string& reason) {
  if (!has_next()) give_up(reason);
  reasons_.push_back(reason);
  ++present_;
}

void Candidates::give_up(const std::string& reason) const {
  throw InvalidArgument(reasons_.empty() ? reason : reasons_.front());
}

void Candidates::warn() const {
  for (const auto& reason : reasons_) log_warning("{}; {} is taken instead", reason, path());
  const auto& taken = list_[present_];
  for (const auto& entry : list_) {
    if (!taken.has_manifest || entry.has_manifest || !(taken.position < entry.position)) continue;
    log_warning("{}; {} is taken instead", without_manifest(entry.path), path());
  }
}

}  // namespace tessera::checkpoint
