#include "tessera/checkpoint/save.h"

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

ManifestTensor manifest_tensor(const Entry& entry, const Written& written, bool appended) {
  ManifestTensor tensor{.name = entry.name, .is_text = entry.is_text, .appended = appended};
  ManifestSlice slice{.size_bytes = written.size_bytes, .crc32c = written.crc32c};
  if (!entry.is_text) {
    tensor.dtype = entry.value.dtype;
    tensor.shape = entry.value.shape;
    slice.shape = tensor.shape;
    slice.offset = Shape(std::vector<int64_t>(static_cast<size_t>(tensor.shape.ndim()), 0));
  }
  tensor.slices.push_back(slice);
  return tensor;
}

// Step 1; returns the manifest of what was written.
Manifest write_data(FileSystem& files, const std::string& temporary, const std::string& name,
                    const SaveOptions& options, std::span<const Entry> entries, const CheckpointInfo& info) {
  Manifest manifest{.info = info};
  remove_if_there(files, temporary);  // a read-only one could not be opened for writing
  const auto file = files.create(temporary, options.read_only ? 0400 : 0644);
  CkptWriter writer(*file, {.trailer = options.trailer, .max_record_bytes = options.max_record_bytes});
  for (const auto& entry : entries) {
    manifest.tensors.push_back(manifest_tensor(entry, writer.add(entry), /*appended=*/false));
  }
  for (const auto& entry : options.append_info) {
    manifest.tensors.push_back(manifest_tensor(entry, writer.add(entry), /*appended=*/true));
  }
  writer.finish();
  if (writer.size_bytes() == 0) throw InvalidArgument("{}: a checkpoint must have a tensor with elements", name);
  file->sync();
  file->close();
  manifest.files.push_back({.name = name, .size_bytes = writer.size_bytes(), .crc32c = writer.crc32c()});
  return manifest;
}

void commit(FileSystem& files, const std::string& path, const SaveOptions& options, std::span<const Entry> entries,
            const CheckpointInfo& info) {
  const auto directory = parent_path(path);
  const auto temporary = path + ".tmp";
  const auto pending = pending_manifest_path(path);
  make_durable_directory(files, directory);
  finish_pending(files, path);
  try {
    const auto manifest = write_data(files, temporary, base_name(path), options, entries, info);
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

}  // namespace

std::string save(FileSystem& files, const SaveOptions& options, std::span<const Entry> entries,
                 const CheckpointInfo& info) {
  auto path = with_ckpt_suffix(options.path);
  if (options.barrier == nullptr) {
    commit(files, path, options, entries, info);
    return path;
  }
  // The writer's own error keeps its type; the others learn of it, so that nobody waits for a file that will not come.
  std::exception_ptr own;
  std::string failure;
  if (options.barrier->rank() == options.writer) {
    try {
      commit(files, path, options, entries, info);
    } catch (const std::exception& error) {
      own = std::current_exception();
      failure = fmt::format("cannot save: {}", error.what());
    }
  }
  try {
    require_success(*options.barrier, failure);
  } catch (const IoError&) {
    if (own) std::rethrow_exception(own);
    throw;
  }
  return path;
}

}  // namespace tessera::checkpoint
