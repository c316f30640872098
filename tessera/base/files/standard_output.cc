#include "tessera/base/files/standard_output.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tessera {
namespace {

// Why a write of standard output fails now; 0 where it does not.
int reason_of_failed_write() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  if (poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0) return EPIPE;  // a write could end the process
  return write(STDOUT_FILENO, "\n", 1) < 0 ? errno : 0;
}

}  // namespace

void occupy_closed_outputs() {
  for (const int output : {STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(output, F_GETFD) >= 0 || errno != EBADF) continue;
    // It cannot be written to, as what is closed cannot; programs that this one starts find it closed.
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing < 0 || nothing == output) continue;
    dup3(nothing, output, O_CLOEXEC);
    close(nothing);
  }
}

std::string flush_standard_output() {
  errno = 0;
  const bool is_flushed = std::fflush(stdout) == 0;
  int reason = is_flushed ? 0 : errno;
  if (is_flushed && std::ferror(stdout) == 0) return "";
  // A write before this one has failed, of what was more than the buffer holds, and nobody has kept its reason.
  if (reason == 0) reason = reason_of_failed_write();
  __fpurge(stdout);
  std::clearerr(stdout);
  if (reason == EPIPE) return "";
  return reason == 0 ? "a part of it is missing" : std::strerror(reason);
}

int code_after_output(int code) {
  const std::string why = flush_standard_output();
  if (why.empty()) return code;
  std::fprintf(stderr, "error: cannot write standard output: %s\n", why.c_str());
  return code != 0 ? code : 1;
}

}  // namespace tessera
