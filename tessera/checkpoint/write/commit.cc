#include "tessera/checkpoint/write/commit.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/checkpoint/manifest/present_files.h"
#include "tessera/checkpoint/read/load.h"

namespace tessera::checkpoint {
namespace {

// An earlier save may have ended between its steps 3 and 4: then the waiting manifest is the one that describes the
// file, and must be put in place before its name is used again.
void finish_pending(FileSystem& files, const std::string& path) {
  const auto pending = pending_manifest_path(path);
  if (!is_manifest_there(files, pending)) return;
  if (files.exists(path) && verify(files, path).manifest_file == pending) {
    files.rename(pending, manifest_path(path));
  } else {
    files.remove(pending);
  }
  files.sync_directory(parent_path(path));
}

// Syncs as it goes, so that what is left for the end is never long: other ranks wait.
class SteadyFile : public WritableFile {
 public:
  explicit SteadyFile(WritableFile& file) : file_(file) {}
  using WritableFile::append;
  void append(std::span<const std::byte> bytes) override {
    file_.append(bytes);
    unsynced_bytes_ += std::ssize(bytes);
    if (unsynced_bytes_ >= kMaxUnsyncedBytes) sync();
  }
  void write_at(int64_t offset, std::span<const std::byte> bytes) override { file_.write_at(offset, bytes); }
  void sync() override {
    file_.sync();
    unsynced_bytes_ = 0;
  }
  void close() override { file_.close(); }

 private:
  static constexpr int64_t kMaxUnsyncedBytes = int64_t{256} << 20;
  WritableFile& file_;
  int64_t unsynced_bytes_ = 0;
};

void write_text_durably(FileSystem& files, const std::string& path, unsigned mode, std::string_view text) {
  remove_if_there(files, path);  // one of other permissions would keep them
  const auto file = files.create(path, mode);
  file->append(text);
  file->sync();
  file->close();
}

}  // namespace

unsigned access_of(const Encryption& encryption) { return encryption.is_on() ? kOwnerAccess : kUmaskAccess; }

std::string temporary_path(const std::string& path) { return path + ".tmp"; }

void remove_if_there(FileSystem& files, const std::string& path) {
  if (files.exists(path)) files.remove(path);
}

std::string saving_lock_path(const std::string& path) { return path + kSavingSuffix; }

std::unique_ptr<WaitingLock> prepare_commit(FileSystem& files, const std::string& path) {
  auto lock = std::make_unique<WaitingLock>(files, saving_lock_path(path));
  finish_pending(files, path);
  return lock;
}

Manifest write_durably(FileSystem& files, const std::string& path, unsigned mode,
                       FunctionRef<Manifest(WritableFile&)> write) {
  remove_if_there(files, path);  // a read-only one could not be opened for writing
  const auto file = files.create(path, mode);
  SteadyFile steady(*file);
  auto manifest = write(steady);
  file->sync();
  file->close();
  return manifest;
}

Manifest write_encrypted(WritableFile& file, const Encryption& encryption, FunctionRef<Manifest(WritableFile&)> write) {
  if (!encryption.is_on()) return write(file);
  EncryptingFile encrypting(file, encryption);
  auto manifest = write(encrypting);
  encrypting.finish();
  auto& described = manifest.files[0];
  described.size_bytes = encrypting.size_bytes();
  described.crc32c = encrypting.crc32c();
  described.encryption = encryption.mode;
  // Checksums of values in a file that nobody else can read would say what small ones are.
  for (auto& tensor : manifest.tensors) {
    tensor.slices[0].crc32c = 0;
    tensor.slices[0].hash.reset();
  }
  return manifest;
}

void stage_manifest(FileSystem& files, const std::string& path, const Manifest& manifest) {
  const bool is_encrypted = std::any_of(manifest.files.begin(), manifest.files.end(),
                                        [](const ManifestFile& file) { return !file.encryption.empty(); });
  write_text_durably(files, pending_manifest_path(path), is_encrypted ? kOwnerAccess : kUmaskAccess, to_text(manifest));
  files.sync_directory(parent_path(path));
}

void publish(FileSystem& files, const std::string& path) { files.rename(temporary_path(path), path); }

void finish_commit(FileSystem& files, const std::string& path) {
  files.sync_directory(parent_path(path));
  files.rename(pending_manifest_path(path), manifest_path(path));
  files.sync_directory(parent_path(path));
}

void abandon_commit(FileSystem& files, const std::string& path) {
  try {
    remove_if_there(files, temporary_path(path));
    remove_if_there(files, pending_manifest_path(path));
  } catch (const Error&) {  // on a full or dead disk
  }
}

void commit(FileSystem& files, const std::string& path, unsigned mode, FunctionRef<Manifest(WritableFile&)> write) {
  const auto lock = prepare_commit(files, path);
  try {
    stage_manifest(files, path, write_durably(files, temporary_path(path), mode, write));
    publish(files, path);
  } catch (...) {
    abandon_commit(files, path);
    throw;
  }
  finish_commit(files, path);
}

}  // namespace tessera::checkpoint
