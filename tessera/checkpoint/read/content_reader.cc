#include "tessera/checkpoint/read/content_reader.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::checkpoint {

void read_content(const RangeReader& reader, std::span<const Extent> extents, int64_t offset, std::span<std::byte> to) {
  for (const Extent& extent : extents) {
    if (to.empty()) return;
    if (offset >= extent.size) {
      offset -= extent.size;
      continue;
    }
    const auto bytes = to.first(static_cast<size_t>(std::min<int64_t>(std::ssize(to), extent.size - offset)));
    reader.read(extent.offset + offset, bytes);
    to = to.subspan(bytes.size());
    offset = 0;
  }
  check(to.empty(), "a tensor's content is shorter than its shape");
}

std::unique_ptr<RangeReader> open_ranges(FileSystem& files, const std::string& path) { return files.open_ranges(path); }

}  // namespace tessera::checkpoint
