#include "tessera/checkpoint/format/encryption.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/base/files/mapped_guard.h"
#include "tessera/base/logging.h"

namespace tessera::checkpoint {
namespace {

constexpr uint32_t kGcmMagic = 0x7F3A5ED8;
constexpr uint32_t kCbcMagic = 0x7F3A5ED9;
constexpr size_t kTagBytes = 16;
constexpr size_t kIvBytes = 16;  // GCM uses the first 12, EVP's default
constexpr size_t kCipherBlockBytes = 16;
constexpr size_t kWordBytes = 4;
constexpr uint32_t kMaxContentBytes = 0x7FFFFFFF;  // more than OpenSSL takes at once

// Tessera's form. The header: magic, bytes of a full block, zero, salt.
constexpr std::string_view kMagic = "\x89TSRAES1";
constexpr size_t kSaltAt = 16;
constexpr size_t kHeaderBytes = 48;
constexpr size_t kNonceBytes = 12;
constexpr uint32_t kLastBlock = 1;

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

const EVP_CIPHER* cipher_of(const Encryption& encryption) {
  const bool gcm = encryption.mode != kAesCbc;
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

// What is bound to a block: the file's header, its place, its size, and whether it is the last, which makes its place
// the number of blocks.
std::vector<std::byte> bound_to(std::span<const std::byte> header, uint64_t index, uint32_t size, uint32_t flags) {
  std::vector<std::byte> bound(header.begin(), header.end());
  const auto add = [&](const auto& number) {
    const auto bytes = std::as_bytes(std::span(&number, 1));
    bound.insert(bound.end(), bytes.begin(), bytes.end());
  };
  add(index);
  add(size);
  add(flags);
  return bound;
}

// A key for this file alone: no block of another one fits, and a block's place can be its nonce.
std::string file_key(const std::string& key, std::span<const std::byte> header) {
  std::string text = "tessera encrypted file 1";
  text.append(reinterpret_cast<const char*>(header.data() + kSaltAt), header.size() - kSaltAt);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  const bool ok =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), digest.data(), &size) != nullptr;
  check(ok && size >= key.size(), "OpenSSL derives no key");
  std::string derived(reinterpret_cast<const char*>(digest.data()), key.size());
  OPENSSL_cleanse(digest.data(), digest.size());
  return derived;
}

// Ready for a block of Tessera's form.
Context start_bound(const std::string& key, uint64_t index, std::span<const std::byte> bound, bool encrypts) {
  std::array<std::byte, kNonceBytes> nonce{};
  std::memcpy(nonce.data(), &index, sizeof(index));
  Context context = start({key, std::string(kAesGcm)}, nonce.data(), encrypts);
  int count = 0;
  check(EVP_CipherUpdate(context.get(), nullptr, &count, as_bytes(bound.data()), static_cast<int>(bound.size())) == 1,
        "OpenSSL takes no further data");
  return context;
}

void fill_randomly(std::span<std::byte> bytes) {
  if (RAND_bytes(as_bytes(bytes.data()), static_cast<int>(bytes.size())) != 1) {
    throw IoError("no random numbers for an encrypted checkpoint");
  }
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

// Appends the plain bytes of the next block of Tessera's form. False when the key is another one, or anything at all
// was changed.
bool decrypt_bound_block(BlockReader& reader, std::span<const std::byte> header, const std::string& key, uint64_t index,
                         uint32_t block_bytes, bool& is_last, std::vector<std::byte>& to) {
  const auto size = reader.word("a block's size");
  const auto flags = reader.word("a block's flags");
  if (flags > kLastBlock) reader.fail(fmt::format("a block's flags are {}", flags));
  is_last = flags == kLastBlock;
  if (size > block_bytes || (!is_last && size != block_bytes)) {
    reader.fail(fmt::format("a block has {} bytes, in this file it has {}", size, block_bytes));
  }
  const auto content = reader.take(size, "a content");
  const auto tag = reader.take(kTagBytes, "a tag");
  const auto context = start_bound(key, index, bound_to(header, index, size, flags), /*encrypts=*/false);
  const size_t before = to.size();
  to.resize(before + size);
  int updated = 0;
  int finished = 0;
  std::array<std::byte, kTagBytes> expected{};
  std::copy(tag.begin(), tag.end(), expected.begin());
  const bool ok = EVP_DecryptUpdate(context.get(), as_bytes(to.data() + before), &updated, as_bytes(content.data()),
                                    static_cast<int>(size)) == 1 &&
                  EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, expected.data()) == 1 &&
                  EVP_DecryptFinal_ex(context.get(), as_bytes(to.data() + before + updated), &finished) == 1;
  if (!ok) to.resize(before);
  return ok;
}

std::vector<std::byte> decrypt_bound(std::span<const std::byte> bytes, const std::string& path,
                                     const std::string& user_key) {
  BlockReader reader(bytes, path);
  const auto header = reader.take(kHeaderBytes, "the header");
  uint32_t block_bytes = 0;
  std::memcpy(&block_bytes, header.data() + kMagic.size(), sizeof(block_bytes));
  if (block_bytes == 0 || block_bytes > kMaxContentBytes) {
    reader.fail(fmt::format("the header says blocks of {} bytes", block_bytes));
  }
  auto key = file_key(user_key, header);
  std::vector<std::byte> plain;
  plain.reserve(bytes.size());
  bool is_last = false;
  for (uint64_t index = 0; !is_last; ++index) {
    if (reader.done()) reader.fail(fmt::format("ends after {} blocks, without its last one", index));
    const auto offset = reader.offset();
    if (decrypt_bound_block(reader, header, key, index, block_bytes, is_last, plain)) continue;
    OPENSSL_cleanse(key.data(), key.size());
    throw InvalidArgument(
        "{}: the block at byte {} cannot be decrypted: the key is another one, or the file is damaged", path, offset);
  }
  OPENSSL_cleanse(key.data(), key.size());
  if (!reader.done()) reader.fail("goes on after its last block");
  return plain;
}

std::vector<std::byte> decrypt_reference(std::span<const std::byte> bytes, const std::string& path,
                                         const Encryption& encryption) {
  std::vector<std::byte> plain;
  plain.reserve(bytes.size() + kCipherBlockBytes);
  for (BlockReader reader(bytes, path); !reader.done();) {
    const auto offset = reader.offset();
    if (decrypt_block(read_block(reader, encryption.mode != kAesCbc), encryption, plain)) continue;
    throw InvalidArgument(
        "{}: the block at byte {} cannot be decrypted: the key is another one, or the file is damaged", path, offset);
  }
  return plain;
}

// Whether a file of this mode may be read by a user who says that.
bool fits(const std::string& mode, const std::string& said) {
  return mode == kAesGcm || mode == said || (mode == kReferenceAesGcm && said == kAesGcm);
}

void warn_of_reference_form(const std::string& path, const std::string& mode) {
  log_warning("{}: is encrypted in the form {}, which {}; what is saved with \"AES-GCM\" notices every change", path,
              mode,
              mode == kAesCbc ? "notices hardly any change by itself"
                              : "does not notice by itself that blocks were exchanged or are gone");
}

}  // namespace

void check_encryption(const Encryption& encryption) {
  if (encryption.mode != kAesGcm && encryption.mode != kReferenceAesGcm && encryption.mode != kAesCbc) {
    throw InvalidArgument(
        "the mode of an encrypted checkpoint must be \"AES-GCM\", \"AES-GCM/reference\" or \"AES-CBC\", got \"{}\"",
        encryption.mode);
  }
  if (!encryption.is_on()) {
    if (encryption.mode == kAesGcm) return;
    throw InvalidArgument(
        "the mode \"{}\" without a key encrypts nothing: give the key, 16, 24 or 32 bytes, or leave the mode out",
        encryption.mode);
  }
  const auto size = encryption.key.size();
  if (size != 16 && size != 24 && size != 32) {
    throw InvalidArgument("the key of an encrypted checkpoint must have 16, 24 or 32 bytes, it has {}", size);
  }
}

void check_encryption_to_write(const Encryption& encryption) {
  check_encryption(encryption);
  if (!encryption.is_on() || encryption.mode != kAesCbc) return;
  throw InvalidArgument(
      "AES-CBC is only read: a file in that form does not notice when it is changed; save with \"AES-GCM\", or with "
      "\"AES-GCM/reference\" what the reference is to read");
}

std::optional<std::string> encryption_mode_of(std::span<const std::byte> bytes) {
  const MappedGuard guard(bytes, "");
  const auto magic = std::as_bytes(std::span(kMagic));
  if (bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin()))
    return std::string(kAesGcm);
  uint32_t word = 0;
  if (bytes.size() >= sizeof(word)) std::memcpy(&word, bytes.data(), sizeof(word));
  if (word == kGcmMagic) return std::string(kReferenceAesGcm);
  if (word == kCbcMagic) return std::string(kAesCbc);
  return std::nullopt;
}

EncryptingFile::EncryptingFile(WritableFile& file, const Encryption& encryption, int64_t block_bytes)
    : file_(file), encryption_(encryption), block_bytes_(static_cast<size_t>(block_bytes)) {
  check_encryption(encryption_);
  check(encryption_.is_on(), "encryption without a key");
}

EncryptingFile::~EncryptingFile() {
  OPENSSL_cleanse(encryption_.key.data(), encryption_.key.size());
  OPENSSL_cleanse(file_key_.data(), file_key_.size());
  OPENSSL_cleanse(block_.data(), block_.size());
}

void EncryptingFile::write_at(int64_t /*offset*/, std::span<const std::byte> /*bytes*/) {
  throw InternalError("an encrypted file is written from its beginning to its end");
}

void EncryptingFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // A full block waits for more to come: only then it is known not to be the last.
    if (block_.size() == block_bytes_) write_block(/*is_last=*/false);
    const size_t count = std::min(bytes.size(), block_bytes_ - block_.size());
    block_.insert(block_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    bytes = bytes.subspan(count);
  }
}

void EncryptingFile::finish() {
  if (!block_.empty() || encryption_.mode == kAesGcm) write_block(/*is_last=*/true);
}

void EncryptingFile::put(std::span<const std::byte> bytes) {
  file_.append(bytes);
  size_bytes_ += std::ssize(bytes);
  crc32c_ = tessera::crc32c(bytes, crc32c_);
}

void EncryptingFile::write_block(bool is_last) {
  if (encryption_.mode == kAesGcm) {
    write_bound_block(is_last);
  } else {
    write_reference_block();
  }
}

void EncryptingFile::write_bound_block(bool is_last) {
  if (header_.empty()) {
    header_.resize(kHeaderBytes);
    const auto magic = std::as_bytes(std::span(kMagic));
    std::copy(magic.begin(), magic.end(), header_.begin());
    const auto block_bytes = static_cast<uint32_t>(block_bytes_);
    std::memcpy(header_.data() + kMagic.size(), &block_bytes, sizeof(block_bytes));
    fill_randomly(std::span(header_).subspan(kSaltAt));
    file_key_ = file_key(encryption_.key, header_);
    put(header_);
  }
  const auto size = static_cast<uint32_t>(block_.size());
  const uint32_t flags = is_last ? kLastBlock : 0;
  const auto bound = bound_to(header_, num_blocks_, size, flags);
  const auto context = start_bound(file_key_, num_blocks_, bound, /*encrypts=*/true);
  int updated = 0;
  int finished = 0;
  std::array<std::byte, kTagBytes> tag{};
  const bool ok = EVP_EncryptUpdate(context.get(), as_bytes(block_.data()), &updated, as_bytes(block_.data()),
                                    static_cast<int>(size)) == 1 &&
                  EVP_EncryptFinal_ex(context.get(), as_bytes(block_.data() + updated), &finished) == 1 &&
                  EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag.data()) == 1;
  check(ok, "OpenSSL cannot encrypt");
  put(std::span(bound).last(2 * kWordBytes));  // size and flags
  put(block_);
  put(tag);
  block_.clear();
  ++num_blocks_;
}

void EncryptingFile::write_reference_block() {
  const bool gcm = encryption_.mode != kAesCbc;
  std::array<std::byte, kIvBytes> iv{};
  fill_randomly(iv);
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
  if (!fits(*mode, encryption.mode)) {
    throw InvalidArgument("{}: is encrypted with {}, not with {}", path, *mode, encryption.mode);
  }
  auto plain = parse_guarded(bytes, path, [&](auto guarded) {
    return *mode == kAesGcm ? decrypt_bound(guarded, path, encryption.key)
                            : decrypt_reference(guarded, path, {encryption.key, *mode});
  });
  if (*mode != kAesGcm) warn_of_reference_form(path, *mode);
  return std::make_unique<MemoryFile>(std::move(plain));
}

}  // namespace tessera::checkpoint
