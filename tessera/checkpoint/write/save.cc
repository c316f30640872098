#include "tessera/checkpoint/write/save.h"

#include "tessera/base/error.h"
#include "tessera/checkpoint/format/ckpt_path.h"
#include "tessera/checkpoint/format/ckpt_writer.h"
#include "tessera/checkpoint/lock/share_outcome.h"
#include "tessera/checkpoint/manifest/manifest_tensor.h"
#include "tessera/checkpoint/write/commit.h"

namespace tessera::checkpoint {
namespace {

struct Entries {
  size_t count;
  FunctionRef<Entry(size_t)> get;
};

Manifest write_data(WritableFile& file, const std::string& name, const SaveOptions& options, const Entries& entries,
                    const CheckpointInfo& info) {
  Manifest manifest{.info = info};
  CkptWriter writer(file, {.trailer = options.trailer, .max_record_bytes = options.max_record_bytes});
  for (size_t i = 0; i < entries.count; ++i) {
    const Entry entry = entries.get(i);
    manifest.tensors.push_back(manifest_tensor(entry, writer.add(entry), /*appended=*/false));
  }
  for (const auto& entry : options.append_info) {
    manifest.tensors.push_back(manifest_tensor(entry, writer.add(entry), /*appended=*/true));
  }
  writer.finish();
  if (writer.size_bytes() == 0) throw InvalidArgument("{}: a checkpoint must have a tensor with elements", name);
  manifest.files.push_back({.name = name, .size_bytes = writer.size_bytes(), .crc32c = writer.crc32c()});
  return manifest;
}

void save_entries(FileSystem& files, const std::string& path, const SaveOptions& options, const Entries& entries,
                  const CheckpointInfo& info) {
  const auto access = access_of(options.encryption);
  commit(files, path, options.read_only ? 0400 : access, [&](WritableFile& file) {
    return write_encrypted(file, options.encryption,
                           [&](WritableFile& to) { return write_data(to, base_name(path), options, entries, info); });
  });
}

}  // namespace

ManifestTensor manifest_tensor(const Entry& entry, const Written& written, bool appended) {
  ManifestTensor tensor{.name = entry.name, .is_text = entry.is_text, .appended = appended};
  ManifestSlice slice{.size_bytes = written.size_bytes, .crc32c = written.crc32c};
  if (!entry.is_text) {
    tensor.dtype = entry.value.dtype;
    tensor.shape = entry.value.shape;
    slice.shape = tensor.shape;
    slice.hash = written.hash;
    slice.offset = Shape(std::vector<int64_t>(static_cast<size_t>(tensor.shape.ndim()), 0));
  }
  tensor.slices.push_back(slice);
  return tensor;
}

std::string save(FileSystem& files, const SaveOptions& options, std::span<const Entry> entries,
                 const CheckpointInfo& info) {
  return save(
      files, options, entries.size(), [&](size_t i) { return entries[i]; }, info);
}

std::string save(FileSystem& files, const SaveOptions& options, size_t num_entries, FunctionRef<Entry(size_t)> entry,
                 const CheckpointInfo& info) {
  check_encryption_to_write(options.encryption);
  const Entries entries{num_entries, entry};
  if (options.barrier == nullptr) {
    auto path = ckpt_to_write(files, options.path);
    save_entries(files, path, options, entries, info);
    return path;
  }
  // The others learn of a failure, so that nobody waits for a file that will not come.
  run_together(*options.barrier, "cannot save", [&] {
    if (options.barrier->rank() == options.writer) {
      save_entries(files, ckpt_to_write(files, options.path), options, entries, info);
    }
    return std::string();
  });
  return with_ckpt_suffix(options.path);
}

}  // namespace tessera::checkpoint
