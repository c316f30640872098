#include "tessera/cluster/launcher/process_tree.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

namespace tessera::cluster {

std::optional<ProcessEntry> parse_process_entry(const std::string& stat) {
  const size_t name_begin = stat.find('(');
  const size_t name_end = stat.rfind(')');
  if (name_begin == std::string::npos || name_end == std::string::npos || name_end < name_begin) return std::nullopt;
  ProcessEntry entry;
  entry.name = stat.substr(name_begin + 1, name_end - name_begin - 1);
  std::istringstream fields(stat.substr(name_end + 1));
  if (!(fields >> entry.state >> entry.parent)) return std::nullopt;
  return entry;
}

std::optional<ProcessEntry> find_process(pid_t pid) {
  const std::ifstream file(fmt::format("/proc/{}/stat", pid));
  if (!file) return std::nullopt;
  // Where it ends meanwhile a read fails, which the stream's own iterators throw.
  std::ostringstream text;
  text << file.rdbuf();
  return parse_process_entry(text.str());
}

// The kernel's own list of children may lack one while others end, and is of one thread.
std::vector<pid_t> own_children() {
  std::vector<pid_t> children;
  const pid_t self = getpid();
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const auto pid = static_cast<pid_t>(std::atoi(it->path().filename().c_str()));
    if (pid <= 1) continue;
    const auto entry = find_process(pid);
    if (entry && entry->parent == self) children.push_back(pid);
  }
  return children;
}

}  // namespace tessera::cluster
