// FileSystem: everything that Tessera does with files, passed in so that tests can record, crash and fill it.
// All paths are UTF-8. Every function throws IoError naming the path, the operation and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class RangeReader;

// A file being written, from its beginning. What is written is on disk for certain after sync() only.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void append(std::span<const std::byte> bytes) = 0;
  void append(std::string_view text) { append(std::as_bytes(std::span(text.data(), text.size()))); }
  // Writes at `offset`, wherever the file ends; what was never written before it is zero. Only files that are not
  // appended to can be written so. Any thread.
  virtual void write_at(int64_t offset, std::span<const std::byte> bytes) = 0;
  // Forces the bytes written so far to the disk (fsync).
  virtual void sync() = 0;
  // Reports late errors; the destructor closes silently.
  virtual void close() = 0;
};

// A file's bytes, readable at random; memory-mapped where the system can. Valid while the object lives.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual std::span<const std::byte> bytes() const = 0;
  // Gives back the memory of the pages that were looked at, where bytes() are mapped; they can be looked at again. A
  // caller that goes through a large file and must stay small calls this.
  virtual void release_pages() const {}
  // On: the next looks are at places far apart, and the system shall read what is looked at, not megabytes around it.
  virtual void expect_far_places(bool /*on*/) const {}
  // Begins to read these bytes from the disk, where they are mapped and not in memory.
  virtual void fetch(int64_t /*offset*/, int64_t /*size*/) const {}
};

// Held while the object lives. The system lets go when the process ends, however it ends.
class FileLock {
 public:
  virtual ~FileLock() = default;
  // Whether the file at `path` is the one that is locked.
  virtual bool is_at(const std::string& path) const = 0;
};

// What is at a path, links followed.
enum class PathKind : uint8_t { kNothing, kFile, kDirectory, kPipe, kSocket, kDevice, kLinkToNothing };
// "a pipe", "a link that leads to nothing".
std::string_view to_string(PathKind kind);

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Creates or truncates. `mode` are the permission bits. A link, pipe or device of that name is neither followed nor
  // written to.
  virtual std::unique_ptr<WritableFile> create(const std::string& path, unsigned mode = 0644) = 0;
  virtual std::unique_ptr<ReadableFile> open(const std::string& path) = 0;
  // Opens a file to read ranges of it. By default the ranges are those of open(): most file systems that are not the
  // system's are in memory anyway.
  virtual std::unique_ptr<RangeReader> open_ranges(const std::string& path);
  virtual bool exists(const std::string& path) = 0;
  virtual bool is_directory(const std::string& path) = 0;
  virtual PathKind kind_of(const std::string& path);
  // `path` itself, where its directories or it are links, what they lead to.
  virtual std::string real_path(const std::string& path) { return path; }
  virtual int64_t size_bytes(const std::string& path) = 0;
  // Names (not paths) in a directory, sorted.
  virtual std::vector<std::string> list(const std::string& directory) = 0;
  // Replaces `to` atomically when it exists.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void remove(const std::string& path) = 0;
  // Makes the directory and its missing parents, durable when this returns.
  virtual void create_directories(const std::string& path) = 0;
  virtual void remove_directory_tree(const std::string& path) = 0;
  // Makes renames, creations and removals in `directory` durable (fsync of the directory).
  virtual void sync_directory(const std::string& directory) = 0;
  // Locks the file at `path`, made where it is missing, against all other holders, of this process too. nullptr when
  // there is one.
  virtual std::unique_ptr<FileLock> try_lock(const std::string& path) = 0;
  // The same for a file that has something to say beside being locked, such as a log: its mode stays, or follows the
  // umask where it is made, and links are followed.
  virtual std::unique_ptr<FileLock> try_lock_content(const std::string& path) { return try_lock(path); }
  // The process of this host that holds such a lock of the file; 0 where that is not known.
  virtual int64_t lock_holder(const std::string& /*path*/) { return 0; }

  std::string read_text(const std::string& path);
  // Writes a temporary file beside `path`, syncs it, renames it over `path` and syncs the directory: afterwards `path`
  // holds either its old content or all of the new. `mode` are the permission bits of the new file.
  void write_atomically(const std::string& path, std::string_view content, unsigned mode = 0644);

  // Returns the operating system's files.
  static FileSystem& local();
};

// Holds files in memory; for tests. Thread-safe.
class MemoryFileSystem : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path, unsigned mode = 0644) override;
  std::unique_ptr<ReadableFile> open(const std::string& path) override;
  bool exists(const std::string& path) override;
  bool is_directory(const std::string& path) override;
  int64_t size_bytes(const std::string& path) override;
  std::vector<std::string> list(const std::string& directory) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& path) override;
  void create_directories(const std::string& path) override;
  void remove_directory_tree(const std::string& path) override;
  void sync_directory(const std::string&) override {}
  std::unique_ptr<FileLock> try_lock(const std::string& path) override;

 private:
  friend class MemoryWritableFile;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<std::vector<std::byte>>> files_;
  std::map<std::string, bool> directories_;
  std::map<std::string, std::weak_ptr<void>> locks_;  // while they are held
};

// "a/b" + "c" -> "a/b/c"; an absolute `name` wins.
std::string join_path(const std::string& directory, const std::string& name);
std::string parent_path(const std::string& path);
std::string base_name(const std::string& path);

}  // namespace tessera
