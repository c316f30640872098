// LineFile: a text file that grows by whole lines, and goes on where an earlier process has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/files/file_system.h"

namespace tessera::train {

class LineFile {
 public:
  // Replaces what is at `path`, all at once, by a file of these lines. Its directory is made where it is missing; its
  // mode follows the umask.
  LineFile(FileSystem& files, const std::string& path, std::span<const std::string> lines);
  // Adds a line in one write. It is with the system when this returns: a process that is killed loses none, and leaves
  // at most a part of the line that it was writing.
  void append(std::string_view line);
  // Reports late errors.
  void close() { file_->close(); }

 private:
  std::unique_ptr<WritableFile> file_;
  int64_t size_bytes_ = 0;
};

// The lines of a file, without a last one that has no end. None where there is no file.
std::vector<std::string> whole_lines(FileSystem& files, const std::string& path);

// Where a new training finds an older one's file: calls that PATH.1, or PATH.2 and so on where there is one. Throws
// InvalidArgument, and leaves it where it is, for what is no file, such as a device or a pipe, and for a file with
// something in it whose first line `is_first_line` does not take for one of `who`'s logs.
void move_aside(FileSystem& files, const std::string& path, std::string_view who,
                bool (*is_first_line)(const std::string&));

}  // namespace tessera::train
