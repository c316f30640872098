// A file's values against its manifest: an intact file can still have a manifest that lies about it. Internal to this
// folder.
#pragma once

#include <string>

#include "tessera/checkpoint/ckpt_file.h"
#include "tessera/checkpoint/manifest.h"

namespace tessera::checkpoint {

// Throws InvalidArgument unless the manifest describes exactly this file: its name, size, and the names, types and
// sizes of its values in their order. Contents are not read.
void require_entries(const CkptFile& file, const Manifest& manifest, const std::string& manifest_file);

}  // namespace tessera::checkpoint
