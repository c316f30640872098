// Which files of a checkpoint are there, whole or damaged: for those who show it to people. Internal to checkpoint/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/manifest/manifest.h"

namespace tessera::checkpoint {

// Whether something has the name of a manifest, be it a link that leads to nothing: what is there describes a
// checkpoint, or keeps it from being described. read_manifest() refuses what is none.
bool is_manifest_there(FileSystem& files, const std::string& manifest_file);
// Whether that is so of the checkpoint `path`, also while its manifest waits for the file that it describes.
bool has_manifest(FileSystem& files, const std::string& path);

// A manifest beside the checkpoint `path` that names it and can be parsed; of two, which only a crash leaves, the one
// with the size that the file has. nullopt when there is none. Nothing is verified.
std::optional<Manifest> readable_manifest(FileSystem& files, const std::string& path);

// `path` first, then the other files that the manifest names: those that are there. Links that lead out of the
// directory are not followed, as everywhere.
std::vector<std::string> present_files(FileSystem& files, const std::string& path,
                                       const std::optional<Manifest>& manifest);

int64_t total_size_bytes(FileSystem& files, const std::vector<std::string>& paths);

}  // namespace tessera::checkpoint
