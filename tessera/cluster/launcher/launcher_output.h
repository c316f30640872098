// Where the launcher's own words and what the ranks write go: a reader that takes nothing never holds up the launcher.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tessera/cluster/hub/hub_socket.h"

namespace tessera::cluster {

// Keeps what the reader of a descriptor does not take yet. Writes do not wait, except those to a regular file. The
// launcher blocks SIGPIPE (see EndSignals in launcher.cc). Not thread-safe; the descriptor stays the caller's.
class LauncherOutput {
 public:
  explicit LauncherOutput(int fd);

  // Passes on what is taken at once and keeps the rest; nothing after an error or give_up().
  void write(std::string_view text);
  // Passes on what is taken now.
  void flush();
  // Nothing more should be written for now, so that the ranks wait for the reader, as they would without a launcher.
  bool is_full() const { return pending_.size() >= kFull; }
  bool has_pending() const { return !pending_.empty(); }
  // What to wait for, until it takes more; -1 where nothing is pending.
  int fd_to_wait_for() const { return pending_.empty() ? -1 : writing_fd(); }
  // The first failed write's errno, EPIPE where nobody reads any more; 0: none.
  int error() const { return error_; }
  // Forgets what nobody has read, and all that follows.
  void give_up() {
    pending_.clear();
    is_given_up_ = true;
  }
  // Whether both go to one file, pipe or terminal.
  bool is_same_as(int fd) const;

 private:
  static constexpr size_t kFull = 1 << 16;

  int writing_fd() const { return own_ ? own_.fd() : fd_; }
  // Returns as write() does, with EAGAIN in errno where it would wait.
  long write_now(std::string_view text) const;

  int fd_;
  Socket own_;  // the same pipe or terminal, opened again: whoever shares fd_ keeps writes that wait
  bool is_regular_ = false;
  bool is_socket_ = false;
  bool is_given_up_ = false;
  std::string pending_;
  int error_ = 0;
};

}  // namespace tessera::cluster
