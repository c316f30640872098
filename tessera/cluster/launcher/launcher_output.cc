#include "tessera/cluster/launcher/launcher_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tessera::cluster {
namespace {

// What is written at once: whole lines where they are not too long, and no more than a pipe takes from one writer
// without another's words between.
size_t next_piece(std::string_view text) {
  if (text.size() <= PIPE_BUF) return text.size();
  const size_t end = text.substr(0, PIPE_BUF).find_last_of("\n\r");
  return end == std::string_view::npos ? PIPE_BUF : end + 1;
}

}  // namespace

LauncherOutput::LauncherOutput(int fd) : fd_(fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return;
  is_regular_ = S_ISREG(status.st_mode);
  is_socket_ = S_ISSOCK(status.st_mode);
  if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
    own_ = Socket(open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  }
}

void LauncherOutput::write(std::string_view text) {
  if (is_given_up_) return;
  pending_ += text;
  flush();
}

void LauncherOutput::flush() {
  size_t written = 0;
  while (written < pending_.size()) {
    const std::string_view rest = std::string_view(pending_).substr(written);
    const long count = write_now(is_regular_ ? rest : rest.substr(0, next_piece(rest)));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count < 0) {
      error_ = errno;
      return give_up();
    }
    written += static_cast<size_t>(count);
  }
  pending_.erase(0, written);
}

long LauncherOutput::write_now(std::string_view text) const {
  if (is_socket_) return send(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (own_ || is_regular_) return ::write(writing_fd(), text.data(), text.size());
  // It cannot be opened again, as where it belongs to another user: then its room is asked for.
  pollfd room{fd_, POLLOUT, 0};
  if (poll(&room, 1, 0) == 0) {
    errno = EAGAIN;
    return -1;
  }
  return ::write(fd_, text.data(), text.size());
}

bool LauncherOutput::is_same_as(int fd) const {
  struct stat own {
  }, other{};
  return fstat(fd_, &own) == 0 && fstat(fd, &other) == 0 && own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

}  // namespace tessera::cluster
