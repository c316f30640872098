#include "tessera/checkpoint/encryption.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tessera/base/crc32c.h"
#include "tessera/base/error.h"

namespace tessera::checkpoint {
namespace {

constexpr uint32_t kGcmMagic = 0x7F3A5ED8;
constexpr uint32_t kCbcMagic = 0x7F3A5ED9;
constexpr std::string_view kGcm = "AES-GCM";
constexpr std::string_view kCbc = "AES-CBC";
constexpr size_t kTagBytes = 16;
constexpr size_t kIvBytes = 16;  // GCM uses the first 12, EVP's default
constexpr size_t kCipherBlockBytes = 16;
constexpr size_t kWordBytes = 4;
constexpr uint32_t kMaxContentBytes = 0x7FFFFFFF;  // more than OpenSSL takes at once

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

const EVP_CIPHER* cipher_of(const Encryption& encryption) {
  const bool gcm = encryption.mode == kGcm;
  switch (encryption.key.size()) {
    case 16: return gcm ? EVP_aes_128_gcm() : EVP_aes_128_cbc();
    case 24: return gcm ? EVP_aes_192_gcm() : EVP_aes_192_cbc();
    default: return gcm ? EVP_aes_256_gcm() : EVP_aes_256_cbc();
  }
}

unsigned char* as_bytes(std::byte* data) { return reinterpret_cast<unsigned char*>(data); }
const unsigned char* as_bytes(const std::byte* data) { return reinterpret_cast<const unsigned char*>(data); }
const unsigned char* key_bytes(const Encryption& encryption) {
  return reinterpret_cast<const unsigned char*>(encryption.key.data());
}

Context start(const Encryption& encryption, const std::byte* iv, bool encrypts) {
  Context context(EVP_CIPHER_CTX_new());
  const bool ok = context != nullptr && EVP_CipherInit_ex(context.get(), cipher_of(encryption), nullptr,
                                                          key_bytes(encryption), as_bytes(iv), encrypts ? 1 : 0) == 1;
  check(ok, "OpenSSL refuses a cipher");
  return context;
}

class MemoryFile : public ReadableFile {
 public:
  explicit MemoryFile(std::vector<std::byte> content) : content_(std::move(content)) {}
  std::span<const std::byte> bytes() const override { return content_; }

 private:
  std::vector<std::byte> content_;
};

// Reads what a block consists of; nothing of it is believed before the bytes are there.
class BlockReader {
 public:
  BlockReader(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  bool done() const { return at_ == bytes_.size(); }
  size_t offset() const { return at_; }
  [[noreturn]] void fail(std::string_view problem) const {
    throw InvalidArgument("{}: byte {}: {}: the encrypted file is damaged", path_, at_, problem);
  }
  std::span<const std::byte> take(size_t count, std::string_view what) {
    if (count > bytes_.size() - at_) fail(fmt::format("{} of {} bytes goes beyond the end", what, count));
    const auto taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
  }
  uint32_t word(std::string_view what) {
    uint32_t value = 0;
    std::memcpy(&value, take(kWordBytes, what).data(), kWordBytes);
    return value;
  }
  void expect(uint32_t wanted, std::string_view what) {
    const auto value = word(what);
    if (value != wanted) fail(fmt::format("{} is {}, it must be {}", what, value, wanted));
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& path_;
  size_t at_ = 0;
};

struct Block {
  std::span<const std::byte> tag;  // GCM only
  std::span<const std::byte> iv;
  std::span<const std::byte> content;
};

Block read_block(BlockReader& reader, bool gcm) {
  Block block;
  reader.expect(gcm ? kGcmMagic : kCbcMagic, "a block's first word");
  if (gcm) block.tag = reader.take(kTagBytes, "a tag");
  const auto total = reader.word("a block's length");
  reader.expect(kIvBytes, "the length of an initial vector");
  block.iv = reader.take(kIvBytes, "an initial vector");
  const auto size = reader.word("a content's length");
  if (uint64_t{size} + 2 * kWordBytes + kIvBytes != total) {
    reader.fail(fmt::format("a block of {} bytes has a content of {}", total, size));
  }
  if (size > kMaxContentBytes) reader.fail(fmt::format("a content has {} bytes", size));
  block.content = reader.take(size, "a content");
  return block;
}

// Appends the plain bytes of a block; false when key, tag or padding do not fit.
bool decrypt_block(const Block& block, const Encryption& encryption, std::vector<std::byte>& to) {
  const auto context = start(encryption, block.iv.data(), /*encrypts=*/false);
  const size_t before = to.size();
  to.resize(before + block.content.size() + kCipherBlockBytes);
  int updated = 0;
  int finished = 0;
  bool ok = EVP_DecryptUpdate(context.get(), as_bytes(to.data() + before), &updated, as_bytes(block.content.data()),
                              static_cast<int>(block.content.size())) == 1;
  if (ok && !block.tag.empty()) {
    std::array<std::byte, kTagBytes> tag{};
    std::copy(block.tag.begin(), block.tag.end(), tag.begin());
    ok = EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag.data()) == 1;
  }
  ok = ok && EVP_DecryptFinal_ex(context.get(), as_bytes(to.data() + before + updated), &finished) == 1;
  to.resize(before + (ok ? static_cast<size_t>(updated) + static_cast<size_t>(finished) : 0));
  return ok;
}

}  // namespace

void check_encryption(const Encryption& encryption) {
  if (!encryption.is_on()) return;
  const auto size = encryption.key.size();
  if (size != 16 && size != 24 && size != 32) {
    throw InvalidArgument("the key of an encrypted checkpoint must have 16, 24 or 32 bytes, it has {}", size);
  }
  if (encryption.mode != kGcm && encryption.mode != kCbc) {
    throw InvalidArgument("the mode of an encrypted checkpoint must be \"AES-GCM\" or \"AES-CBC\", got \"{}\"",
                          encryption.mode);
  }
}

std::optional<std::string> encryption_mode_of(std::span<const std::byte> bytes) {
  uint32_t magic = 0;
  if (bytes.size() >= sizeof(magic)) std::memcpy(&magic, bytes.data(), sizeof(magic));
  if (magic == kGcmMagic) return std::string(kGcm);
  if (magic == kCbcMagic) return std::string(kCbc);
  return std::nullopt;
}

EncryptingFile::EncryptingFile(WritableFile& file, const Encryption& encryption, int64_t block_bytes)
    : file_(file), encryption_(encryption), block_bytes_(static_cast<size_t>(block_bytes)) {
  check_encryption(encryption_);
  check(encryption_.is_on(), "encryption without a key");
}

EncryptingFile::~EncryptingFile() {
  OPENSSL_cleanse(encryption_.key.data(), encryption_.key.size());
  OPENSSL_cleanse(block_.data(), block_.size());
}

void EncryptingFile::write_at(int64_t /*offset*/, std::span<const std::byte> /*bytes*/) {
  throw InternalError("an encrypted file is written from its beginning to its end");
}

void EncryptingFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t count = std::min(bytes.size(), block_bytes_ - block_.size());
    block_.insert(block_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    bytes = bytes.subspan(count);
    if (block_.size() == block_bytes_) write_block();
  }
}

void EncryptingFile::finish() {
  if (!block_.empty()) write_block();
}

void EncryptingFile::put(std::span<const std::byte> bytes) {
  file_.append(bytes);
  size_bytes_ += std::ssize(bytes);
  crc32c_ = tessera::crc32c(bytes, crc32c_);
}

void EncryptingFile::write_block() {
  const bool gcm = encryption_.mode == kGcm;
  std::array<std::byte, kIvBytes> iv{};
  if (RAND_bytes(as_bytes(iv.data()), kIvBytes) != 1) throw IoError("no random numbers for an encrypted checkpoint");
  const auto context = start(encryption_, iv.data(), /*encrypts=*/true);
  const auto size = static_cast<int>(block_.size());
  block_.resize(block_.size() + kCipherBlockBytes);
  int updated = 0;
  int finished = 0;
  const bool ok =
      EVP_EncryptUpdate(context.get(), as_bytes(block_.data()), &updated, as_bytes(block_.data()), size) == 1 &&
      EVP_EncryptFinal_ex(context.get(), as_bytes(block_.data() + updated), &finished) == 1;
  check(ok, "OpenSSL cannot encrypt");
  const auto content = static_cast<uint32_t>(updated + finished);
  const auto word = [&](uint32_t value) { put(std::as_bytes(std::span(&value, 1))); };
  word(gcm ? kGcmMagic : kCbcMagic);
  if (gcm) {
    std::array<std::byte, kTagBytes> tag{};
    check(EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag.data()) == 1, "no tag");
    put(tag);
  }
  word(static_cast<uint32_t>(2 * kWordBytes + kIvBytes) + content);
  word(kIvBytes);
  put(iv);
  word(content);
  put(std::span(block_).first(content));
  block_.clear();
}

std::unique_ptr<ReadableFile> decrypt(std::span<const std::byte> bytes, const std::string& path,
                                      const Encryption& encryption) {
  check_encryption(encryption);
  const auto mode = encryption_mode_of(bytes);
  if (!mode) throw InvalidArgument("{}: is not encrypted, but a key was given; leave it out", path);
  if (!encryption.is_on()) throw InvalidArgument("{}: is encrypted ({}); give its key", path, *mode);
  if (*mode != encryption.mode) {
    throw InvalidArgument("{}: is encrypted with {}, not with {}", path, *mode, encryption.mode);
  }
  std::vector<std::byte> plain;
  plain.reserve(bytes.size() + kCipherBlockBytes);
  for (BlockReader reader(bytes, path); !reader.done();) {
    const auto offset = reader.offset();
    if (decrypt_block(read_block(reader, *mode == kGcm), encryption, plain)) continue;
    throw InvalidArgument(
        "{}: the block at byte {} cannot be decrypted: the key is another one, or the file is damaged", path, offset);
  }
  return std::make_unique<MemoryFile>(std::move(plain));
}

}  // namespace tessera::checkpoint
