#include "tessera/base/processes/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "tessera/base/limits.h"

namespace tessera {
namespace {

// Closes the file. errno stays as the call that failed left it.
int give_up(int fd) {
  const int reason = errno;
  close(fd);
  errno = reason;
  return -1;
}

int make_file(const char* name, unsigned flags) {
  make_file_size_limit_an_error();
  return memfd_create(name, MFD_CLOEXEC | flags);
}

}  // namespace

int make_memory_file(const char* name, int64_t size_bytes) {
  const int fd = make_file(name, 0);
  if (fd >= 0 && ftruncate(fd, size_bytes) != 0) return give_up(fd);
  return fd;
}

int make_secret_file(const char* name, std::string_view content, int seals) {
  const int fd = make_file(name, seals != 0 ? MFD_ALLOW_SEALING : 0);
  if (fd < 0) return -1;
  if (fchmod(fd, 0600) != 0 || write(fd, content.data(), content.size()) != static_cast<ssize_t>(content.size()) ||
      (seals != 0 && fcntl(fd, F_ADD_SEALS, seals) != 0)) {
    return give_up(fd);
  }
  return fd;
}

}  // namespace tessera
