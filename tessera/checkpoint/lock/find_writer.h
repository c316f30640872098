// Which ranks see the same directory, and which of them writes.
#pragma once

#include <string>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/lock/barrier.h"

namespace tessera::checkpoint {

// The lowest rank that sees the same directory as the calling one: the rank that writes what they all name. Found by
// looking for the files that the ranks put there for a moment, not by comparing paths: on two hosts one path may be two
// directories, and two paths may be one. Makes the directory where it is missing. Every rank calls it. Jobs that look
// in one directory at one time do not see each other. Throws as run_together does when a rank cannot write to its
// directory.
int find_writer(FileSystem& files, Barrier& barrier, const std::string& directory);

}  // namespace tessera::checkpoint
