#include "tessera/checkpoint/convert/sources.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/checkpoint/convert/staging.h"
#include "tessera/checkpoint/manifest/file_names.h"

namespace tessera::checkpoint {
namespace {

// Of each rank the last by name of those at `position`; an empty map when a rank has none.
std::map<int64_t, std::string> files_at(const std::map<int64_t, std::vector<DirectoryEntry>>& candidates,
                                        const CheckpointPosition& position) {
  std::map<int64_t, std::string> paths;
  for (const auto& [rank, list] : candidates) {
    const auto it = std::find_if(list.begin(), list.end(), [&](const DirectoryEntry& candidate) {
      return !(candidate.position < position) && !(position < candidate.position);
    });
    if (it == list.end()) return {};
    paths[rank] = it->path;
  }
  return paths;
}

bool is_opened(const SourceFiles& sources, const std::string& path) {
  return std::any_of(sources.begin(), sources.end(), [&](const auto& item) { return item.second.path() == path; });
}

}  // namespace

SourceFiles open_files_of_ranks(FileSystem& files, const std::map<int64_t, std::string>& paths) {
  SourceFiles by_rank;
  SourceFiles numbered;
  for (const auto& [rank, path] : paths) {
    auto opened = SourceFile::open_all(files, path);
    by_rank.emplace(rank, opened[0]);
    for (auto& file : opened) {
      if (!is_opened(numbered, file.path())) numbered.emplace(std::ssize(numbered), std::move(file));
    }
  }
  return are_saved_together(numbered) ? numbered : by_rank;
}

SourceFiles open_checkpoint(FileSystem& files, const std::string& path) {
  if (files.is_directory(plain_path(path))) return open_sources(files, path);
  require_its_file(files, path);
  if (!files.exists(path)) throw InvalidArgument("{}: no such file or directory", path);
  auto sources = open_files_of_ranks(files, {{0, path}});
  sources.path = path;
  return sources;
}

bool are_saved_together(const SourceFiles& sources) {
  return std::any_of(sources.begin(), sources.end(), [](const auto& item) { return item.second.is_one_of_several(); });
}

std::vector<std::string> paths_of(const SourceFiles& sources) {
  std::vector<std::string> paths;
  for (const auto& [rank, file] : sources) paths.push_back(file.path());
  return paths;
}

SourceFiles open_sources(FileSystem& files, const std::string& given) {
  const auto directory = plain_path(given);
  if (!files.is_directory(directory)) throw InvalidArgument("{}: is no directory of checkpoints", directory);
  std::map<int64_t, std::vector<DirectoryEntry>> candidates;
  for (const auto& name : files.list(directory)) {
    const auto rank = rank_of_folder(name);
    const auto folder = join_path(directory, name);
    if (rank && files.is_directory(folder)) candidates[*rank] = checkpoints_newest_first(files, folder);
  }
  const bool has_folders = !candidates.empty();
  if (!has_folders) candidates[0] = checkpoints_newest_first(files, directory);
  std::erase_if(candidates, [](const auto& entry) { return entry.second.empty(); });
  if (candidates.empty()) {
    throw InvalidArgument("{}: holds no checkpoint: neither rank_N/*.ckpt nor *.ckpt", directory);
  }
  std::string problem;
  std::string newest;
  for (const DirectoryEntry& first : candidates.begin()->second) {
    const auto paths = files_at(candidates, first.position);
    if (paths.empty()) continue;
    try {
      auto sources = open_files_of_ranks(files, paths);
      const auto& first_file = sources.begin()->second;
      for (const auto& [rank, file] : sources) {
        if (first_file.info() && file.info()) require_same_save(first_file, file);
      }
      sources.path = directory;
      sources.in_folders = has_folders;
      if (!problem.empty()) log_warning("{}; {} is taken instead", problem, paths.begin()->second);
      return sources;
    } catch (const InvalidArgument& error) {
      if (problem.empty()) problem = error.what();
    }
  }
  if (!problem.empty()) throw InvalidArgument(problem);
  for (const auto& [rank, list] : candidates) newest += fmt::format("\n    rank {}: {}", rank, list[0].path);
  throw InvalidArgument("{}: there is no step of which every rank has a checkpoint; the newest are{}", directory,
                        newest);
}

}  // namespace tessera::checkpoint
