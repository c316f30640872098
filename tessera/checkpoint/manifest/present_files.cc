#include "tessera/checkpoint/manifest/present_files.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::checkpoint {
namespace {

// A directory of that name has no bytes of the checkpoint.
bool is_file_there(FileSystem& files, const std::string& path) {
  return files.exists(path) && !files.is_directory(path);
}

std::optional<Manifest> parse_or_none(FileSystem& files, const std::string& manifest_file) {
  if (!files.exists(manifest_file)) return std::nullopt;
  try {
    return read_manifest(files, manifest_file);
  } catch (const InvalidArgument&) {  // whoever verifies it says what is wrong
    return std::nullopt;
  }
}

}  // namespace

bool is_manifest_there(FileSystem& files, const std::string& manifest_file) {
  return files.kind_of(manifest_file) != PathKind::kNothing;
}

bool has_manifest(FileSystem& files, const std::string& path) {
  return is_manifest_there(files, manifest_path(path)) || is_manifest_there(files, pending_manifest_path(path));
}

std::optional<Manifest> readable_manifest(FileSystem& files, const std::string& path) {
  std::optional<Manifest> first;
  for (const auto& manifest_file : {manifest_path(path), pending_manifest_path(path)}) {
    auto manifest = parse_or_none(files, manifest_file);
    if (!manifest) continue;
    const auto it = std::find_if(manifest->files.begin(), manifest->files.end(),
                                 [&](const ManifestFile& file) { return file.name == base_name(path); });
    if (it == manifest->files.end()) continue;
    if (is_file_there(files, path) && it->size_bytes == files.size_bytes(path)) return manifest;
    if (!first) first = std::move(manifest);
  }
  return first;
}

std::vector<std::string> present_files(FileSystem& files, const std::string& path,
                                       const std::optional<Manifest>& manifest) {
  std::vector<std::string> paths;
  if (is_file_there(files, path)) paths.push_back(path);
  if (!manifest) return paths;
  for (const auto& file : manifest->files) {
    const auto other = path_beside(path, file.name);
    if (other == path || !is_file_there(files, other)) continue;
    if (parent_path(files.real_path(other)) == files.real_path(parent_path(path))) paths.push_back(other);
  }
  return paths;
}

int64_t total_size_bytes(FileSystem& files, const std::vector<std::string>& paths) {
  int64_t bytes = 0;
  for (const auto& path : paths) bytes += files.size_bytes(path);
  return bytes;
}

}  // namespace tessera::checkpoint
