#include "tessera/checkpoint/write/retention.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/manifest/present_files.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/checkpoint/write/removal.h"

namespace tessera::checkpoint {

Retention::Retention(FileSystem& files, std::string directory, std::string prefix, const CheckpointConfig& config,
                     RetainedTraining training)
    : files_(files),
      directory_(std::move(directory)),
      prefix_(std::move(prefix)),
      training_(std::move(training)),
      keep_max_(config.keep_checkpoint_max.value_or(0)),
      window_ms_(config.keep_checkpoint_per_n_minutes * 60'000) {}

// Reading a checkpoint back costs as much as it is long, so each is verified once; its sizes are looked at every time.
void Retention::look_at(const std::string& name, int64_t size) {
  const auto path = join_path(directory_, name);
  auto& known = known_[name];
  if (known.is_verified && known.size_bytes == size) return;
  auto verification = verify(files_, path);
  known.is_verified = verification.state == Verified::kYes;
  known.size_bytes = size;
  if (verification.manifest) known.info = std::move(verification.manifest->info);
}

// Which run of the training saves under this prefix, counted from 0; nullopt where none does.
std::optional<int64_t> Retention::run_of(const std::string& prefix) const {
  if (!training_.base_prefix.empty()) return successor_of(prefix, training_.base_prefix);
  return prefix == prefix_ ? std::optional<int64_t>(0) : std::nullopt;
}

// By its manifest alone, which is enough to know what must not be touched.
bool Retention::is_of_training(const std::string& checkpoint) const {
  const auto path = join_path(directory_, checkpoint);
  for (const auto& manifest_file : {manifest_path(path), pending_manifest_path(path)}) {
    if (!files_.exists(manifest_file)) continue;
    try {
      const auto info = read_manifest(files_, manifest_file).info;
      if (!info.job_name.empty() && !training_.job_name.empty()) return info.job_name == training_.job_name;
      return !info.training_id.empty() && info.training_id == training_.training_id;
    } catch (const Error&) {  // of a training that nobody knows
    }
  }
  return false;
}

// Earlier runs are of the training by what their manifests say. Where a crash left no manifest, what it left goes with
// a run all of whose checkpoints are the training's.
void Retention::keep_own(FilesOfCheckpoints& checkpoints) const {
  struct Run {
    bool has_own = false;
    bool has_others = false;
  };
  std::map<std::string, Run> runs;
  std::vector<std::string> others;
  for (const auto& [name, file_names] : checkpoints) {
    const auto prefix = parse_checkpoint_name(name)->prefix;
    if (prefix == prefix_ || file_names.front() != name) continue;
    const auto known = known_.find(name);
    const bool is_own = (known != known_.end() && known->second.is_verified) || is_of_training(name);
    (is_own ? runs[prefix].has_own : runs[prefix].has_others) = true;
    if (!is_own) others.push_back(name);
  }
  for (const auto& name : others) checkpoints.erase(name);
  std::erase_if(checkpoints, [&](const auto& item) {
    const auto prefix = parse_checkpoint_name(item.first)->prefix;
    if (prefix == prefix_ || item.second.front() == item.first) return false;
    if (is_of_training(item.first)) return false;
    const auto& run = runs[prefix];
    return !run.has_own || run.has_others;
  });
}

Retention::FilesOfCheckpoints Retention::files_of_runs() const {
  auto checkpoints = files_of_checkpoints(files_, directory_);
  std::erase_if(checkpoints, [&](const auto& item) {
    return !run_of(parse_checkpoint_name(item.first)->prefix) ||
           is_being_saved(files_, directory_, item.first, item.second);
  });
  return checkpoints;
}

Retention::FilesOfCheckpoints Retention::take_remains(FilesOfCheckpoints& checkpoints) {
  FilesOfCheckpoints remains;
  for (auto it = checkpoints.begin(); it != checkpoints.end();) {
    const bool is_whole = it->second.front() == it->first;
    if (!is_whole) remains.insert(*it);
    it = is_whole ? std::next(it) : checkpoints.erase(it);
  }
  return remains;
}

Retention::Age Retention::age_of(const std::string& checkpoint, const CheckpointPosition& position) const {
  const auto run = run_of(parse_checkpoint_name(checkpoint)->prefix).value_or(0);
  return {run, position.epoch, position.step_in_epoch};
}

// A manifest gets its name when the checkpoint is whole: what has none is of a save that was not committed. What is
// left of a whole one may be of use to whoever has the missing file, as long as the checkpoint itself would be kept.
Retention::FilesOfCheckpoints Retention::remains_to_remove(const FilesOfCheckpoints& remains,
                                                           const std::vector<Age>& verified) const {
  const auto enough = std::max<int64_t>(1, keep_max_);
  FilesOfCheckpoints found;
  for (const auto& [name, file_names] : remains) {
    const auto path = join_path(directory_, name);
    if (is_manifest_there(files_, manifest_path(path))) {
      const auto age = age_of(name, position_of(files_, path));
      const auto newer = std::count_if(verified.begin(), verified.end(), [&](const Age& other) { return age < other; });
      if (newer < enough) continue;
      log_warning("{}; what is left of it is removed, for {} newer one{} whole", missing_file_text(path), newer,
                  newer == 1 ? " is" : "s are");
    }
    found.emplace(name, file_names);
  }
  return found;
}

void Retention::finish_removals() {
  try {
    auto checkpoints = files_of_runs();
    checkpoint::finish_removals(files_, directory_, checkpoints);
  } catch (const IoError& error) {
    log_warning("{}", error.what());
  }
}

std::vector<std::string> Retention::apply() {
  Attempts attempts;
  auto checkpoints = files_of_runs();
  attempts([&] { checkpoint::finish_removals(files_, directory_, checkpoints); });
  keep_own(checkpoints);
  const auto remains = take_remains(checkpoints);
  std::vector<std::string> names;
  for (const auto& [name, file_names] : checkpoints) names.push_back(name);
  std::erase_if(known_, [&](const auto& item) { return !std::binary_search(names.begin(), names.end(), item.first); });
  for (const auto& [name, file_names] : checkpoints) {
    int64_t size = 0;
    for (const auto& file_name : file_names) size += files_.size_bytes(join_path(directory_, file_name));
    look_at(name, size);
  }
  std::erase_if(names, [&](const auto& name) { return !known_[name].is_verified; });
  const auto age = [&](const std::string& name) {
    const auto& info = known_[name].info;
    return age_of(name, {info.epoch, info.step_in_epoch});
  };
  std::sort(names.begin(), names.end(), [&](const auto& a, const auto& b) { return age(a) < age(b); });
  std::vector<Age> ages;
  for (const auto& name : names) ages.push_back(age(name));
  attempts([&] { remove_leftovers(files_, directory_, remains_to_remove(remains, ages)); });

  std::vector<std::string> removed;
  if (keep_max_ > 0) {
    const auto excess = std::max<int64_t>(0, std::ssize(names) - keep_max_);
    removed.assign(names.begin(), names.begin() + excess);
  } else {
    for (size_t i = 1, window = 0; i + 1 < names.size(); ++i) {
      if (known_[names[i]].info.saved_at_ms - known_[names[window]].info.saved_at_ms < window_ms_) {
        removed.push_back(names[i]);
      } else {
        window = i;
      }
    }
  }
  FilesOfCheckpoints old;
  for (const auto& name : removed) {
    old.insert(*checkpoints.find(name));
    known_.erase(name);
  }
  attempts([&] { remove_checkpoints(files_, directory_, old); });
  attempts.finish();
  return removed;
}

void Retention::tidy() {
  try {
    apply();
  } catch (const IoError& error) {
    log_warning("old checkpoints in \"{}\" are not all removed, and will be tried again with the next save: {}",
                directory_, error.what());
  }
}

}  // namespace tessera::checkpoint
