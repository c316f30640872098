#include "tessera/checkpoint/write/best_retention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/manifest/manifest.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/checkpoint/write/removal.h"

namespace tessera::checkpoint {
namespace {

// The number of an entry in any of a checkpoint's files; NaN where there is none.
double number_in(const std::vector<CkptFile>& opened, const std::string& entry) {
  for (const auto& file : opened) {
    for (const auto& stored : file.entries()) {
      const bool is_it = stored.name == entry && !stored.is_text && stored.shape.num_elements() == 1;
      if (is_it) return stored.read().item();
    }
  }
  return std::nan("");
}

}  // namespace

bool BestList::takes(double score, int64_t step) const {
  if (!std::isfinite(score)) return false;
  const ScoredCheckpoint* last = nullptr;
  int64_t others = 0;
  for (const auto& checkpoint : checkpoints_) {
    if (checkpoint.step == step) continue;
    last = &checkpoint;
    ++others;
  }
  if (others < max_) return true;
  return falls_ ? score < last->score - min_delta_ : score > last->score + min_delta_;
}

void BestList::add(ScoredCheckpoint checkpoint) {
  std::erase_if(checkpoints_, [&](const auto& other) { return other.step == checkpoint.step; });
  checkpoints_.push_back(std::move(checkpoint));
  std::sort(checkpoints_.begin(), checkpoints_.end(), [&](const auto& a, const auto& b) {
    if (a.score != b.score) return falls_ ? a.score < b.score : a.score > b.score;
    return a.step < b.step;
  });
  if (std::ssize(checkpoints_) > max_) checkpoints_.resize(static_cast<size_t>(max_));
}

BestRetention::BestRetention(FileSystem& files, std::string directory, std::string prefix, std::string training_id,
                             std::string entry)
    : files_(files),
      directory_(std::move(directory)),
      prefix_(std::move(prefix)),
      training_id_(std::move(training_id)),
      entry_(std::move(entry)) {}

bool BestRetention::is_of_prefix(const std::string& name) const {
  const auto parsed = parse_checkpoint_name(name);
  return parsed && successor_of(parsed->prefix, prefix_).has_value();
}

// By its manifest alone: the checkpoints of others are not read.
bool BestRetention::is_of_training(const std::string& path) const {
  for (const auto& manifest_file : {manifest_path(path), pending_manifest_path(path)}) {
    if (!files_.exists(manifest_file)) continue;
    try {
      const auto info = read_manifest(files_, manifest_file).info;
      if (info.training_id == training_id_) return true;
    } catch (const Error&) {  // of a training that nobody knows
    }
  }
  return false;
}

std::vector<ScoredCheckpoint> BestRetention::find() {
  seen_.clear();
  if (!files_.exists(directory_)) return {};
  auto checkpoints = files_of_checkpoints(files_, directory_);
  std::erase_if(checkpoints, [&](const auto& item) {
    return !is_of_prefix(item.first) || is_being_saved(files_, directory_, item.first, item.second);
  });
  try {
    finish_removals(files_, directory_, checkpoints);
  } catch (const IoError& error) {
    log_warning("{}", error.what());
  }
  std::vector<ScoredCheckpoint> found;
  for (const auto& [name, file_names] : checkpoints) {
    const auto path = join_path(directory_, name);
    if (file_names.front() != name || !is_of_training(path)) continue;
    try {
      const auto verification = verify(files_, path);
      if (verification.state != Verified::kYes) throw InvalidArgument("{}", verification.problem);
      if (verification.manifest->info.training_id != training_id_) continue;
      const double score = number_in(open_files(files_, path, verification.manifest), entry_);
      if (!std::isfinite(score)) continue;
      found.push_back({name, verification.manifest->info.step, score});
      seen_.insert(name);
    } catch (const Error& error) {
      log_warning("{} is not counted among the best checkpoints, and stays: {}", path, error.what());
    }
  }
  return found;
}

std::vector<std::string> BestRetention::keep_only(std::span<const ScoredCheckpoint> best) {
  for (const auto& checkpoint : best) seen_.insert(checkpoint.name);
  FilesOfCheckpoints old;
  std::vector<std::string> removed;
  for (auto& [name, file_names] : files_of_checkpoints(files_, directory_)) {
    const bool is_best = std::ranges::any_of(best, [&](const auto& checkpoint) { return checkpoint.name == name; });
    if (is_best || !seen_.contains(name) || file_names.front() != name) continue;
    removed.push_back(name);
    old.emplace(name, std::move(file_names));
  }
  remove_checkpoints(files_, directory_, old);
  for (const auto& name : removed) seen_.erase(name);
  return removed;
}

void BestRetention::tidy(std::span<const ScoredCheckpoint> best) {
  try {
    keep_only(best);
  } catch (const IoError& error) {
    log_warning(
        "checkpoints in \"{}\" that are not among the best any more are not all removed, and will be tried again with "
        "the next save: {}",
        directory_, error.what());
  }
}

}  // namespace tessera::checkpoint
