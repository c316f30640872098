#include "tessera/checkpoint/range_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera::checkpoint {
namespace {

class LocalRangeReader : public RangeReader {
 public:
  explicit LocalRangeReader(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {  // a pipe must not keep us waiting
    if (fd_ < 0) throw IoError("{}: cannot open: {}", path_, std::strerror(errno));
  }
  ~LocalRangeReader() override { ::close(fd_); }
  LocalRangeReader(const LocalRangeReader&) = delete;
  LocalRangeReader& operator=(const LocalRangeReader&) = delete;

  void read(int64_t offset, std::span<std::byte> to) const override {
    while (!to.empty()) {
      const ssize_t count = ::pread(fd_, to.data(), to.size(), offset);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw IoError("{}: cannot read: {}", path_, std::strerror(errno));
      if (count == 0) throw IoError("{}: ends at byte {}; it was longer when it was opened", path_, offset);
      offset += count;
      to = to.subspan(static_cast<size_t>(count));
    }
  }

 private:
  std::string path_;
  int fd_;
};

// File systems other than the operating system's hold their bytes in memory anyway.
class MappedRangeReader : public RangeReader {
 public:
  MappedRangeReader(std::unique_ptr<ReadableFile> file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}

  void read(int64_t offset, std::span<std::byte> to) const override {
    const auto bytes = file_->bytes();
    const auto begin = static_cast<size_t>(offset);
    if (begin > bytes.size() || to.size() > bytes.size() - begin) {
      throw IoError("{}: ends at byte {}; it was longer when it was opened", path_, bytes.size());
    }
    if (!to.empty()) std::memcpy(to.data(), bytes.data() + begin, to.size());
  }

 private:
  std::unique_ptr<ReadableFile> file_;
  std::string path_;
};

}  // namespace

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

std::unique_ptr<RangeReader> open_ranges(FileSystem& files, const std::string& path) {
  if (&files == &FileSystem::local()) return std::make_unique<LocalRangeReader>(path);
  return std::make_unique<MappedRangeReader>(files.open(path), path);
}

}  // namespace tessera::checkpoint
