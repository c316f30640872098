#include "tessera/checkpoint/read/rank_folders.h"

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/read/source_file.h"

namespace tessera::checkpoint {
namespace {

std::string in_folder_of(int64_t rank, const std::string& directory, const std::string& file_name) {
  return join_path(join_path(directory, fmt::format("rank_{}", rank)), file_name);
}

// What the rank's file is called where names end in the number of their folder, as `path` does.
std::optional<std::string> numbered_file(const std::string& path, int64_t rank) {
  const auto folder = parent_path(path);
  const auto prefix = prefix_of_rank(base_name(path), rank_of_folder(base_name(folder)));
  if (!prefix) return std::nullopt;
  return in_folder_of(rank, parent_path(folder), fmt::format("{}{}{}", *prefix, rank, kCheckpointSuffix));
}

bool is_of_save(FileSystem& files, const std::string& path, const CheckpointInfo& info) {
  try {
    const auto its = SourceFile::open(files, path).info();
    return its && is_same_save(*its, info);
  } catch (const InvalidArgument&) {
    return false;
  }
}

}  // namespace

bool is_same_save(const CheckpointInfo& a, const CheckpointInfo& b) {
  return a.epoch == b.epoch && a.step == b.step && a.world_size == b.world_size && a.job_id == b.job_id;
}

std::string folder_of_checkpoints(FileSystem& files, const std::string& directory) {
  return folders_of_checkpoints(files, directory).back();
}

std::vector<std::string> folders_of_checkpoints(FileSystem& files, const std::string& directory) {
  std::map<int64_t, std::string> folders;
  for (const auto& name : files.list(directory)) {
    const auto folder = join_path(directory, name);
    if (const auto rank = rank_of_folder(name); rank && files.is_directory(folder)) folders.emplace(*rank, folder);
  }
  std::vector<std::string> found;
  for (const auto& [rank, folder] : folders) {
    found.push_back(folder);
    const auto names = files.list(folder);
    if (std::any_of(names.begin(), names.end(), [](const auto& name) { return name.ends_with(kCheckpointSuffix); })) {
      return found;
    }
  }
  found.push_back(directory);
  return found;
}

std::optional<std::string> prefix_of_rank(const std::string& file_name, std::optional<int64_t> rank) {
  if (!rank) return std::nullopt;
  const auto ending = fmt::format("{}{}", *rank, kCheckpointSuffix);
  if (!file_name.ends_with(ending)) return std::nullopt;
  return file_name.substr(0, file_name.size() - ending.size());
}

OtherRanks other_ranks(FileSystem& files, const std::string& path, const CheckpointInfo& info) {
  const auto folder = parent_path(path);
  const auto name = base_name(path);
  const auto own = rank_of_folder(base_name(folder));
  if (!own) {
    throw InvalidArgument(
        "{}: is one rank's part of a checkpoint; to be read together they must lie in folders rank_0 to rank_{}", path,
        info.world_size - 1);
  }
  // PREFIX-1_4.ckpt and PREFIX-1_5.ckpt are of two steps, unless their manifests say that they are of one.
  const bool names_step = parse_checkpoint_name(name).has_value();
  OtherRanks others;
  for (int64_t rank = 0; rank < info.world_size; ++rank) {
    if (rank == *own) continue;
    const auto same = in_folder_of(rank, parent_path(folder), name);
    const auto numbered = numbered_file(path, rank);
    if (files.exists(same)) {
      others.paths.push_back(same);
    } else if (numbered && files.exists(*numbered) && (!names_step || is_of_save(files, *numbered, info))) {
      others.paths.push_back(*numbered);
    } else {
      others.missing.push_back(numbered && !names_step ? *numbered : same);
    }
  }
  return others;
}

std::optional<std::string> first_rank_instead_of(FileSystem& files, const std::string& path) {
  const auto folder = parent_path(path);
  if (!rank_of_folder(base_name(folder))) return std::nullopt;
  const auto same = in_folder_of(0, parent_path(folder), base_name(path));
  if (same != path && files.exists(same)) return same;
  if (parse_checkpoint_name(base_name(path))) return std::nullopt;  // PREFIX-1_0.ckpt is of another step
  const auto numbered = numbered_file(path, 0);
  if (numbered && *numbered != path && files.exists(*numbered)) return numbered;
  return std::nullopt;
}

}  // namespace tessera::checkpoint
