#include "tessera/checkpoint/save.h"

#include "tessera/base/error.h"
#include "tessera/checkpoint/commit.h"

namespace tessera::checkpoint {
namespace {

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

Manifest write_data(WritableFile& file, const std::string& name, const SaveOptions& options,
                    std::span<const Entry> entries, const CheckpointInfo& info) {
  Manifest manifest{.info = info};
  CkptWriter writer(file, {.trailer = options.trailer, .max_record_bytes = options.max_record_bytes});
  for (const auto& entry : entries) {
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

void save_alone(FileSystem& files, const std::string& path, const SaveOptions& options, std::span<const Entry> entries,
                const CheckpointInfo& info) {
  commit(files, path, options.read_only ? 0400 : 0644,
         [&](WritableFile& file) { return write_data(file, base_name(path), options, entries, info); });
}

}  // namespace

std::string save(FileSystem& files, const SaveOptions& options, std::span<const Entry> entries,
                 const CheckpointInfo& info) {
  auto path = with_ckpt_suffix(options.path);
  if (options.barrier == nullptr) {
    save_alone(files, path, options, entries, info);
    return path;
  }
  // The writer's own error keeps its type; the others learn of it, so that nobody waits for a file that will not come.
  std::exception_ptr own;
  std::string failure;
  if (options.barrier->rank() == options.writer) {
    try {
      save_alone(files, path, options, entries, info);
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
