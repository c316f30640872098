// Where a truncated file was cut. Internal to this folder.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "tessera/checkpoint/manifest/manifest.h"

namespace tessera::checkpoint {

// The name of the first value of the manifest's file of that index that `bytes`, a beginning of it, do not hold as a
// whole; "" when they hold all.
std::string first_cut_value(std::span<const std::byte> bytes, const Manifest& manifest, int file);

}  // namespace tessera::checkpoint
