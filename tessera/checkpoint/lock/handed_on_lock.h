// How a lock stays with a process that begins its program again in its own place (execve), as a rank does when its job
// goes on after a loss: the descriptor stays open, the next program finds it and takes it over. So no other job comes
// in between. Locks are those of the system's files (FileSystem::local()). Internal to checkpoint/ and train/.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/files/file_system.h"

namespace tessera::checkpoint {

// From now on the lock of this file that the process holds outlives its program. Returns whether it holds one.
bool hand_on_lock(const std::string& path);
// Whether an earlier program of this process has handed on the lock of the file at this path, and nobody has taken it.
bool is_lock_handed_on(const std::string& path);
// Takes it: it ends with this program from now on. nullptr where there is none.
std::unique_ptr<FileLock> take_handed_on_lock(const std::string& path);

}  // namespace tessera::checkpoint
