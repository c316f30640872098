// What the manifest says of an entry that was written whole. Internal to this folder.
#pragma once

#include "tessera/checkpoint/ckpt_file.h"
#include "tessera/checkpoint/manifest.h"

namespace tessera::checkpoint {

ManifestTensor manifest_tensor(const Entry& entry, const Written& written, bool appended);

}  // namespace tessera::checkpoint
