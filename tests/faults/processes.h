// Processes of their own for what would take the test with it: killed ones, ones with mounts or limits of their own.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::checkpoint::faults {

struct Ended {
  int exit_code = -1;  // -1 where a signal ended it
  int signal = 0;
};

// Runs checkpoint_job with these arguments and this failpoint ("": none). What it prints is thrown away, its errors are
// not.
Ended run_job(const std::vector<std::string>& arguments, const std::string& failpoint = "");

// The same in a container: with processes, mounts and a host name of its own. Every such job is process 1 of the host
// "container", and all see the same files. Starts it; how it ended is known after wait(). nullopt then where containers
// need a privilege that this process does not have.
class ContainerJob {
 public:
  explicit ContainerJob(const std::vector<std::string>& arguments);
  ~ContainerJob();
  ContainerJob(const ContainerJob&) = delete;
  ContainerJob& operator=(const ContainerJob&) = delete;
  std::optional<Ended> wait();

 private:
  pid_t pid_ = -1;
};

// A checkpoint_job that holds a directory's lock until it is killed or let go.
class HoldingJob {
 public:
  // Waits until it has the lock; `generation` is what it printed, "" where it was refused. One in a container can be
  // let go, but not killed.
  HoldingJob(const std::string& directory, const std::string& job_id, bool in_container = false);
  ~HoldingJob();
  HoldingJob(const HoldingJob&) = delete;
  HoldingJob& operator=(const HoldingJob&) = delete;
  const std::string& generation() const { return generation_; }
  pid_t pid() const { return pid_; }
  void kill();
  void let_go();

 private:
  void wait();

  pid_t pid_ = -1;
  int input_ = -1;
  std::string generation_;
};

// Runs `body` in a child that has a fresh tmpfs of so many bytes at `directory`, in a mount namespace of its own.
// Failures of GoogleTest's checks in it fail the calling test; where mounting is not permitted, the test is skipped
// with the reason: call it as the last thing of a test.
void in_private_tmpfs(const std::string& directory, size_t size_bytes, const std::function<void()>& body);
void remount_read_only(const std::string& directory, bool read_only);

// Runs `body` in a child process and gives how it ended: exit code 0, or 1 after a failed check.
Ended in_child(const std::function<void()>& body);

}  // namespace tessera::checkpoint::faults
