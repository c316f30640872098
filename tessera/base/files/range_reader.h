// RangeReader: copies byte ranges of a file without mapping it. Mapped pages count as memory of the process that reads
// them, so what must stay small while it goes through large files reads this way; and so does what wants all that a
// disk can give, which is several large reads at a time, past the system's cache of pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tessera {

// Memory for one large read of a disk, aligned as disks want it. Taken when it is first needed.
class DiskBlock {
 public:
  // The places in the file at which such a read begins and ends are multiples of this.
  static constexpr int64_t kAlignment = 4096;
  // From this size on, a read takes no longer for each byte than a larger one.
  static constexpr int64_t kBytes = 4 << 20;

  // The buffer, of kBytes.
  std::byte* data();
  // Whether a range of a file lies in a block, with what alignment adds to it.
  static bool fits(int64_t offset, int64_t size) {
    return (offset + size + kAlignment - 1) / kAlignment - offset / kAlignment <= kBytes / kAlignment;
  }

 private:
  std::shared_ptr<std::byte> memory_;
};

// Any thread may call its functions, several at once.
class RangeReader {
 public:
  virtual ~RangeReader() = default;
  // Fills `to` with the bytes from `offset` on. Throws IoError when the file ends before, or cannot be read.
  virtual void read(int64_t offset, std::span<std::byte> to) const = 0;
  // Whether a disk must be asked for some of these bytes, judged by a few of them. False where nobody can tell.
  virtual bool is_on_disk(int64_t /*offset*/, int64_t /*size*/) const { return false; }
  // These bytes, which fit, in the block's memory. Read past the system's cache of pages, which neither takes time nor
  // memory then, where the file system can do that. Throws as read() does.
  virtual std::span<const std::byte> read_block(int64_t offset, int64_t size, DiskBlock& block) const;
};

// Reads ranges of the operating system's file at `path`. Throws IoError when it cannot be opened.
std::unique_ptr<RangeReader> open_local_ranges(const std::string& path);

}  // namespace tessera
