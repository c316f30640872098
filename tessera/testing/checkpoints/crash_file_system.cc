#include "tessera/testing/checkpoints/crash_file_system.h"

#include <algorithm>
#include <functional>
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
  const bool fails =
      operations_.size() >= fail_from_ && operation.kind != Kind::kRemove && operation.kind != Kind::kRemoveTree;
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
void CrashFileSystem::remove_directory_tree(const std::string& path) {
  record({.kind = Kind::kRemoveTree, .path = path});
  MemoryFileSystem::remove_directory_tree(path);
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
  constexpr const char* kNames[] = {"create", "append",      "write", "fsync",          "rename",
                                    "remove", "remove tree", "mkdir", "fsync directory"};
  const auto& last = operations_[operation - 1];
  return fmt::format("{} {}", kNames[static_cast<int>(last.kind)], last.path);
}

// What a disk has of the operations that were recorded.
class CrashFileSystem::Disk {
 public:
  void take(const Operation& op);
  // The files after the power went. `seed` and `count` say what is drawn.
  std::unique_ptr<MemoryFileSystem> after_crash(Unsynced unsynced, uint64_t seed, size_t count);

 private:
  struct Inode {
    std::string content;
    std::string synced;  // what the content was at its last sync
  };
  using Names = std::map<std::string, int>;  // path -> inode
  struct NameChange {                        // a path now means this inode, or nothing (-1)
    std::string path;
    int inode;
  };
  struct Pending {  // since its directory's last sync; a rename is one change of all names that it moves
    std::string directory;
    std::vector<NameChange> changes;
    std::string removed_tree;  // of a file that a tree's removal took away
  };
  using Draw = std::function<int64_t(int64_t n)>;

  static bool is_in(const std::string& path, const std::string& tree) {
    return path == tree || path.starts_with(tree + "/");
  }
  static void apply(Names& names, const std::vector<NameChange>& changes);
  static std::string found_content(const Inode& inode, Unsynced unsynced, const Draw& draw);
  void change(const std::string& path, std::vector<NameChange> changes);
  void write_at(const Operation& op);
  void rename(const Operation& op);
  void remove_tree(const std::string& tree);
  void sync_directory(const std::string& synced);

  std::map<int, Inode> inodes_;
  Names current_;  // as the running process saw them
  Names durable_;
  std::vector<Pending> pending_;
  std::vector<std::string> directories_;
};

void CrashFileSystem::Disk::apply(Names& names, const std::vector<NameChange>& changes) {
  for (const auto& change : changes) {
    if (change.inode < 0) {
      names.erase(change.path);
    } else {
      names[change.path] = change.inode;
    }
  }
}

void CrashFileSystem::Disk::change(const std::string& path, std::vector<NameChange> changes) {
  apply(current_, changes);
  pending_.push_back({parent_path(path), std::move(changes), {}});
}

void CrashFileSystem::Disk::write_at(const Operation& op) {
  auto& content = inodes_[op.file].content;
  content.resize(std::max(content.size(), op.offset + op.content.size()));
  content.replace(op.offset, op.content.size(), op.content);
}

void CrashFileSystem::Disk::rename(const Operation& op) {
  std::vector<NameChange> changes;
  const auto moved = [&](const std::string& path) { return op.to + path.substr(op.path.size()); };
  const auto is_moved = [&](const std::string& path) { return is_in(path, op.path); };
  for (const auto& [path, inode] : current_) {
    if (!is_moved(path)) continue;
    changes.push_back({moved(path), inode});
    changes.push_back({path, -1});
  }
  for (auto& directory : directories_) {
    if (is_moved(directory)) directory = moved(directory);
  }
  change(op.to, std::move(changes));
}

// Files go one by one, and stay away for certain once the tree's own name does.
void CrashFileSystem::Disk::remove_tree(const std::string& tree) {
  std::vector<std::string> gone;
  for (const auto& [path, inode] : current_) {
    if (is_in(path, tree)) gone.push_back(path);
  }
  for (const auto& path : gone) {
    pending_.push_back({parent_path(tree), {{path, -1}}, tree});
    apply(current_, pending_.back().changes);
  }
  std::erase_if(directories_, [&](const std::string& directory) { return is_in(directory, tree); });
}

void CrashFileSystem::Disk::sync_directory(const std::string& synced) {
  std::vector<Pending> left;
  for (auto& change_there : pending_) {
    if (change_there.directory != synced) {
      left.push_back(std::move(change_there));
      continue;
    }
    apply(durable_, change_there.changes);
    if (change_there.removed_tree.empty()) continue;
    std::erase_if(left, [&](const Pending& earlier) { return is_in(earlier.directory, change_there.removed_tree); });
  }
  pending_ = std::move(left);
}

void CrashFileSystem::Disk::take(const Operation& op) {
  switch (op.kind) {
    case Kind::kCreate: change(op.path, {{op.path, op.file}}); break;
    case Kind::kAppend: inodes_[op.file].content += op.content; break;
    case Kind::kWriteAt: write_at(op); break;
    case Kind::kSync: inodes_[op.file].synced = inodes_[op.file].content; break;
    case Kind::kRename: rename(op); break;
    case Kind::kRemove: change(op.path, {{op.path, -1}}); break;
    case Kind::kRemoveTree: remove_tree(op.path); break;
    case Kind::kCreateDirectories: directories_.push_back(op.path); break;
    case Kind::kSyncDirectory: sync_directory(op.path); break;
  }
}

std::string CrashFileSystem::Disk::found_content(const Inode& inode, Unsynced unsynced, const Draw& draw) {
  if (unsynced == Unsynced::kLost || unsynced == Unsynced::kContentLost) return inode.synced;
  std::string content = inode.content;
  if (unsynced == Unsynced::kKept) return content;
  // Of what was written over synced blocks each may be the old one.
  for (size_t at = 0; at < inode.synced.size(); at += kBlockBytes) {
    if (content.compare(at, kBlockBytes, inode.synced, at, kBlockBytes) == 0 || draw(2) == 0) continue;
    const size_t size = std::min(kBlockBytes, inode.synced.size() - at);
    content.replace(at, size, inode.synced, at, size);
  }
  const auto at_risk = static_cast<int64_t>(content.size() - inode.synced.size());
  content.resize(inode.synced.size() + static_cast<size_t>(draw(at_risk + 1)));
  // Blocks reach the disk in any order: a file may have its size and holes in it.
  const bool has_holes = draw(2) == 0;
  for (size_t at = inode.synced.size(); has_holes && at < content.size(); at += kBlockBytes) {
    if (draw(2) == 0) continue;
    std::fill_n(content.begin() + static_cast<std::ptrdiff_t>(at), std::min(kBlockBytes, content.size() - at), '\0');
  }
  return content;
}

std::unique_ptr<MemoryFileSystem> CrashFileSystem::Disk::after_crash(Unsynced unsynced, uint64_t seed, size_t count) {
  uint64_t draws = 0;
  const Draw draw = [&](int64_t n) { return random_below({.seed = seed, .stream = count}, draws++, n); };
  for (const auto& change_there : pending_) {
    if (unsynced == Unsynced::kLost || (unsynced == Unsynced::kRandom && draw(2) == 0)) continue;
    apply(durable_, change_there.changes);
  }
  auto state = std::make_unique<MemoryFileSystem>();
  for (const auto& directory : directories_) state->create_directories(directory);
  for (const auto& [path, file] : durable_) state->create(path)->append(found_content(inodes_[file], unsynced, draw));
  return state;
}

std::unique_ptr<MemoryFileSystem> CrashFileSystem::crash_state(size_t count, Unsynced unsynced, uint64_t seed) const {
  Disk disk;
  for (size_t i = 0; i < std::min(count, operations_.size()); ++i) disk.take(operations_[i]);
  return disk.after_crash(unsynced, seed, count);
}

}  // namespace tessera::checkpoint
