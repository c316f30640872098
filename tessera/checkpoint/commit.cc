#include "tessera/checkpoint/commit.h"

#include "tessera/base/error.h"
#include "tessera/checkpoint/load.h"

namespace tessera::checkpoint {
namespace {

void make_durable_directory(FileSystem& files, const std::string& directory) {
  if (files.is_directory(directory)) return;
  const auto parent = parent_path(directory);
  if (parent != directory) make_durable_directory(files, parent);
  files.create_directories(directory);
  files.sync_directory(parent);
}

void remove_if_there(FileSystem& files, const std::string& path) {
  if (files.exists(path)) files.remove(path);
}

// An earlier save may have ended between its steps 3 and 4: then the waiting manifest is the one that describes the
// file, and must be put in place before its name is used again.
void finish_pending(FileSystem& files, const std::string& path) {
  const auto pending = pending_manifest_path(path);
  if (!files.exists(pending)) return;
  if (files.exists(path) && verify(files, path).manifest_file == pending) {
    files.rename(pending, manifest_path(path));
  } else {
    files.remove(pending);
  }
  files.sync_directory(parent_path(path));
}

void write_durably(FileSystem& files, const std::string& path, std::string_view text) {
  const auto file = files.create(path);
  file->append(text);
  file->sync();
  file->close();
}

// Step 1; returns the manifest of what was written.
Manifest write_data(FileSystem& files, const std::string& temporary, unsigned mode,
                    FunctionRef<Manifest(WritableFile&)> write) {
  remove_if_there(files, temporary);  // a read-only one could not be opened for writing
  const auto file = files.create(temporary, mode);
  auto manifest = write(*file);
  file->sync();
  file->close();
  return manifest;
}

}  // namespace

void commit(FileSystem& files, const std::string& path, unsigned mode, FunctionRef<Manifest(WritableFile&)> write) {
  const auto directory = parent_path(path);
  const auto temporary = path + ".tmp";
  const auto pending = pending_manifest_path(path);
  make_durable_directory(files, directory);
  finish_pending(files, path);
  try {
    const auto manifest = write_data(files, temporary, mode, write);
    write_durably(files, pending, to_text(manifest));
    files.sync_directory(directory);
    files.rename(temporary, path);
  } catch (...) {
    try {  // give the space back; the first error is the one that counts
      remove_if_there(files, temporary);
      remove_if_there(files, pending);
    } catch (const Error&) {
    }
    throw;
  }
  files.sync_directory(directory);
  files.rename(pending, manifest_path(path));
  files.sync_directory(directory);
}

}  // namespace tessera::checkpoint
