// RangeReader: copies byte ranges of a file without mapping it. Mapped pages count as memory of the process that reads
// them, so what must stay small while it goes through large files reads this way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tessera/base/file_system.h"

namespace tessera::checkpoint {

// A stretch of bytes of a file.
struct Extent {
  int64_t offset = 0;
  int64_t size = 0;
};

class RangeReader {
 public:
  virtual ~RangeReader() = default;
  // Fills `to` with the bytes from `offset` on. Throws IoError when the file ends before, or cannot be read.
  virtual void read(int64_t offset, std::span<std::byte> to) const = 0;
};

// Fills `to` with the bytes from `offset` on of a content that lies in these extents, one after the other. The content
// must not end before.
void read_content(const RangeReader& reader, std::span<const Extent> extents, int64_t offset, std::span<std::byte> to);

// Throws IoError when the file cannot be opened.
std::unique_ptr<RangeReader> open_ranges(FileSystem& files, const std::string& path);

}  // namespace tessera::checkpoint
