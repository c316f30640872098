#include "tessera/testing/checkpoints/crash_file_system.h"

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/random.h"

namespace tessera::checkpoint {
namespace {

// Smaller than a disk's, so that the small files of tests have some.
constexpr size_t kBlockBytes = 64;

}  // namespace

class CrashWritableFile : public WritableFile {
 public:
  CrashWritableFile(CrashFileSystem& owner, std::string path, int file, std::unique_ptr<WritableFile> inner)
      : owner_(owner), path_(std::move(path)), file_(file), inner_(std::move(inner)) {}
  void append(std::span<const std::byte> bytes) override {
    owner_.record({.kind = CrashFileSystem::Kind::kAppend,
                   .path = path_,
                   .content = {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                   .file = file_});
    inner_->append(bytes);
  }
  void write_at(int64_t offset, std::span<const std::byte> bytes) override {
    owner_.record({.kind = CrashFileSystem::Kind::kWriteAt,
                   .path = path_,
                   .content = {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                   .file = file_,
                   .offset = static_cast<size_t>(offset)});
    inner_->write_at(offset, bytes);
  }
  void sync() override { owner_.record({.kind = CrashFileSystem::Kind::kSync, .path = path_, .file = file_}); }
  void close() override {}

 private:
  CrashFileSystem& owner_;
  std::string path_;
  int file_;
  std::unique_ptr<WritableFile> inner_;
};

void CrashFileSystem::record(Operation operation) {
  const std::lock_guard lock(record_mutex_);
  // Giving space back works on a full disk, too.
  const bool fails = operations_.size() >= fail_from_ && operation.kind != Kind::kRemove;
  if (fails) throw IoError("{}: cannot write: No space left on device", operation.path);
  operations_.push_back(std::move(operation));
}

std::unique_ptr<WritableFile> CrashFileSystem::create(const std::string& path, unsigned mode) {
  const int file = num_files_++;
  record({.kind = Kind::kCreate, .path = path, .file = file});
  return std::make_unique<CrashWritableFile>(*this, path, file, MemoryFileSystem::create(path, mode));
}
void CrashFileSystem::rename(const std::string& from, const std::string& to) {
  record({.kind = Kind::kRename, .path = from, .to = to});
  MemoryFileSystem::rename(from, to);
}
void CrashFileSystem::remove(const std::string& path) {
  record({.kind = Kind::kRemove, .path = path});
  MemoryFileSystem::remove(path);
}
void CrashFileSystem::create_directories(const std::string& path) {
  record({.kind = Kind::kCreateDirectories, .path = path});
  MemoryFileSystem::create_directories(path);
}
void CrashFileSystem::sync_directory(const std::string& directory) {
  record({.kind = Kind::kSyncDirectory, .path = directory});
}

std::string CrashFileSystem::describe(size_t operation) const {
  if (operation == 0) return "nothing";
  constexpr const char* kNames[] = {"create", "append", "write", "fsync",
                                    "rename", "remove", "mkdir", "fsync directory"};
  const auto& last = operations_[operation - 1];
  return fmt::format("{} {}", kNames[static_cast<int>(last.kind)], last.path);
}

std::unique_ptr<MemoryFileSystem> CrashFileSystem::crash_state(size_t count, Unsynced unsynced, uint64_t seed) const {
  struct Inode {
    std::string content;
    size_t synced_bytes = 0;
  };
  std::map<int, Inode> inodes;
  std::map<std::string, int> current;  // path -> inode, as the running process saw it
  std::map<std::string, int> durable;
  struct NameChange {  // a path now means this inode, or nothing (-1)
    std::string path;
    int inode;
  };
  struct Pending {  // since its directory's last sync; a rename is one change of all names that it moves
    std::string directory;
    std::vector<NameChange> changes;
  };
  std::vector<Pending> pending;
  std::vector<std::string> directories;
  const auto apply = [](std::map<std::string, int>& names, const std::vector<NameChange>& changes) {
    for (const auto& change : changes) {
      if (change.inode < 0) {
        names.erase(change.path);
      } else {
        names[change.path] = change.inode;
      }
    }
  };
  const auto change = [&](const std::string& path, std::vector<NameChange> changes) {
    apply(current, changes);
    pending.push_back({parent_path(path), std::move(changes)});
  };
  const auto rename = [&](const Operation& op) {
    std::vector<NameChange> changes;
    const auto moved = [&](const std::string& path) { return op.to + path.substr(op.path.size()); };
    const auto is_moved = [&](const std::string& path) { return path == op.path || path.starts_with(op.path + "/"); };
    for (const auto& [path, inode] : current) {
      if (!is_moved(path)) continue;
      changes.push_back({moved(path), inode});
      changes.push_back({path, -1});
    }
    for (auto& directory : directories) {
      if (is_moved(directory)) directory = moved(directory);
    }
    change(op.to, std::move(changes));
  };
  for (size_t i = 0; i < std::min(count, operations_.size()); ++i) {
    const auto& op = operations_[i];
    switch (op.kind) {
      case Kind::kCreate: change(op.path, {{op.path, op.file}}); break;
      case Kind::kAppend: inodes[op.file].content += op.content; break;
      case Kind::kWriteAt: {
        auto& content = inodes[op.file].content;
        content.resize(std::max(content.size(), op.offset + op.content.size()));
        content.replace(op.offset, op.content.size(), op.content);
        break;
      }
      case Kind::kSync: inodes[op.file].synced_bytes = inodes[op.file].content.size(); break;
      case Kind::kRename: rename(op); break;
      case Kind::kRemove: change(op.path, {{op.path, -1}}); break;
      case Kind::kCreateDirectories: directories.push_back(op.path); break;
      case Kind::kSyncDirectory:
        std::erase_if(pending, [&](const Pending& change_there) {
          if (change_there.directory != op.path) return false;
          apply(durable, change_there.changes);
          return true;
        });
        break;
    }
  }
  uint64_t draws = 0;
  const auto draw = [&](int64_t n) { return random_below({.seed = seed, .stream = count}, draws++, n); };
  for (const auto& [directory, changes] : pending) {
    if (unsynced == Unsynced::kLost || (unsynced == Unsynced::kRandom && draw(2) == 0)) continue;
    apply(durable, changes);
  }
  auto state = std::make_unique<MemoryFileSystem>();
  for (const auto& directory : directories) state->create_directories(directory);
  for (const auto& [path, file] : durable) {
    const auto& inode = inodes[file];
    std::string content = inode.content;
    if (unsynced == Unsynced::kLost || unsynced == Unsynced::kContentLost) content.resize(inode.synced_bytes);
    if (unsynced == Unsynced::kRandom) {
      const auto at_risk = static_cast<int64_t>(content.size() - inode.synced_bytes);
      content.resize(inode.synced_bytes + static_cast<size_t>(draw(at_risk + 1)));
      // Blocks reach the disk in any order: a file may have its size and holes in it.
      const bool has_holes = draw(2) == 0;
      for (size_t at = inode.synced_bytes; has_holes && at < content.size(); at += kBlockBytes) {
        if (draw(2) == 0) continue;
        std::fill_n(content.begin() + static_cast<std::ptrdiff_t>(at), std::min(kBlockBytes, content.size() - at),
                    '\0');
      }
    }
    state->create(path)->append(content);
  }
  return state;
}

}  // namespace tessera::checkpoint
