// The secret of a job: bytes that its ranks know and nobody else does. Ranks show each other that they know it by keyed
// hashes (HMAC-SHA-256, RFC 2104) of numbers that both have just drawn. It is never sent, printed or put into a
// message.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

#include "tessera/comm/wire/secret_bytes.h"

namespace tessera::comm {

inline constexpr size_t kHashBytes = 32;
inline constexpr size_t kNonceBytes = 32;

class Secret {
 public:
  Secret() = default;  // none
  // Throws InvalidArgument naming `origin` below 16 bytes (128 bits) and above 4096.
  Secret(std::string_view bytes, std::string_view origin);
  // 32 bytes of the system's random source.
  static Secret random();
  // What the file holds that is open there, from its beginning, wherever the descriptor stands. Throws InvalidArgument
  // when anybody but its owner may read or write the file, when that is another user, or when it is no regular file;
  // IoError when it cannot be read. Messages name `origin`.
  static Secret from_descriptor(int fd, std::string_view origin);
  // What the file at `path` holds; throws likewise.
  static Secret from_file(const std::string& path, std::string_view origin);

  explicit operator bool() const { return !bytes_.empty(); }
  // The keyed hash of the parts, 32 bytes; parts that are split elsewhere give another one. A secret that is none has a
  // key that everybody knows.
  std::string hash(std::initializer_list<std::string_view> parts) const;
  // A secret of its own for one use, from which this one cannot be found.
  Secret derive(std::string_view use) const { return derive({"derive", use}); }
  // The keyed hash of the parts, as a secret.
  Secret derive(std::initializer_list<std::string_view> parts) const;
  // They are given to a process of the job by a way that strangers cannot read.
  std::string_view bytes() const { return bytes_.view(); }

 private:
  void hash(std::initializer_list<std::string_view> parts, char* into) const;

  SecretBytes bytes_;
};

// Bytes of the system's random source.
std::string random_bytes(size_t count);
// The time that it takes does not tell where they differ.
bool is_equal_hash(std::string_view a, std::string_view b);
std::string hex(std::string_view bytes);

}  // namespace tessera::comm
