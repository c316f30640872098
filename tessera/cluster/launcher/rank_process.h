// What a launcher needs to start the processes of its ranks, and to hear of their ends and of its own.
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/cluster/hub/hub_socket.h"
#include "tessera/cluster/launcher/guard.h"

namespace tessera::cluster {

// The ends of a pipe: to read from, to write to. Throws IoError.
std::pair<Socket, Socket> make_pipe();
// Makes memory that the ranks inherit and nobody can change, for a job's secret or a password. Throws IoError.
Socket make_secret(std::string_view bytes);
// Makes memory that the processes of a rank share, one after the other. Throws IoError.
Socket make_kept_memory();
// Opens a rank's log, anew, or behind what the process before has written (`goes_on`). Whatever else lies there by that
// name is neither followed nor waited for. Throws IoError.
Socket create_log(const std::string& path, bool goes_on);
// Opens /dev/null in place of standard descriptors that are closed: no pipe of a job may get their numbers.
void open_standard_descriptors();

// A DescriptorLimit gives the process the descriptors that a job needs, of which it has a thousand unless it asks for
// more. The old limit returns with the end of it.
class DescriptorLimit {
 public:
  // Throws IoError where the system allows fewer.
  DescriptorLimit(int num_ranks, int per_rank, int further = 0);
  ~DescriptorLimit() { restore(); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;
  void restore() const { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// GuardReports are one report for each rank, shared with the guards.
class GuardReports {
 public:
  explicit GuardReports(size_t count);
  ~GuardReports();
  GuardReports(const GuardReports&) = delete;
  GuardReports& operator=(const GuardReports&) = delete;
  GuardReport& operator[](size_t rank) { return reports_[rank]; }

 private:
  size_t bytes_;
  GuardReport* reports_;
};

// EndSignals block the signals that end a job and make them readable, as long as they live. SIGPIPE is one of them: a
// write to what nobody reads any more fails then, and the ranks end in order. SIGUSR2 is taken with them: it ends
// nothing, and asks for a timeline.
class EndSignals {
 public:
  EndSignals();
  ~EndSignals();
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;
  int fd() const { return socket_.fd(); }
  const sigset_t& mask_before() const { return before_; }
  // The next one that arrived, or 0.
  int take();

 private:
  sigset_t set_{};
  sigset_t before_{};
  Socket socket_;
};

// RankStart is what a rank's process needs between fork and exec.
struct RankStart {
  const char* program;
  char* const* arguments;
  char* const* environment;
  int out_fd;
  int err_fd;
  int status_fd;
  int figures_fd;  // -1: none
  int secret_fd;   // -1: none
  const sigset_t* signal_mask;
  const DescriptorLimit* descriptors;
};

// Becomes the rank's program; returns where that cannot be executed, and says so on standard error. `argument` is a
// RankStart. Makes system calls only.
void exec_rank(void* argument);

}  // namespace tessera::cluster
