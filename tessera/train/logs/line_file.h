// LineFile: a text file that grows by whole lines, and goes on where an earlier process has ended. One training at a
// time writes one: it is locked (flock) as long as the object lives, so the lock ends with its process.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/files/file_system.h"

namespace tessera::train {

struct LineFileOptions {
  std::string who;  // the class whose file it is, for messages
  // Whether the file is taken from a process that has it, as from an earlier one of the same job that was stopped.
  bool takes_over = false;
};

class LineFile {
 public:
  // Takes the file at `path`, and leaves it as it is; where there is none it is made, empty, and its directory, too. A
  // link is followed, and what it leads to is the file. Throws InvalidArgument for what is no file, such as a device or
  // a pipe, and for a file that another training writes, naming its process; IoError where it cannot be written.
  LineFile(FileSystem& files, const std::string& path, LineFileOptions options);
  // Removes a file that it has made and in which nothing was written.
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // Throws InvalidArgument for a file with something in it whose first line is none of a log.
  void require_first_line(bool (*is_first_line)(const std::string&)) const;
  // The lines that are there, as of whole_lines().
  std::vector<std::string> lines() const;
  // What becomes of what is there: nothing is left of it, or it is called PATH.1, or PATH.2 and so on where there is
  // one, unless it is empty.
  enum class Older : uint8_t { kGoes, kMovesAside };
  // Replaces what is there, all at once, by these lines. The file's mode follows the umask.
  void replace(std::span<const std::string> lines, Older older = Older::kGoes);
  // Adds a line in one write, after a replace(). It is with the system when this returns: a process that is killed
  // loses none, and leaves at most a part of the line that it was writing.
  void append(std::string_view line);
  // Reports late errors.
  void close();
  // How many bytes there are, after a replace().
  int64_t size_bytes() const { return size_bytes_; }
  // The file itself, behind links.
  const std::string& file_path() const { return file_path_; }

 private:
  [[noreturn]] void refuse_other_writer() const;
  void move_aside();
  // Calls f, in whose errors the file is called what its user calls it.
  template <typename F>
  void attempt(const F& f);

  FileSystem& files_;
  std::string path_;  // as the user names it
  std::string file_path_;
  std::string temporary_;  // as the open file was called when it was made
  LineFileOptions options_;
  bool is_made_ = false;
  std::unique_ptr<FileLock> lock_;
  std::unique_ptr<WritableFile> file_;
  int64_t size_bytes_ = 0;
};

// The lines of a file, without a last one that has no end. None where there is no file.
std::vector<std::string> whole_lines(FileSystem& files, const std::string& path);

}  // namespace tessera::train
