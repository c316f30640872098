// Reading contents that lie in stretches of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tessera/base/files/file_system.h"
#include "tessera/base/files/range_reader.h"

namespace tessera::checkpoint {

// A stretch of bytes of a file.
struct Extent {
  int64_t offset = 0;
  int64_t size = 0;
};

// Fills `to` with the bytes from `offset` on of a content that lies in these extents, one after the other. The content
// must not end before.
void read_content(const RangeReader& reader, std::span<const Extent> extents, int64_t offset, std::span<std::byte> to);

// Throws IoError when the file cannot be opened.
std::unique_ptr<RangeReader> open_ranges(FileSystem& files, const std::string& path);

}  // namespace tessera::checkpoint
