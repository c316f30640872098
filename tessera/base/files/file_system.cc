#include "tessera/base/files/file_system.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files/local_file_lock.h"
#include "tessera/base/files/local_writable_file.h"
#include "tessera/base/files/mapped_guard.h"
#include "tessera/base/files/range_reader.h"
#include "tessera/base/files/refused_call.h"
#include "tessera/base/logging.h"

namespace tessera {
namespace {

// Whoever may write into a directory may open its locks, and nobody else: who can open a file can lock it, and keep the
// writers out.
unsigned lock_mode(const struct stat& directory, const struct stat& lock) {
  unsigned writers = 0200;
  if (lock.st_gid == directory.st_gid) writers |= directory.st_mode & 0020;
  writers |= directory.st_mode & 0002;
  return writers | writers << 1;
}

PathKind kind_of_mode(mode_t mode) {
  if (S_ISREG(mode)) return PathKind::kFile;
  if (S_ISDIR(mode)) return PathKind::kDirectory;
  if (S_ISFIFO(mode)) return PathKind::kPipe;
  return S_ISSOCK(mode) ? PathKind::kSocket : PathKind::kDevice;
}

class MappedFile : public ReadableFile {
 public:
  MappedFile(void* data, size_t size) : data_(data), size_(size) {}
  ~MappedFile() override {
    if (size_ > 0) ::munmap(data_, size_);
  }
  std::span<const std::byte> bytes() const override { return {static_cast<const std::byte*>(data_), size_}; }
  void release_pages() const override {
    if (size_ > 0) ::madvise(data_, size_, MADV_DONTNEED);
  }
  void expect_far_places(bool on) const override {
    if (size_ > 0) ::madvise(data_, size_, on ? MADV_RANDOM : MADV_NORMAL);
  }
  void fetch(int64_t offset, int64_t size) const override {
    static const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
    const int64_t begin = offset / page_bytes * page_bytes;
    const int64_t end = std::min(offset + size, static_cast<int64_t>(size_));
    if (begin < end) ::madvise(static_cast<std::byte*>(data_) + begin, static_cast<size_t>(end - begin), MADV_WILLNEED);
  }

 private:
  void* data_;
  size_t size_;
};

class LocalFileSystem : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path, unsigned mode) override {
    return create_local_file(path, mode);
  }

  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not keep us waiting
    if (fd < 0) refused_call("open", path);
    struct stat status {};
    if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
      ::close(fd);
      throw IoError("{}: cannot open: it is {}, not a regular file", path, to_string(kind_of_mode(status.st_mode)));
    }
    const auto size = static_cast<size_t>(status.st_size);
    void* data = nullptr;
    if (size > 0) {
      data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
      if (data == MAP_FAILED) {
        ::close(fd);
        refused_call("map", path);
      }
    }
    ::close(fd);
    return std::make_unique<MappedFile>(data, size);
  }

  std::unique_ptr<RangeReader> open_ranges(const std::string& path) override { return open_local_ranges(path); }

  bool exists(const std::string& path) override { return ::access(path.c_str(), F_OK) == 0; }
  bool is_directory(const std::string& path) override {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  }
  PathKind kind_of(const std::string& path) override {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      return ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode) ? PathKind::kLinkToNothing
                                                                            : PathKind::kNothing;
    }
    return kind_of_mode(status.st_mode);
  }
  std::string real_path(const std::string& path) override {
    std::error_code error;
    const auto real = std::filesystem::canonical(path, error);
    if (error) throw IoError("{}: cannot follow: {}", path, error.message());
    return real.string();
  }
  int64_t size_bytes(const std::string& path) override {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) refused_call("read the size", path);
    return status.st_size;
  }
  std::vector<std::string> list(const std::string& directory) override {
    std::error_code error;
    std::vector<std::string> names;
    for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
      names.push_back(it->path().filename().string());
    }
    if (error) throw IoError("{}: cannot list: {}", directory, error.message());
    std::sort(names.begin(), names.end());
    return names;
  }
  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) refused_call("rename to " + to, from);
  }
  void remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) refused_call("remove", path);
  }
  void create_directories(const std::string& path) override {
    std::error_code error;
    std::vector<std::string> missing;
    for (std::string at = path; !is_directory(at) && (missing.empty() || at != missing.back()); at = parent_path(at)) {
      missing.push_back(at);
    }
    for (; !missing.empty(); missing.pop_back()) {
      std::filesystem::create_directory(missing.back(), error);
      if (error && exists(missing.back()) && !is_directory(missing.back())) {
        throw IoError("{}: cannot create the directory: {}", path,
                      missing.back() == path ? std::string("a file of that name is there")
                                             : fmt::format("{} is a file", missing.back()));
      }
      if (error) throw IoError("{}: cannot create the directory: {}", path, error.message());
      sync_directory(parent_path(missing.back()));
    }
  }
  void remove_directory_tree(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) throw IoError("{}: cannot remove: {}", path, error.message());
  }
  void sync_directory(const std::string& directory) override {
    const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) refused_call("open", directory);
    const int result = sync_descriptor(fd);
    const int error = errno;
    ::close(fd);
    errno = error;
    if (result != 0) refused_call("fsync", directory);
  }
  std::unique_ptr<FileLock> try_lock(const std::string& path) override {
    struct stat directory {};
    if (::stat(parent_path(path).c_str(), &directory) != 0) refused_call("look at the directory of", path);
    while (true) {
      const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
      if (fd < 0) refused_call("open", path);
      auto lock = std::make_unique<LocalFileLock>(fd);
      struct stat made {};
      if (::fstat(fd, &made) != 0) refused_call("lock", path);
      const unsigned mode = lock_mode(directory, made);
      if (made.st_uid == ::geteuid() && (made.st_mode & 0777) != mode) ::fchmod(fd, mode);
      if (!lock_descriptor(fd, path)) return nullptr;
      // Whoever held it may have removed the file in between: then it is another one that counts.
      if (lock->is_at(path)) return lock;
    }
  }
  std::unique_ptr<FileLock> try_lock_content(const std::string& path) override {
    while (true) {
      const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
      if (fd < 0) refused_call("open", path);
      auto lock = std::make_unique<LocalFileLock>(fd);
      struct stat status {};
      if (::fstat(fd, &status) != 0) refused_call("lock", path);
      if (!S_ISREG(status.st_mode)) throw IoError("{}: cannot lock: not a regular file", path);
      if (!lock_descriptor(fd, path)) return nullptr;
      if (lock->is_at(path)) return lock;  // nobody has put another file there in between
    }
  }
  // The system's table of locks has a line each: `1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF`.
  int64_t lock_holder(const std::string& path) override {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return 0;
    const std::string file = fmt::format("{:02x}:{:02x}:{}", major(status.st_dev), minor(status.st_dev), status.st_ino);
    std::ifstream table("/proc/locks");
    for (std::string line; std::getline(table, line);) {
      std::istringstream words(line);
      std::string number, kind, manner, access, at;
      int64_t pid = 0;
      if (words >> number >> kind >> manner >> access >> pid >> at && kind == "FLOCK" && at == file && pid > 0)
        return pid;
    }
    return 0;
  }

 private:
  // False where another descriptor has the lock. A file system without locks lets all have it.
  static bool lock_descriptor(int fd, const std::string& path) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno == EWOULDBLOCK) return false;
    if (errno != ENOSYS && errno != ENOLCK && errno != EOPNOTSUPP) refused_call("lock", path);
    log_warning("{}: this file system has no locks: two jobs that write here would not notice each other", path);
    return true;
  }
};

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

class MemoryReadableFile : public ReadableFile {
 public:
  explicit MemoryReadableFile(std::shared_ptr<std::vector<std::byte>> content) : content_(std::move(content)) {}
  std::span<const std::byte> bytes() const override { return *content_; }

 private:
  std::shared_ptr<std::vector<std::byte>> content_;
};

}  // namespace

class MemoryWritableFile : public WritableFile {
 public:
  MemoryWritableFile(MemoryFileSystem& owner, std::string path) : owner_(owner), path_(std::move(path)) {}
  void append(std::span<const std::byte> bytes) override {
    const std::lock_guard lock(owner_.mutex_);
    auto& content = owner_.files_[path_];
    // A reader keeps the bytes it opened: append to a copy, as a mapped file's reader would not see growth either.
    auto grown = std::make_shared<std::vector<std::byte>>(content ? *content : std::vector<std::byte>());
    grown->insert(grown->end(), bytes.begin(), bytes.end());
    content = std::move(grown);
  }
  void write_at(int64_t offset, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(owner_.mutex_);
    auto& content = owner_.files_[path_];
    auto changed = std::make_shared<std::vector<std::byte>>(content ? *content : std::vector<std::byte>());
    const auto begin = static_cast<size_t>(offset);
    changed->resize(std::max(changed->size(), begin + bytes.size()));
    std::copy(bytes.begin(), bytes.end(), changed->begin() + offset);
    content = std::move(changed);
  }
  void sync() override {}
  void close() override {}

 private:
  MemoryFileSystem& owner_;
  std::string path_;
};

std::string_view to_string(PathKind kind) {
  switch (kind) {
    case PathKind::kNothing: return "nothing";
    case PathKind::kFile: return "a file";
    case PathKind::kDirectory: return "a directory";
    case PathKind::kPipe: return "a pipe";
    case PathKind::kSocket: return "a socket";
    case PathKind::kDevice: return "a device";
    case PathKind::kLinkToNothing: return "a link that leads to nothing";
  }
  return "";
}

PathKind FileSystem::kind_of(const std::string& path) {
  if (!exists(path)) return PathKind::kNothing;
  return is_directory(path) ? PathKind::kDirectory : PathKind::kFile;
}

FileSystem& FileSystem::local() {
  // Never destroyed: what lets go of a lock may be destroyed after everything else.
  static LocalFileSystem& only = *new LocalFileSystem;
  return only;
}

std::unique_ptr<RangeReader> FileSystem::open_ranges(const std::string& path) {
  return std::make_unique<MappedRangeReader>(open(path), path);
}

std::string FileSystem::read_text(const std::string& path) {
  const auto file = open(path);
  const auto bytes = file->bytes();
  const MappedGuard guard(bytes, path);
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  guard.require_whole();
  return text;
}

void FileSystem::write_atomically(const std::string& path, std::string_view content, unsigned mode) {
  static std::atomic<int> counter{0};
  const std::string temporary = fmt::format("{}.tmp.{}.{}", path, ::getpid(), counter++);
  try {
    const auto file = create(temporary, mode);
    file->append(content);
    file->sync();
    file->close();
    rename(temporary, path);
  } catch (...) {
    if (exists(temporary)) remove(temporary);
    throw;
  }
  sync_directory(parent_path(path));
}

std::unique_ptr<WritableFile> MemoryFileSystem::create(const std::string& path, unsigned) {
  const std::lock_guard lock(mutex_);
  files_[path] = std::make_shared<std::vector<std::byte>>();
  return std::make_unique<MemoryWritableFile>(*this, path);
}
std::unique_ptr<ReadableFile> MemoryFileSystem::open(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto it = files_.find(path);
  if (it == files_.end()) throw IoError("{}: cannot open: No such file or directory", path);
  return std::make_unique<MemoryReadableFile>(it->second);
}
bool MemoryFileSystem::exists(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return files_.contains(path) || directories_.contains(path);
}
bool MemoryFileSystem::is_directory(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return directories_.contains(path);
}
int64_t MemoryFileSystem::size_bytes(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto it = files_.find(path);
  if (it == files_.end()) throw IoError("{}: cannot read the size: No such file or directory", path);
  return static_cast<int64_t>(it->second->size());
}
std::vector<std::string> MemoryFileSystem::list(const std::string& directory) {
  const std::lock_guard lock(mutex_);
  std::map<std::string, bool> names;
  const std::string prefix = directory + "/";
  const auto add = [&](const std::string& path) {
    if (path.starts_with(prefix))
      names[path.substr(prefix.size(), path.find('/', prefix.size()) - prefix.size())] = true;
  };
  for (const auto& [path, content] : files_) add(path);
  for (const auto& [path, present] : directories_) add(path);
  std::vector<std::string> result;
  for (const auto& [name, present] : names) result.push_back(name);
  return result;
}
void MemoryFileSystem::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  if (const auto it = files_.find(from); it != files_.end()) {
    files_[to] = it->second;
    files_.erase(from);
    locks_.erase(to);  // that of the file which is gone
    if (auto lock = locks_.extract(from)) {
      lock.key() = to;
      locks_.insert(std::move(lock));
    }
    return;
  }
  if (!directories_.contains(from)) throw IoError("{}: cannot rename to {}: No such file or directory", from, to);
  const std::string prefix = from + "/";
  std::map<std::string, std::shared_ptr<std::vector<std::byte>>> files;
  for (auto& [path, content] : files_) {
    files[path.starts_with(prefix) ? to + "/" + path.substr(prefix.size()) : path] = content;
  }
  files_ = std::move(files);
  std::map<std::string, bool> directories;
  for (const auto& [path, present] : directories_) {
    directories[path == from ? to : path.starts_with(prefix) ? to + "/" + path.substr(prefix.size()) : path] = true;
  }
  directories_ = std::move(directories);
}
void MemoryFileSystem::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (files_.erase(path) == 0) throw IoError("{}: cannot remove: No such file or directory", path);
  locks_.erase(path);  // another file of this name is free
}
void MemoryFileSystem::create_directories(const std::string& path) {
  const std::lock_guard lock(mutex_);
  for (std::string at = path; !at.empty() && at != "/" && at != "."; at = parent_path(at)) directories_[at] = true;
}
void MemoryFileSystem::remove_directory_tree(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const std::string prefix = path + "/";
  std::erase_if(files_, [&](const auto& entry) { return entry.first == path || entry.first.starts_with(prefix); });
  std::erase_if(directories_,
                [&](const auto& entry) { return entry.first == path || entry.first.starts_with(prefix); });
}

std::unique_ptr<FileLock> MemoryFileSystem::try_lock(const std::string& path) {
  class Handle : public FileLock {
   public:
    Handle(std::string path, std::shared_ptr<void> held) : path_(std::move(path)), held_(std::move(held)) {}
    bool is_at(const std::string& path) const override { return path == path_; }

   private:
    std::string path_;
    std::shared_ptr<void> held_;
  };
  const std::lock_guard lock(mutex_);
  auto& held = locks_[path];
  if (!held.expired()) return nullptr;
  if (!files_.contains(path)) files_[path] = std::make_shared<std::vector<std::byte>>();
  const auto made = std::make_shared<char>();
  held = made;
  return std::make_unique<Handle>(path, made);
}

std::string join_path(const std::string& directory, const std::string& name) {
  return (std::filesystem::path(directory) / name).string();
}
std::string parent_path(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}
std::string base_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

}  // namespace tessera
