#include "tessera/checkpoint/read/list.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/checkpoint/format/ckpt_path.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/manifest/present_files.h"
#include "tessera/checkpoint/read/source_file.h"
#include "tessera/checkpoint/strategy/strategy_file.h"

namespace tessera::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) { return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"; }

// Whether a directory has the name of a checkpoint's file, as the manifest beside it shows; by its name alone it may be
// anybody's.
bool is_directory_for_file(FileSystem& files, const std::string& path) {
  return path.ends_with(kCheckpointSuffix) && files.is_directory(path) && has_manifest(files, path);
}

std::vector<std::string> files_below(FileSystem& files, const std::string& path) {
  if (lacks_its_file(files, path) || is_directory_for_file(files, path)) return {path};
  if (!files.exists(path)) throw InvalidArgument("{}: no such file or directory", path);
  if (!files.is_directory(path)) {
    const auto checkpoint = path.substr(0, path.rfind('.'));
    if (checkpoint.ends_with(kCheckpointSuffix) && path == manifest_path(checkpoint)) {
      throw InvalidArgument("{}: is a manifest; name the checkpoint that it describes, {}", path, checkpoint);
    }
    return {checkpoint_of_file(files, path)};
  }
  std::vector<std::pair<int64_t, std::string>> folders = {{-1, path}};
  for (const auto& name : files.list(path)) {
    const auto rank = rank_of_folder(name);
    if (const auto inner = join_path(path, name); rank && files.is_directory(inner)) folders.emplace_back(*rank, inner);
  }
  std::sort(folders.begin(), folders.end());
  std::vector<std::string> found;
  for (const auto& [rank, folder] : folders) {
    for (const auto& name : names_of_checkpoints(files, folder)) {
      auto file = join_path(folder, name);
      if (!files.is_directory(file) || is_directory_for_file(files, file)) found.push_back(std::move(file));
    }
  }
  return found;
}

bool is_strategy_file(FileSystem& files, const std::string& path) {
  try {
    const auto strategy = read_strategy_file(files, path);
    return !strategy.layouts.empty() || !strategy.strategies.empty();
  } catch (const Error&) {  // a pipe, a device, or a disk that does not give it
    return false;
  }
}

// Of a file that is there, but not what it should be, as much as can be said without opening it.
std::vector<std::string> files_of_broken(FileSystem& files, const std::string& path) {
  try {
    return present_files(files, path, readable_manifest(files, path));
  } catch (const Error&) {
    return {path};
  }
}

ListedFile look_at(FileSystem& files, const std::string& path) {
  ListedFile listed{.path = path};
  std::vector<std::string> paths;
  try {
    std::set<std::string> names;
    for (const auto& file : SourceFile::open_all(files, path)) {
      for (const auto& tensor : file.tensors()) {
        names.insert(tensor.name);
        if (!tensor.is_text) listed.num_elements += tensor.shape.num_elements();
      }
      paths.push_back(file.path());
      listed.holds_parts = listed.holds_parts || file.holds_parts();
      listed.info = file.info();
    }
    listed.num_values = std::ssize(names);
  } catch (const NoRoom&) {
    throw;
  } catch (const Error& error) {
    listed.is_strategy = is_strategy_file(files, path);
    if (!listed.is_strategy) listed.problem = error.what();
    paths = files_of_broken(files, path);
  }
  listed.num_files = std::ssize(paths);
  listed.size_bytes = total_size_bytes(files, paths);
  return listed;
}

std::string remark(const ListedFile& file) {
  if (file.is_strategy) return "strategy file";
  if (!file.problem.empty()) return "BROKEN: " + file.problem;
  if (!file.info) return "no manifest";
  if (file.num_files > 1) return fmt::format("{} files of {} ranks", file.num_files, file.info->world_size);
  return file.holds_parts ? fmt::format("part of {} ranks", file.info->world_size) : "";
}

std::string state_text(const VerifiedFile& file) {
  if (file.is_unreadable) return "unreadable";
  return file.state == Verified::kYes ? "verified" : file.state == Verified::kNoManifest ? "no manifest" : "damaged";
}

}  // namespace

std::vector<ListedFile> list_checkpoints(FileSystem& files, const std::string& path) {
  std::vector<ListedFile> list;
  for (const auto& file : files_below(files, path)) list.push_back(look_at(files, file));
  return list;
}

std::string list_table(const std::vector<ListedFile>& list) {
  if (list.empty()) return "no checkpoints: neither *.ckpt nor rank_N/*.ckpt\n";
  size_t width = 4;
  for (const auto& file : list) width = std::max(width, file.path.size());
  std::string text = fmt::format("{:{}}  {:>10}  {:>7}  {:>13}  {:>6}  {:>8}\n", "file", width, "size", "values",
                                 "elements", "epoch", "step");
  for (const auto& file : list) {
    const bool is_read = !file.is_strategy && file.problem.empty();
    const auto number = [](bool known, int64_t value) { return known ? fmt::format("{}", value) : std::string("-"); };
    auto line =
        fmt::format("{:{}}  {:>10}  {:>7}  {:>13}  {:>6}  {:>8}  {}", file.path, width, format_bytes(file.size_bytes),
                    number(is_read, file.num_values), number(is_read, file.num_elements),
                    number(file.info.has_value(), file.info ? file.info->epoch : 0),
                    number(file.info.has_value(), file.info ? file.info->step : 0), remark(file));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string list_json(const std::vector<ListedFile>& list) {
  Json json{{"files", Json::array()}};
  for (const auto& file : list) {
    Json one{{"file", file.path}, {"size_bytes", file.size_bytes}};
    one["kind"] = file.is_strategy ? "strategy" : file.problem.empty() ? "checkpoint" : "broken";
    if (!file.problem.empty()) one["problem"] = file.problem;
    if (!file.is_strategy && file.problem.empty()) {
      one["num_values"] = file.num_values;
      one["num_elements"] = file.num_elements;
      one["num_files"] = file.num_files;
      one["holds_parts"] = file.holds_parts;
      one["has_manifest"] = file.info.has_value();
    }
    if (file.info) {
      one["epoch"] = file.info->epoch;
      one["step_in_epoch"] = file.info->step_in_epoch;
      one["step"] = file.info->step;
      one["world_size"] = file.info->world_size;
    }
    json["files"].push_back(std::move(one));
  }
  return dump(json);
}

std::string files_text(const std::vector<std::string>& paths) {
  if (paths.size() == 1) return paths.front();
  return fmt::format("{} to {} ({} files)", paths.front(), paths.back(), paths.size());
}

std::vector<VerifiedFile> verify_checkpoints(FileSystem& files, const std::string& path) {
  std::vector<VerifiedFile> list;
  for (const auto& file : files_below(files, path)) {
    VerifiedFile verified{.path = file, .state = Verified::kNo};
    try {
      auto verification = verify(files, file);
      verified = {file, verification.state, std::move(verification.problem)};
    } catch (const NoRoom&) {
      throw;
    } catch (const IoError& error) {  // one that cannot be read hides none of the others
      verified.problem = error.what();
      verified.is_unreadable = true;
    }
    if (verified.state == Verified::kNo && is_strategy_file(files, file)) continue;
    list.push_back(std::move(verified));
  }
  return list;
}

std::string verify_table(const std::vector<VerifiedFile>& list) {
  std::string text;
  std::array<int, 3> counts{};
  int num_unreadable = 0;
  for (const auto& file : list) {
    ++(file.is_unreadable ? num_unreadable : counts[static_cast<size_t>(file.state)]);
    const char* const bad = file.is_unreadable ? "UNREADABLE" : "DAMAGED";
    text += fmt::format("{:<11}  {}\n", file.state == Verified::kNo ? bad : state_text(file),
                        file.state == Verified::kNo ? file.problem : file.path);
  }
  return text + fmt::format("{} verified, {} without a manifest, {} damaged{}\n", counts[0], counts[1], counts[2],
                            num_unreadable > 0 ? fmt::format(", {} unreadable", num_unreadable) : "");
}

std::string verify_json(const std::vector<VerifiedFile>& list) {
  Json json{{"files", Json::array()}};
  for (const auto& file : list) {
    Json one{{"file", file.path}, {"state", state_text(file)}};
    if (!file.problem.empty()) one["problem"] = file.problem;
    json["files"].push_back(std::move(one));
  }
  return dump(json);
}

std::string nothing_to_verify(FileSystem& files, const std::string& path) {
  if (files.is_directory(path)) {
    return fmt::format("{}: is a directory without checkpoints: neither *.ckpt nor rank_N/*.ckpt is there", path);
  }
  return fmt::format("{}: is a strategy file; name a checkpoint's .ckpt file, or a directory with some", path);
}

}  // namespace tessera::checkpoint
