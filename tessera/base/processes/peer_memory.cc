#include "tessera/base/processes/peer_memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/limits.h"
#include "tessera/base/printable.h"
#include "tessera/base/processes/descriptor.h"

namespace tessera {
namespace {

// What the link in /proc names, without opening it.
std::string target_of(const std::string& path) {
  std::array<char, 64> text;
  const ssize_t length = readlink(path.c_str(), text.data(), text.size());
  return length < 0 ? "" : std::string(text.data(), static_cast<size_t>(length));
}

bool is_descriptor_path(std::string_view path) {
  const auto skip = [&](std::string_view part) {
    const bool is_there = path.starts_with(part);
    if (is_there) path.remove_prefix(part.size());
    return is_there;
  };
  const auto skip_number = [&] {
    const size_t digits = std::min(path.find_first_not_of("0123456789"), path.size());
    path.remove_prefix(digits);
    return digits > 0 && digits <= 10;
  };
  return skip("/proc/") && skip_number() && skip("/fd/") && skip_number() && path.empty();
}

}  // namespace

int open_memory_of_process(const std::string& path, std::string_view name, std::string_view what) {
  const auto refuse = [&](const std::string& why) {
    return IoError("cannot open {} at {}: {}", what, printable(path), why);
  };
  if (!is_descriptor_path(path)) throw refuse("that is no descriptor of a process");
  const Descriptor place(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (place.get() < 0) {
    const std::string reason = std::strerror(errno);
    const std::string why = why_no_proc();
    throw refuse(why.empty() ? reason : fmt::format("{}; {}", reason, why));
  }
  const std::string own_path = fmt::format("/proc/self/fd/{}", place.get());
  struct stat status {};
  if (target_of(own_path) != fmt::format("/memfd:{} (deleted)", name) || fstat(place.get(), &status) != 0 ||
      !S_ISREG(status.st_mode)) {
    throw refuse("that is no memory of a rank");
  }
  if (status.st_uid != geteuid()) throw refuse("it belongs to another user");
  const int fd = open(own_path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) throw refuse(std::strerror(errno));
  // Only memory files have seals: a file on a disk may be named like one.
  if (fcntl(fd, F_GET_SEALS) < 0) {
    close(fd);
    throw refuse("that is no memory of a rank");
  }
  return fd;
}

}  // namespace tessera
