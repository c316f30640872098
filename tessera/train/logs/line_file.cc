#include "tessera/train/logs/line_file.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files/random_id.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"
#include "tessera/train/logs/run_record.h"

namespace tessera::train {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

constexpr size_t kLongestFirstLine = size_t{1} << 20;

// Names of what the system has opened, such as /dev/stdout: where that leads to a file, somebody else writes it.
bool is_name_of_system(const std::string& path) {
  return (path.starts_with("/dev/") && !path.starts_with("/dev/shm/")) || path.starts_with("/proc/");
}

}  // namespace

LineFile::LineFile(FileSystem& files, const std::string& path, LineFileOptions options)
    : files_(files), path_(path), file_path_(path), options_(std::move(options)) {
  PathKind kind = files_.kind_of(path);
  if (is_name_of_system(path)) {
    if (kind == PathKind::kNothing) {
      throw InvalidArgument(
          "{}: there is no such file, and logs are not made in /dev and /proc; give {} a file of its own", path,
          options_.who);
    }
    if (kind != PathKind::kDirectory) kind = PathKind::kDevice;
  }
  if (kind == PathKind::kLinkToNothing) {
    throw InvalidArgument("{}: it is {}: make the file that it leads to, or remove it", path_, to_string(kind));
  }
  if (kind != PathKind::kNothing && kind != PathKind::kFile) {
    throw InvalidArgument(
        "{}: it is {}, and is left as it is; give {} a file of its own{}", path_, to_string(kind), options_.who,
        kind == PathKind::kDirectory ? "" : "; ProgressBar(log_format=\"json\") prints records to standard output");
  }
  is_made_ = kind == PathKind::kNothing;
  if (is_made_) files_.create_directories(parent_path(path));
  if (!is_made_) file_path_ = files_.real_path(path);
  lock_ = files_.try_lock_content(file_path_);
  if (lock_ != nullptr) return;
  is_made_ = false;
  if (!options_.takes_over) refuse_other_writer();
  log_warning("{}: an earlier process of this job holds it; taken over", path_);
}

LineFile::~LineFile() {
  if (!is_made_ || lock_ == nullptr) return;
  try {
    if (lock_->is_at(file_path_) && files_.size_bytes(file_path_) == 0) files_.remove(file_path_);
  } catch (const Error& error) {  // an empty file is nobody's
    log_warning("{}", error.what());
  }
}

void LineFile::refuse_other_writer() const {
  const int64_t pid = files_.lock_holder(file_path_);
  const std::string where = pid == ::getpid() ? "a training of this process"
                            : pid > 0 ? fmt::format("another training (process {} on {})", pid, host_of_process())
                                      : "another training, of a process that the system does not name,";
  throw InvalidArgument("{}: {} writes this log; give each training a log of its own, or wait until that one has ended",
                        path_, where);
}

template <typename F>
void LineFile::attempt(const F& f) {
  try {
    f();
  } catch (const IoError& error) {
    std::string words = error.what();
    if (words.starts_with(temporary_)) words.replace(0, temporary_.size(), path_);
    throw IoError("{}", words);
  }
}

void LineFile::require_first_line(bool (*is_first_line)(const std::string&)) const {
  const auto file = files_.open(file_path_);
  const auto bytes = file->bytes().first(std::min(file->bytes().size(), kLongestFirstLine));
  if (bytes.empty()) return;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (is_first_line(std::string(text.substr(0, text.find('\n'))))) return;
  throw InvalidArgument("{}: line 1: this is no log of {}, and is left as it is; give {} a file of its own", path_,
                        options_.who, options_.who);
}

std::vector<std::string> LineFile::lines() const { return whole_lines(files_, file_path_); }

void LineFile::move_aside() {
  if (files_.size_bytes(file_path_) == 0) return;
  std::string older;
  for (int64_t number = 1; older.empty() || files_.kind_of(older) != PathKind::kNothing; ++number) {
    older = fmt::format("{}.{}", file_path_, number);
  }
  files_.rename(file_path_, older);
  log_info("{}: the log of an older training is called {} now", path_, older);
}

void LineFile::replace(std::span<const std::string> lines, Older older) {
  const std::string directory = parent_path(file_path_);
  std::string text;
  for (const auto& line : lines) text += line + "\n";
  // The file is written to by its handle, whatever it is called.
  temporary_ = fmt::format("{}.{}.tmp", file_path_, random_id());
  attempt([&] {
    try {
      file_ = files_.create(temporary_, 0666);
      // Before it has its name: whoever finds it there finds it locked.
      auto lock = files_.try_lock_content(temporary_);
      // Not append(): of a large file that keeps the last megabytes to itself.
      file_->write_at(0, bytes_of(text));
      file_->sync();
      if (older == Older::kMovesAside) move_aside();
      files_.rename(temporary_, file_path_);
      lock_ = std::move(lock);
    } catch (...) {
      file_.reset();
      if (files_.exists(temporary_)) files_.remove(temporary_);
      throw;
    }
  });
  files_.sync_directory(directory);
  size_bytes_ = static_cast<int64_t>(text.size());
}

void LineFile::append(std::string_view line) {
  if (file_ == nullptr) throw IoError("{}: cannot write: it is closed", path_);
  const std::string text = std::string(line) + "\n";
  attempt([&] { file_->write_at(size_bytes_, bytes_of(text)); });
  size_bytes_ += static_cast<int64_t>(text.size());
}

void LineFile::close() {
  if (file_ != nullptr) attempt([&] { file_->close(); });
  file_.reset();
}

std::vector<std::string> whole_lines(FileSystem& files, const std::string& path) {
  std::vector<std::string> lines;
  if (!files.exists(path)) return lines;
  const std::string text = files.read_text(path);
  for (const auto line : split(text, '\n')) lines.emplace_back(line);
  if (!lines.empty()) lines.pop_back();  // what follows the last end of a line: nothing, or a part of one
  return lines;
}

}  // namespace tessera::train
