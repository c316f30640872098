// Processes as the kernel lists them: who is whose child, and whether one has ended, is stopped or runs.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace tessera::cluster {

struct ProcessEntry {
  std::string name;  // at most 15 bytes of its program's, as "mpirun"
  char state = '?';  // 'Z': it has ended, and its parent has not asked for that; 'T', 't': it is stopped
  pid_t parent = 0;

  bool has_ended() const { return state == 'Z' || state == 'X'; }
  bool is_stopped() const { return state == 'T' || state == 't'; }
};

// Of a /proc/PID/stat, "PID (NAME) STATE PARENT ...", where NAME may hold anything; nullopt for another text.
std::optional<ProcessEntry> parse_process_entry(const std::string& stat);
// nullopt where there is no such process, or this one may not see it.
std::optional<ProcessEntry> find_process(pid_t pid);
// The children of this process, of all its threads, also those that have ended and that nobody has waited for.
std::vector<pid_t> own_children();

}  // namespace tessera::cluster
