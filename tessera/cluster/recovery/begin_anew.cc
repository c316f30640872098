#include "tessera/cluster/recovery/begin_anew.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tessera/base/error.h"

namespace tessera::cluster {
namespace {

std::string target_of(const char* link) {
  char path[PATH_MAX];
  const ssize_t length = readlink(link, path, sizeof(path));
  return length > 0 && length < static_cast<ssize_t>(sizeof(path)) ? std::string(path, static_cast<size_t>(length))
                                                                   : "";
}

// What only the first thread of a process knows, when it begins: a program may go elsewhere, and the signal that comes
// with the end of its parent is of the thread.
struct Beginning {
  Beginning() {
    prctl(PR_GET_PDEATHSIG, &death_signal);
    pthread_sigmask(SIG_BLOCK, nullptr, &signal_mask);
  }
  std::string program = target_of("/proc/self/exe");
  std::string directory = target_of("/proc/self/cwd");
  int death_signal = 0;
  sigset_t signal_mask{};
};
const Beginning kBeginning;

// Of a file of texts that each end with a zero.
std::vector<std::string> texts_of(const char* path) {
  std::string bytes;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw IoError("cannot read {}: {}", path, std::strerror(errno));
  char buffer[4096];
  ssize_t count;
  while ((count = read(fd, buffer, sizeof(buffer))) > 0) bytes.append(buffer, static_cast<size_t>(count));
  close(fd);
  std::vector<std::string> texts;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\0', begin), bytes.size());
    texts.push_back(bytes.substr(begin, end - begin));
    begin = end + 1;
  }
  return texts;
}

// As it was when the process began. What has been wiped since is zeros there.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& settings) {
  std::vector<std::string> environment;
  for (const std::string& entry : texts_of("/proc/self/environ")) {
    const size_t equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    if (equals == std::string::npos || settings.contains(name) || name == "TESSERA_TLS_PASSWORD") continue;
    environment.push_back(entry);
  }
  for (const auto& [name, value] : settings) environment.push_back(name + "=" + value);
  return environment;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Libraries open sockets that would stay open: then the others would not see that this process has let go of them.
void close_sockets_on_exec() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    char* end = nullptr;
    const auto fd = static_cast<int>(std::strtol(entry->d_name, &end, 10));
    struct stat status {};
    if (*end != '\0' || fd <= 2 || fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode)) continue;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  closedir(folder);
}

}  // namespace

void begin_anew(const std::map<std::string, std::string>& settings, const std::vector<int>& inherited) {
  std::vector<std::string> arguments = texts_of("/proc/self/cmdline");
  std::vector<std::string> environment = environment_with(settings);
  const std::vector<char*> argument_pointers = pointers_to(arguments);
  const std::vector<char*> environment_pointers = pointers_to(environment);
  std::fflush(nullptr);
  close_sockets_on_exec();
  for (const int fd : inherited) fcntl(fd, F_SETFD, 0);
  const bool is_there = kBeginning.directory.empty() || chdir(kBeginning.directory.c_str()) == 0;
  if (is_there) {
    if (kBeginning.death_signal != 0) prctl(PR_SET_PDEATHSIG, kBeginning.death_signal);
    pthread_sigmask(SIG_SETMASK, &kBeginning.signal_mask, nullptr);
    execve(kBeginning.program.c_str(), argument_pointers.data(), environment_pointers.data());
  }
  throw IoError("cannot start {} again in {}: {}", kBeginning.program, kBeginning.directory, std::strerror(errno));
}

}  // namespace tessera::cluster
