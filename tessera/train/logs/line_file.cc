#include "tessera/train/logs/line_file.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/files/random_id.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"

namespace tessera::train {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

constexpr size_t kLongestFirstLine = size_t{1} << 20;

}  // namespace

LineFile::LineFile(FileSystem& files, const std::string& path, std::span<const std::string> lines) {
  const std::string directory = parent_path(path);
  files.create_directories(directory);
  if (files.is_directory(path)) throw IoError("{}: cannot write a log: it is a directory; name a file", path);
  std::string text;
  for (const auto& line : lines) text += line + "\n";
  // The file is written to by its handle, whatever it is called.
  const std::string temporary = fmt::format("{}.{}.tmp", path, random_id());
  try {
    file_ = files.create(temporary, 0666);
    // Not append(): of a large file that keeps the last megabytes to itself.
    file_->write_at(0, bytes_of(text));
    file_->sync();
    files.rename(temporary, path);
  } catch (...) {
    if (files.exists(temporary)) files.remove(temporary);
    throw;
  }
  files.sync_directory(directory);
  size_bytes_ = static_cast<int64_t>(text.size());
}

void LineFile::append(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  file_->write_at(size_bytes_, bytes_of(text));
  size_bytes_ += static_cast<int64_t>(text.size());
}

std::vector<std::string> whole_lines(FileSystem& files, const std::string& path) {
  std::vector<std::string> lines;
  if (!files.exists(path)) return lines;
  const std::string text = files.read_text(path);
  for (const auto line : split(text, '\n')) lines.emplace_back(line);
  if (!lines.empty()) lines.pop_back();  // what follows the last end of a line: nothing, or a part of one
  return lines;
}

void move_aside(FileSystem& files, const std::string& path, std::string_view who,
                bool (*is_first_line)(const std::string&)) {
  if (!files.exists(path) || files.is_directory(path)) return;
  {
    const auto file = files.open(path);
    const auto bytes = file->bytes().first(std::min(file->bytes().size(), kLongestFirstLine));
    if (bytes.empty()) return;
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!is_first_line(std::string(text.substr(0, text.find('\n'))))) {
      throw InvalidArgument("{}: line 1: this is no log of {}, and is left as it is; give {} a file of its own", path,
                            who, who);
    }
  }
  std::string older;
  for (int64_t number = 1; older.empty() || files.exists(older); ++number) older = fmt::format("{}.{}", path, number);
  files.rename(path, older);
  log_info("{}: the log of an older training is called {} now", path, older);
}

}  // namespace tessera::train
