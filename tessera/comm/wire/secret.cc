#include "tessera/comm/wire/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "tessera/base/error.h"

namespace tessera::comm {
namespace {

constexpr size_t kMinBytes = 16;
constexpr size_t kMaxBytes = 4096;
constexpr std::string_view kNoSecret = "a job without a secret of its own";

void fill_with_random(std::span<char> bytes) {
  for (size_t filled = 0; filled < bytes.size();) {
    const ssize_t got = getrandom(bytes.data() + filled, bytes.size() - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw IoError("the system gives no random numbers: {}", std::strerror(errno));
    filled += static_cast<size_t>(got);
  }
}

}  // namespace

Secret::Secret(std::string_view bytes, std::string_view origin) {
  if (bytes.size() < kMinBytes || bytes.size() > kMaxBytes) {
    throw InvalidArgument("{}: a job's secret has from {} to {} bytes, this one has {}", origin, kMinBytes, kMaxBytes,
                          bytes.size());
  }
  bytes_ = SecretBytes(bytes);
}

Secret Secret::random() {
  Secret made;
  made.bytes_ = SecretBytes::zeros(kHashBytes);
  fill_with_random({made.bytes_.data(), kHashBytes});
  return made;
}

Secret Secret::from_descriptor(int fd, std::string_view origin) {
  struct stat status {};
  if (fstat(fd, &status) != 0) {
    throw IoError("{}: cannot read the job's secret: {}; what starts the ranks must leave that descriptor open", origin,
                  std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) throw InvalidArgument("{}: that is no regular file", origin);
  if (status.st_uid != geteuid()) throw InvalidArgument("{}: it belongs to another user", origin);
  if ((status.st_mode & 077) != 0) throw InvalidArgument("{}: others may read or write it; chmod 600", origin);
  SecretBytes bytes = SecretBytes::zeros(kMaxBytes + 1);
  ssize_t count;
  do {
    count = pread(fd, bytes.data(), bytes.size(), 0);
  } while (count < 0 && errno == EINTR);
  if (count < 0) throw IoError("{}: cannot read the job's secret: {}", origin, std::strerror(errno));
  return {bytes.view().substr(0, static_cast<size_t>(count)), origin};
}

Secret Secret::from_file(const std::string& path, std::string_view origin) {
  // A FIFO is not waited for.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const std::string where = fmt::format("{}, \"{}\"", origin, path);
  if (fd < 0) throw IoError("{}: cannot read the job's secret: {}", where, std::strerror(errno));
  struct Closer {
    int fd;
    ~Closer() { close(fd); }
  } const closer{fd};
  return from_descriptor(fd, where);
}

std::string Secret::hash(std::initializer_list<std::string_view> parts) const {
  std::string digest(kHashBytes, '\0');
  hash(parts, digest.data());
  return digest;
}

void Secret::hash(std::initializer_list<std::string_view> parts, char* into) const {
  std::string text;
  for (const std::string_view part : parts) {
    for (int i = 0; i < 8; ++i) text.push_back(static_cast<char>(part.size() >> (8 * i) & 0xFFU));
    text += part;
  }
  const std::string_view key = bytes_.empty() ? kNoSecret : bytes_.view();
  unsigned length = 0;
  const unsigned char* made =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), reinterpret_cast<unsigned char*>(into), &length);
  check(made != nullptr && length == kHashBytes, "HMAC-SHA-256 gives 32 bytes");
}

Secret Secret::derive(std::initializer_list<std::string_view> parts) const {
  Secret made;
  made.bytes_ = SecretBytes::zeros(kHashBytes);
  hash(parts, made.bytes_.data());
  return made;
}

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  fill_with_random({bytes.data(), bytes.size()});
  return bytes;
}

bool is_equal_hash(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

}  // namespace tessera::comm
