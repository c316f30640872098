#include "tessera/comm/wire/secret_bytes.h"

#include <openssl/crypto.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera::comm {

SecretBytes::Pages::Pages(size_t wanted) : size(wanted) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  mapped = (wanted + 1 + page - 1) / page * page;  // with a zero at the end
  void* const memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw IoError("cannot have {} bytes for a secret: {}", mapped, std::strerror(errno));
  // Where a kernel does not know it, a dump has them, and nothing else is different.
  madvise(memory, mapped, MADV_DONTDUMP);
  bytes = static_cast<char*>(memory);
}

SecretBytes::Pages::~Pages() {
  OPENSSL_cleanse(bytes, mapped);
  munmap(bytes, mapped);
}

SecretBytes::SecretBytes(std::string_view bytes) {
  if (bytes.empty()) return;
  pages_ = std::make_shared<Pages>(bytes.size());
  std::memcpy(pages_->bytes, bytes.data(), bytes.size());
}

SecretBytes SecretBytes::zeros(size_t size) {
  SecretBytes made;
  if (size > 0) made.pages_ = std::make_shared<Pages>(size);
  return made;
}

}  // namespace tessera::comm
