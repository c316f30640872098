// What the manifest says of an entry that was written whole. Internal to checkpoint/.
#pragma once

#include "tessera/checkpoint/format/ckpt_writer.h"
#include "tessera/checkpoint/manifest/manifest.h"

namespace tessera::checkpoint {

ManifestTensor manifest_tensor(const Entry& entry, const Written& written, bool appended);

}  // namespace tessera::checkpoint
