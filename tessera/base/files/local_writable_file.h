// Files of the operating system are written here. What is appended to a large one is gathered in blocks that go past
// the system's cache of pages: to copy gigabytes into the cache, and from there to the disk when the system chooses,
// takes much more of a core than the disk needs, and others lose what they have in the cache.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/files/file_system.h"

namespace tessera {

// Creates or truncates. `mode` are the permission bits. The end of what was appended to a large file, less than a
// block, is seen by who reads the file only after sync() or close(). Throws IoError as FileSystem does.
std::unique_ptr<WritableFile> create_local_file(const std::string& path, unsigned mode);

// fsync, which may be interrupted. Returns 0, or -1 with errno.
int sync_descriptor(int fd);

}  // namespace tessera
