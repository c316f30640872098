#include "tessera/checkpoint/manifest/file_names.h"

#include <algorithm>
#include <charconv>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/checkpoint/manifest/manifest.h"
#include "tessera/checkpoint/manifest/present_files.h"

namespace tessera::checkpoint {
namespace {

constexpr std::string_view kRankMark = ".rank_";
// A file of a higher generation is nobody's slices: it could not be followed by the next save's.
constexpr int64_t kMaxGeneration = 1'000'000'000'000'000;

std::optional<int64_t> parse_digits(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || text[0] == '-' || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

void require_prefix(const std::string& prefix) {
  if (prefix.empty() || prefix.find('/') != std::string::npos) {
    throw InvalidArgument("checkpoint prefix must not be empty nor contain '/', got \"{}\"", prefix);
  }
}

}  // namespace

std::string checkpoint_name(const std::string& prefix, int64_t epoch, int64_t step_in_epoch) {
  require_prefix(prefix);
  return fmt::format("{}-{}_{}{}", prefix, epoch, step_in_epoch, kCheckpointSuffix);
}

std::optional<CheckpointName> parse_checkpoint_name(std::string_view file_name) {
  if (!file_name.ends_with(kCheckpointSuffix)) return std::nullopt;
  file_name.remove_suffix(kCheckpointSuffix.size());
  const auto dash = file_name.rfind('-');
  if (dash == std::string_view::npos || dash == 0) return std::nullopt;
  const auto numbers = file_name.substr(dash + 1);
  const auto underscore = numbers.find('_');
  if (underscore == std::string_view::npos) return std::nullopt;
  const auto epoch = parse_digits(numbers.substr(0, underscore));
  const auto step = parse_digits(numbers.substr(underscore + 1));
  if (!epoch || !step) return std::nullopt;
  return CheckpointName{std::string(file_name.substr(0, dash)), *epoch, *step};
}

std::string unused_prefix(FileSystem& files, const std::string& directory, const std::string& prefix) {
  require_prefix(prefix);
  if (!files.is_directory(directory)) return prefix;
  int64_t next = 0;
  for (const auto& file_name : names_of_checkpoints(files, directory)) {
    const auto name = parse_checkpoint_name(file_name);
    if (!name || !name->prefix.starts_with(prefix)) continue;
    const auto rest = std::string_view(name->prefix).substr(prefix.size());
    if (rest.empty()) next = std::max<int64_t>(next, 1);
    if (!rest.starts_with('_')) continue;
    const auto number = parse_digits(rest.substr(1));
    if (number && *number < INT64_MAX) next = std::max(next, *number + 1);
  }
  return next == 0 ? prefix : fmt::format("{}_{}", prefix, next);
}

std::optional<int64_t> successor_of(const std::string& name_prefix, const std::string& prefix) {
  if (name_prefix == prefix) return 0;
  if (!name_prefix.starts_with(prefix + "_")) return std::nullopt;
  const auto number = parse_digits(std::string_view(name_prefix).substr(prefix.size() + 1));
  return number && *number > 0 ? number : std::nullopt;
}

std::string slice_file_path(const std::string& checkpoint_path, int rank, int64_t generation) {
  auto path = fmt::format("{}{}{}", checkpoint_path, kRankMark, rank);
  if (generation > 1) path += fmt::format(".{}", generation);
  return path;
}

std::optional<int64_t> slice_file_generation(const std::string& file_name, const std::string& checkpoint_name) {
  if (!file_name.starts_with(checkpoint_name + std::string(kRankMark))) return std::nullopt;
  const auto rest = std::string_view(file_name).substr(checkpoint_name.size() + kRankMark.size());
  const auto dot = rest.find('.');
  if (!parse_digits(rest.substr(0, dot))) return std::nullopt;
  if (dot == std::string_view::npos) return 1;
  const auto generation = parse_digits(rest.substr(dot + 1));
  return generation && *generation > 1 && *generation < kMaxGeneration ? generation : std::nullopt;
}

std::optional<std::string> checkpoint_of_slice_file(const std::string& path) {
  const auto name = base_name(path);
  const auto mark = name.rfind(kRankMark);
  if (mark == std::string::npos) return std::nullopt;
  const auto checkpoint = name.substr(0, mark);
  if (!checkpoint.ends_with(kCheckpointSuffix) || !slice_file_generation(name, checkpoint)) return std::nullopt;
  return path_beside(path, checkpoint);
}

std::string checkpoint_of_file(FileSystem& files, const std::string& path) {
  const auto checkpoint = checkpoint_of_slice_file(path);
  return checkpoint && (files.exists(*checkpoint) || lacks_its_file(files, *checkpoint)) ? *checkpoint : path;
}

std::string removal_mark_path(const std::string& checkpoint_path) { return checkpoint_path + ".removing"; }

// In this order, because others may remove the checkpoint, or save it anew, between two looks.
bool lacks_its_file(FileSystem& files, const std::string& path) {
  return !files.exists(path) && !files.exists(removal_mark_path(path)) &&
         is_manifest_there(files, manifest_path(path)) && !files.exists(path);
}

std::string missing_file_text(const std::string& path) {
  return fmt::format("{}: is missing; {} describes it", path, manifest_path(path));
}

void require_its_file(FileSystem& files, const std::string& path) {
  if (lacks_its_file(files, path)) throw InvalidArgument(missing_file_text(path));
}

std::vector<std::string> names_of_checkpoints(FileSystem& files, const std::string& directory) {
  const auto manifest_suffix = manifest_path(std::string(kCheckpointSuffix));
  std::vector<std::string> names;
  for (const auto& file_name : files.list(directory)) {
    if (file_name.ends_with(kCheckpointSuffix)) names.push_back(file_name);
    if (!file_name.ends_with(manifest_suffix)) continue;
    auto name = file_name.substr(0, file_name.size() - manifest_suffix.size() + kCheckpointSuffix.size());
    if (lacks_its_file(files, join_path(directory, name))) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());  // a link that leads nowhere is listed, too
  return names;
}

}  // namespace tessera::checkpoint
