#include "tessera/checkpoint/write/removal.h"

#include <algorithm>
#include <utility>

#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/manifest/manifest.h"
#include "tessera/checkpoint/write/commit.h"

namespace tessera::checkpoint {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Of all checkpoints the files that `which` picks, durably. Takes a checkpoint of which one file cannot be removed out
// of `checkpoints`.
void remove_files(FileSystem& files, const std::string& directory, FilesOfCheckpoints& checkpoints, Attempts& attempts,
                  FunctionRef<bool(const std::string& checkpoint, const std::string& file)> which) {
  bool any = false;
  std::erase_if(checkpoints, [&](const auto& item) {
    const auto& [checkpoint, names] = item;
    return !attempts([&] {
      for (const auto& name : names) {
        if (!which(checkpoint, name)) continue;
        files.remove(join_path(directory, name));
        any = true;
      }
    });
  });
  if (any) files.sync_directory(directory);
}

// Steps 2 and 3.
void remove_marked(FileSystem& files, const std::string& directory, FilesOfCheckpoints checkpoints,
                   Attempts& attempts) {
  const auto is_mark = [](const std::string& checkpoint, const std::string& name) {
    return name == removal_mark_path(checkpoint);
  };
  remove_files(files, directory, checkpoints, attempts,
               [&](const std::string& checkpoint, const std::string& name) { return !is_mark(checkpoint, name); });
  remove_files(files, directory, checkpoints, attempts, is_mark);
}

}  // namespace

FilesOfCheckpoints files_of_checkpoints(FileSystem& files, const std::string& directory) {
  FilesOfCheckpoints found;
  for (const auto& name : files.list(directory)) {
    const auto end = name.find(kCheckpointSuffix);
    if (end == std::string::npos) continue;
    const auto checkpoint = name.substr(0, end + kCheckpointSuffix.size());
    if (!parse_checkpoint_name(checkpoint)) continue;
    const bool belongs = name == checkpoint || name == manifest_path(checkpoint) ||
                         name == pending_manifest_path(checkpoint) || name == temporary_path(checkpoint) ||
                         name == saving_lock_path(checkpoint) || name == removal_mark_path(checkpoint) ||
                         slice_file_generation(name, checkpoint);
    if (belongs) found[checkpoint].push_back(name);
  }
  return found;
}

void remove_checkpoints(FileSystem& files, const std::string& directory, const FilesOfCheckpoints& checkpoints) {
  if (checkpoints.empty()) return;
  Attempts attempts;
  FilesOfCheckpoints marked;
  for (const auto& [checkpoint, names] : checkpoints) {
    attempts([&, &checkpoint = checkpoint, &names = names] {
      files.rename(join_path(directory, checkpoint), join_path(directory, removal_mark_path(checkpoint)));
      marked[checkpoint] = names;
      marked[checkpoint].front() = removal_mark_path(checkpoint);
    });
  }
  files.sync_directory(directory);
  remove_marked(files, directory, std::move(marked), attempts);
  attempts.finish();
}

void finish_removals(FileSystem& files, const std::string& directory, FilesOfCheckpoints& checkpoints) {
  FilesOfCheckpoints begun;
  for (auto it = checkpoints.begin(); it != checkpoints.end();) {
    auto& [checkpoint, names] = *it;
    const auto mark = removal_mark_path(checkpoint);
    const bool is_begun = contains(names, mark);
    const bool is_in_use = names.front() == checkpoint;
    if (is_begun) begun[checkpoint] = is_in_use ? std::vector{mark} : names;
    std::erase(names, mark);
    it = is_begun && !is_in_use ? checkpoints.erase(it) : std::next(it);
  }
  Attempts attempts;
  remove_marked(files, directory, std::move(begun), attempts);
  attempts.finish();
}

bool is_being_saved(FileSystem& files, const std::string& directory, const std::string& checkpoint,
                    const std::vector<std::string>& names) {
  const auto lock = saving_lock_path(checkpoint);
  try {
    return contains(names, lock) && files.try_lock(join_path(directory, lock)) == nullptr;
  } catch (const IoError&) {  // of another user, who holds nobody up
    return false;
  }
}

void remove_leftovers(FileSystem& files, const std::string& directory, FilesOfCheckpoints checkpoints) {
  const auto is_manifest = [](const std::string& checkpoint, const std::string& name) {
    return name == manifest_path(checkpoint) || name == pending_manifest_path(checkpoint);
  };
  Attempts attempts;
  remove_files(files, directory, checkpoints, attempts,
               [&](const std::string& checkpoint, const std::string& name) { return !is_manifest(checkpoint, name); });
  remove_files(files, directory, checkpoints, attempts, is_manifest);
  attempts.finish();
}

}  // namespace tessera::checkpoint
