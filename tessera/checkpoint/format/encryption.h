// Encrypted .ckpt files, in blocks of 64 MiB. docs/checkpoint_format.md gives every byte.
//
//   AES-GCM            Tessera's form: each block is bound to its file, its place and whether it is the last, so that
//   no
//                      change goes unnoticed: no flipped bit, no block that was moved, taken out or put in
//   AES-GCM/reference  what release 2.10 of the reference writes and reads. Its blocks are bound to nothing: without a
//                      manifest nobody notices that some were exchanged or are gone
//   AES-CBC            the reference's other form, which notices hardly any change. It is only read
//
// Keys are never part of a message, a file or a log.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/files/file_system.h"

namespace tessera::checkpoint {

inline constexpr std::string_view kAesGcm = "AES-GCM";
inline constexpr std::string_view kReferenceAesGcm = "AES-GCM/reference";
inline constexpr std::string_view kAesCbc = "AES-CBC";

struct Encryption {
  std::string key;  // 16, 24 or 32 bytes; empty: no encryption
  // One of the above. For reading, "AES-GCM" stands for the reference's form, too; a file of Tessera's form says what
  // it is and is read whatever the mode.
  std::string mode = "AES-GCM";

  bool is_on() const { return !key.empty(); }
};

// Throws InvalidArgument for a key of another length, an unknown mode, or a mode other than the usual one without a
// key: whoever names one expects an encrypted file.
void check_encryption(const Encryption& encryption);
// The same of what a file is to be written with: AES-CBC is refused.
void check_encryption_to_write(const Encryption& encryption);

// The mode that a file of these first bytes was written with; nullopt for files that are not encrypted.
std::optional<std::string> encryption_mode_of(std::span<const std::byte> bytes);

// Encrypts what is appended on its way into another file. Complete after finish(); the caller syncs and closes `file`.
// It can do AES-CBC, for tests; whoever writes a user's file asks check_encryption_to_write() first.
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
  void write_block(bool is_last);
  void write_bound_block(bool is_last);
  void write_reference_block();
  void put(std::span<const std::byte> bytes);

  WritableFile& file_;
  Encryption encryption_;
  size_t block_bytes_;
  std::vector<std::byte> block_;
  std::vector<std::byte> header_;  // the header of Tessera's form
  std::string file_key_;
  uint64_t num_blocks_ = 0;
  int64_t size_bytes_ = 0;
  uint32_t crc32c_ = 0;
};

// The plain bytes of an encrypted file, in memory. Warns where the file is in a form of the reference. Throws
// InvalidArgument naming `path` when the key or the mode is another one, the file is not encrypted, or is damaged.
std::unique_ptr<ReadableFile> decrypt(std::span<const std::byte> bytes, const std::string& path,
                                      const Encryption& encryption);

}  // namespace tessera::checkpoint
