#include "tessera/cluster/rendezvous/host_clock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <ctime>
#include <string_view>

namespace tessera::cluster::rendezvous {

uint64_t host_time_ns() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(now.tv_nsec) + 1;
}

uint64_t host_clock_id() {
  // Drawn when the host starts: hexadecimal digits and dashes.
  char text[64];
  const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t length = read(fd, text, sizeof(text));
  close(fd);
  uint64_t id = 0;
  for (const char c : std::string_view(text, length > 0 ? static_cast<size_t>(length) : 0)) {
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) continue;
    const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    id = id * 31 + static_cast<uint64_t>(digit);
  }
  struct stat space {};
  const bool has_spaces = id != 0 && stat("/proc/self/ns/time", &space) == 0;
  return has_spaces ? id * 31 + static_cast<uint64_t>(space.st_ino) : id;
}

}  // namespace tessera::cluster::rendezvous
