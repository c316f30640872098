// What the path of a .ckpt file looks like.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/files/file_system.h"

namespace tessera::checkpoint {

// What names of checkpoints end with.
inline constexpr std::string_view kCheckpointSuffix = ".ckpt";

// "x" -> "x.ckpt"; a name that ends so stays.
std::string with_ckpt_suffix(const std::string& path);
// The same of a file to be written. Throws InvalidArgument where the path names a directory: whoever gives one expects
// the checkpoint in it, not beside it.
std::string ckpt_to_write(FileSystem& files, const std::string& path);
// Throws InvalidArgument for a path that does not end so.
void require_ckpt_suffix(const std::string& path);

}  // namespace tessera::checkpoint
