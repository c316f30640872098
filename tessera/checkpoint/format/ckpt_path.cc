#include "tessera/checkpoint/format/ckpt_path.h"

#include "tessera/base/error.h"

namespace tessera::checkpoint {

std::string with_ckpt_suffix(const std::string& path) {
  return path.ends_with(kCheckpointSuffix) ? path : fmt::format("{}{}", path, kCheckpointSuffix);
}

std::string ckpt_to_write(FileSystem& files, const std::string& path) {
  auto file = with_ckpt_suffix(path);
  for (const auto& name : {path, file}) {
    if (!name.ends_with('/') && !files.is_directory(name)) continue;
    throw InvalidArgument("{}: is a directory; a checkpoint needs the name of a file, such as {}", name,
                          join_path(name, "model.ckpt"));
  }
  return file;
}

void require_ckpt_suffix(const std::string& path) {
  if (path.ends_with(kCheckpointSuffix)) return;
  throw InvalidArgument("{}: a checkpoint's name must end in {}", path, kCheckpointSuffix);
}

}  // namespace tessera::checkpoint
