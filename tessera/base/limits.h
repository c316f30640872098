// What the system lets this process have: for decisions that depend on it, and for messages that say why it refused.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

// Address space of this process in bytes, as `ulimit -v` counts it.
struct AddressSpace {
  int64_t used = 0;
  int64_t limit = -1;  // -1: none
  bool is_limited() const { return limit >= 0; }
  // What is left of a limited resource, at least 0.
  int64_t free() const { return limit > used ? limit - used : 0; }
};
AddressSpace address_space();

// Bytes of memory that the processes of this machine, or of this one's control group, have together; and of its swap
// space.
int64_t memory_of_machine();
int64_t swap_space_of_machine();
// Whether both together are so many bytes. Some systems promise more, and kill the process when it uses them.
bool can_machine_hold(int64_t size_bytes);

// The most bytes of a file that this process writes (`ulimit -f`), and of shared memory that it makes, which is a file
// to the system; -1: no limit.
int64_t file_size_limit();
// From now on what grows beyond that is an error of the call, EFBIG, as a full disk is, unless the program has a
// handler of its own. Left alone, the system ends the process by SIGXFSZ instead, without a word.
void make_file_size_limit_an_error();

// Why /proc does not show this process by its number, with the way out: it is not mounted, or is that of another PID
// namespace, as after `unshare --pid --fork`. "" where it does. Ranks reach each other's memory by it, and a launcher
// finds there what it has to end.
std::string why_no_proc();

// Called before the threads of OpenMP are used, which live as long as the process and are not there in a child of
// fork(). Throws Error where this process is one whose parent had used them: GNU's OpenMP would wait for them forever.
void require_threads_of_this_process();

// "37 threads run; limits: 100 processes and threads of the user (ulimit -u), 2.0 GiB of address space (ulimit -v), of
// which 1.9 GiB are used". Limits that are not set are left out.
std::string limits_text();

}  // namespace tessera
