#include "tessera/checkpoint/read/decrypt_checkpoint.h"

#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/checkpoint/format/ckpt_reader.h"
#include "tessera/checkpoint/manifest/present_files.h"
#include "tessera/checkpoint/manifest/verified_entries.h"
#include "tessera/checkpoint/read/load.h"

namespace tessera::checkpoint {
namespace {

// What a wrong key makes of a file whose mode does not notice it is no checkpoint.
CkptFile parse_decrypted(std::unique_ptr<ReadableFile> plain, const std::string& path) {
  try {
    return {std::move(plain), path};
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("{} (decrypted: either the key is another one, or the file is damaged)", error.what());
  }
}

CkptFile decrypt_file(FileSystem& files, const std::string& path, const Encryption& encryption, FileSystem& to) {
  auto file = parse_decrypted(decrypt(files.open(path)->bytes(), path, encryption), path);
  to.create(path)->append(file.bytes());
  return file;
}

// Turns the manifest's file of this index into the plain one.
void describe_plain(Manifest& manifest, size_t index, const CkptFile& file) {
  require_values(file, manifest, static_cast<int>(index));
  auto& described = manifest.files[index];
  described.encryption.clear();
  described.size_bytes = std::ssize(file.bytes());
  described.crc32c = crc32c(file.bytes());
  for (const auto& [tensor, slice, entry] : described_entries(file, manifest, static_cast<int>(index))) {
    manifest.tensors[tensor].slices[slice].crc32c = entry.crc32c();
  }
}

}  // namespace

std::unique_ptr<FileSystem> decrypt_checkpoint(FileSystem& files, const std::string& path,
                                               const Encryption& encryption) {
  auto plain = std::make_unique<MemoryFileSystem>();
  plain->create_directories(parent_path(path));
  if (!has_manifest(files, path)) {
    refuse_slices_without_manifest(files, path);
    decrypt_file(files, path, encryption, *plain);
    return plain;
  }
  auto verification = verify(files, path);
  if (verification.state != Verified::kYes) throw InvalidArgument(verification.problem);
  auto& manifest = *verification.manifest;
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    const auto file = decrypt_file(files, path_beside(path, manifest.files[i].name), encryption, *plain);
    describe_plain(manifest, i, file);
  }
  plain->create(manifest_path(path))->append(to_text(manifest));
  return plain;
}

}  // namespace tessera::checkpoint
