#include "tessera/checkpoint/crash_file_system.h"

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/random.h"

namespace tessera::checkpoint {

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
  if (operations_.size() >= fail_from_) throw IoError("{}: cannot write: No space left on device", operation.path);
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
  // Giving space back works on a full disk, too.
  const auto fails = std::exchange(fail_from_, SIZE_MAX);
  record({.kind = Kind::kRemove, .path = path});
  fail_from_ = fails;
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
    size_t size = inode.content.size();
    if (unsynced == Unsynced::kLost || unsynced == Unsynced::kContentLost) size = inode.synced_bytes;
    if (unsynced == Unsynced::kRandom) {
      size = inode.synced_bytes + static_cast<size_t>(draw(static_cast<int64_t>(size - inode.synced_bytes) + 1));
    }
    state->create(path)->append(std::string_view(inode.content).substr(0, size));
  }
  return state;
}

}  // namespace tessera::checkpoint
