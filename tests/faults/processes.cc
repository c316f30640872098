#include "tests/faults/processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string_view>

namespace tessera::checkpoint::faults {
namespace {

constexpr int kNoPrivilege = 77;

Ended wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? Ended{.signal = WTERMSIG(status)} : Ended{.exit_code = WEXITSTATUS(status)};
}

[[noreturn]] void exec_job(const std::vector<std::string>& arguments, const std::string& failpoint) {
  if (!failpoint.empty()) ::setenv("TESSERA_FAILPOINT", failpoint.c_str(), 1);
  std::vector<std::string> words = {std::string(TESSERA_BINARY_DIR) + "/bin/checkpoint_job"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(pointers[0], pointers.data());
  std::cerr << "cannot run " << words[0] << ": " << std::strerror(errno) << std::endl;
  ::_exit(127);
}

// Becomes a process outside of a container that waits for one inside, which this returns in.
void enter_container() {
  constexpr std::string_view kHost = "container";
  if (::unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS) != 0 || ::sethostname(kHost.data(), kHost.size()) != 0) {
    ::_exit(kNoPrivilege);
  }
  const pid_t pid = ::fork();
  if (pid == 0) return;
  const auto ended = wait_for(pid);
  ::_exit(ended.signal != 0 ? 128 + ended.signal : ended.exit_code);
}

void print_nothing() { ::dup2(::open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO); }

}  // namespace

ContainerJob::ContainerJob(const std::vector<std::string>& arguments) {
  std::cout.flush();
  pid_ = ::fork();
  if (pid_ != 0) return;
  print_nothing();
  enter_container();
  exec_job(arguments, "");
}

ContainerJob::~ContainerJob() { wait(); }

std::optional<Ended> ContainerJob::wait() {
  if (pid_ <= 0) return std::nullopt;
  const auto ended = wait_for(pid_);
  pid_ = -1;
  return ended.exit_code == kNoPrivilege ? std::nullopt : std::optional(ended);
}

Ended run_job(const std::vector<std::string>& arguments, const std::string& failpoint) {
  std::cout.flush();
  const pid_t pid = ::fork();
  if (pid == 0) {
    print_nothing();
    exec_job(arguments, failpoint);
  }
  return wait_for(pid);
}

HoldingJob::HoldingJob(const std::string& directory, const std::string& job_id, bool in_container) {
  int input[2];
  int output[2];
  if (::pipe2(input, O_CLOEXEC) != 0 || ::pipe2(output, O_CLOEXEC) != 0) return;
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(input[0], STDIN_FILENO);
    ::dup2(output[1], STDOUT_FILENO);
    if (in_container) {
      ::close(input[1]);
      ::close(output[0]);
      enter_container();
    }
    exec_job({"hold", directory, job_id}, "");
  }
  ::close(input[0]);
  ::close(output[1]);
  input_ = input[1];
  char c = 0;
  while (::read(output[0], &c, 1) == 1 && c != '\n') generation_ += c;
  ::close(output[0]);
}

HoldingJob::~HoldingJob() { let_go(); }

void HoldingJob::kill() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
  wait();
}

void HoldingJob::let_go() {
  if (input_ >= 0) ::close(input_);
  input_ = -1;
  wait();
}

void HoldingJob::wait() {
  if (pid_ > 0) wait_for(pid_);
  pid_ = -1;
}

Ended in_child(const std::function<void()>& body) {
  std::cout.flush();
  const pid_t pid = ::fork();
  if (pid == 0) {
    bool failed = false;
    try {
      body();
    } catch (const std::exception& error) {
      std::cout << error.what() << std::endl;
      failed = true;
    }
    std::cout.flush();
    ::_exit(failed || testing::Test::HasFailure() ? 1 : 0);
  }
  return wait_for(pid);
}

void in_private_tmpfs(const std::string& directory, size_t size_bytes, const std::function<void()>& body) {
  const auto ended = in_child([&] {
    const auto options = fmt::format("size={}", size_bytes);
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", directory.c_str(), "tmpfs", 0, options.c_str()) != 0) {
      ::_exit(kNoPrivilege);
    }
    body();
  });
  if (ended.exit_code == kNoPrivilege) GTEST_SKIP() << "mounting a tmpfs needs the privilege to do so (root)";
  ASSERT_EQ(ended.exit_code, 0) << "signal " << ended.signal;
}

void remount_read_only(const std::string& directory, bool read_only) {
  unsigned long flags = MS_REMOUNT;
  if (read_only) flags |= MS_RDONLY;
  ASSERT_EQ(::mount("none", directory.c_str(), nullptr, flags, nullptr), 0) << std::strerror(errno);
}

}  // namespace tessera::checkpoint::faults
