// Encrypted .ckpt files: AES-GCM or AES-CBC of the whole file in blocks of 64 MiB, byte-compatible with the reference's
// release 2.10. docs/checkpoint_format.md gives every byte. Keys are never part of a message, a file or a log.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/file_system.h"

namespace tessera::checkpoint {

struct Encryption {
  std::string key;               // 16, 24 or 32 bytes, used as they are; empty: no encryption
  std::string mode = "AES-GCM";  // or "AES-CBC", which does not notice every wrong key or change by itself

  bool is_on() const { return !key.empty(); }
};

// Throws InvalidArgument for a key of another length or an unknown mode. Without a key nothing is looked at.
void check_encryption(const Encryption& encryption);

// What a file of these first bytes is encrypted with: "AES-GCM" or "AES-CBC"; nullopt for other files.
std::optional<std::string> encryption_mode_of(std::span<const std::byte> bytes);

// Encrypts what is appended on its way into another file. Complete after finish(); the caller syncs and closes `file`.
class EncryptingFile : public WritableFile {
 public:
  // `file` must outlive this. Throws as check_encryption does. `block_bytes` is for tests.
  EncryptingFile(WritableFile& file, const Encryption& encryption, int64_t block_bytes = kBlockBytes);
  ~EncryptingFile() override;

  using WritableFile::append;
  void append(std::span<const std::byte> bytes) override;
  // What is encrypted goes from the beginning to the end: throws InternalError.
  void write_at(int64_t offset, std::span<const std::byte> bytes) override;
  void sync() override { file_.sync(); }
  void close() override { file_.close(); }
  void finish();

  // Size and checksum of the encrypted bytes so far.
  int64_t size_bytes() const { return size_bytes_; }
  uint32_t crc32c() const { return crc32c_; }

  static constexpr int64_t kBlockBytes = int64_t{64} << 20;

 private:
  void write_block();
  void put(std::span<const std::byte> bytes);

  WritableFile& file_;
  Encryption encryption_;
  size_t block_bytes_;
  std::vector<std::byte> block_;
  int64_t size_bytes_ = 0;
  uint32_t crc32c_ = 0;
};

// The plain bytes of an encrypted file, in memory. Throws InvalidArgument naming `path` when the key or the mode is
// another one, the file is not encrypted, or is damaged.
std::unique_ptr<ReadableFile> decrypt(std::span<const std::byte> bytes, const std::string& path,
                                      const Encryption& encryption);

}  // namespace tessera::checkpoint
