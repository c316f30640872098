// The commit of one checkpoint file with its manifest: docs/checkpoint_format.md, "How a checkpoint is committed".
// Internal to this folder.
#pragma once

#include <string>

#include "tessera/base/file_system.h"
#include "tessera/base/function_ref.h"
#include "tessera/checkpoint/manifest.h"

namespace tessera::checkpoint {

// `write` writes the file's bytes and returns the manifest that describes them. Makes the directory. When commit
// returns, `path` and its manifest survive a power failure; when it throws, they are what they were before and the
// temporary files are removed. `mode` are the permission bits of the file.
void commit(FileSystem& files, const std::string& path, unsigned mode, FunctionRef<Manifest(WritableFile&)> write);

}  // namespace tessera::checkpoint
