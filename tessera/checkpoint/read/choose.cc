#include "tessera/checkpoint/read/choose.h"

#include <algorithm>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/manifest/present_files.h"
#include "tessera/checkpoint/read/candidates.h"
#include "tessera/checkpoint/read/rank_folders.h"
#include "tessera/checkpoint/read/source_file.h"

namespace tessera::checkpoint {
namespace {

// Of a converted checkpoint, and of others that name no step, it is the file's name.
std::string prefix_of(const std::string& directory, const std::string& file_name,
                      const std::optional<CheckpointName>& name) {
  if (name) return name->prefix;
  const auto prefix = prefix_of_rank(file_name, rank_of_folder(base_name(directory)));
  return prefix.value_or(file_name.substr(0, file_name.size() - kCheckpointSuffix.size()));
}

// What a prefix succeeds, and its number: {"CKP", 2} of CKP_2, {"CKP", 0} of CKP.
std::pair<std::string, int64_t> successor_of_any(const std::string& prefix) {
  const auto underscore = prefix.rfind('_');
  if (underscore == std::string::npos || underscore == 0) return {prefix, 0};
  const auto base = prefix.substr(0, underscore);
  const auto number = successor_of(prefix, base);
  return number ? std::pair(base, *number) : std::pair(prefix, int64_t{0});
}

bool is_part(const Manifest& manifest) {
  if (manifest.info.values_elsewhere > 0) return true;
  return manifest.files.size() == 1 &&
         std::any_of(manifest.tensors.begin(), manifest.tensors.end(), [](const ManifestTensor& tensor) {
           return !tensor.is_text && !tensor.slices.empty() && tensor.slices[0].shape != tensor.shape;
         });
}

// What is wrong with the parts of the other ranks; "" when nothing is.
std::string problem_of_other_ranks(FileSystem& files, const std::string& path, const CheckpointInfo& info) {
  const auto others = other_ranks(files, path, info);
  if (!others.missing.empty())
    return fmt::format("{}: is missing; {} is only one rank's part", others.missing[0], path);
  for (const auto& other : others.paths) {
    const auto verification = verify(files, other);
    if (verification.state == Verified::kNo) return verification.problem;
    if (!verification.manifest) return fmt::format("{}: has no manifest, so nothing shows whether it is whole", other);
    if (!is_same_save(verification.manifest->info, info)) {
      return fmt::format("{}: is of another checkpoint than {}", other, path);
    }
  }
  return "";
}

// `directory` has the candidate, or one of its folders rank_N has it, beside the folders of the other ranks.
FileVerification verify_all_ranks(FileSystem& files, const std::string& directory, const std::string& path) {
  auto verification = verify(files, path);
  const bool is_in_folder = folder_of_checkpoints(files, directory) != directory;
  if (verification.state != Verified::kYes || !is_in_folder || !is_part(*verification.manifest)) return verification;
  verification.problem = problem_of_other_ranks(files, path, verification.manifest->info);
  if (!verification.problem.empty()) verification.state = Verified::kNo;
  return verification;
}

}  // namespace

CheckpointPosition position_of(FileSystem& files, const std::string& path) {
  for (const auto& manifest_file : {manifest_path(path), pending_manifest_path(path)}) {
    if (!files.exists(manifest_file)) continue;
    try {
      const auto info = read_manifest(files, manifest_file).info;
      return {info.epoch, info.step_in_epoch};
    } catch (const Error&) {
    }
  }
  const auto name = parse_checkpoint_name(base_name(path));
  return name ? CheckpointPosition{name->epoch, name->step_in_epoch} : CheckpointPosition{};
}

std::vector<DirectoryEntry> checkpoints_newest_first(FileSystem& files, const std::string& directory,
                                                     const std::string& prefix) {
  struct Ordered {
    DirectoryEntry entry;
    std::pair<std::string, int64_t> successor;
  };
  std::vector<Ordered> found;
  for (const auto& file_name : names_of_checkpoints(files, directory)) {
    const auto name = parse_checkpoint_name(file_name);
    const auto own_prefix = prefix_of(directory, file_name, name);
    const auto number = prefix.empty() ? std::nullopt : successor_of(own_prefix, prefix);
    if (!prefix.empty() && !number) continue;
    const auto path = join_path(directory, file_name);
    found.push_back({{.path = path,
                      .position = position_of(files, path),
                      .has_manifest = has_manifest(files, path),
                      .names_step = name.has_value()},
                     number ? std::pair(prefix, *number) : successor_of_any(own_prefix)});
  }
  std::sort(found.begin(), found.end(), [](const Ordered& a, const Ordered& b) {
    return std::tie(b.entry.position, b.successor, b.entry.path) <
           std::tie(a.entry.position, a.successor, a.entry.path);
  });
  std::vector<DirectoryEntry> entries;
  for (auto& [entry, successor] : found) entries.push_back(std::move(entry));
  return entries;
}

std::string without_manifest(const std::string& path) {
  return fmt::format("{}: is newer, but has no manifest, so nothing shows whether it is whole; to take it, name it",
                     path);
}

std::string Choice::describe() const {
  std::string text;
  for (const auto& skip : skipped) text += fmt::format("skipped {}\n", skip.reason);
  if (!found()) return text + "no usable checkpoint";
  return text + fmt::format("chosen {} (epoch {}, step {}){}", path, position.epoch, position.step_in_epoch,
                            state == Verified::kYes ? "" : ", not verified: it has no manifest");
}

void Choice::require_usable() const {
  if (!found() && !skipped.empty()) refuse_all(skipped);
}

Choice find_newest(FileSystem& files, const std::string& directory, const std::string& prefix) {
  Choice choice;
  if (!files.is_directory(directory)) return choice;
  Candidates candidates(files, directory, prefix);
  const bool found = candidates.choose([&](const DirectoryEntry& entry) {
    const auto verification = verify_all_ranks(files, directory, entry.path);
    if (verification.state == Verified::kNo) throw InvalidArgument(verification.problem);
    choice.state = verification.state;
  });
  if (found) {
    choice.path = candidates.chosen().path;
    choice.position = candidates.chosen().position;
  }
  choice.skipped = candidates.skipped();
  return choice;
}

}  // namespace tessera::checkpoint
