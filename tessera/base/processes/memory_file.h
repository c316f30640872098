// Memory that is a file (memfd): by its descriptor other processes reach it, and it goes with the last that has one.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

// Makes a file in memory of so many bytes, which are zero, and returns its descriptor: the caller closes it, and
// programs that this process starts do not have it. `name` is what it is called below /proc. Returns -1 where the
// system refuses, with the reason in errno; that it is beyond the limit of `ulimit -f` is one (EFBIG), no signal.
int make_memory_file(const char* name, int64_t size_bytes = 0);

// The same of what no other user may open, with this content. `seals` are those of fcntl(2), such as F_SEAL_WRITE: what
// nobody may do to the file from now on.
int make_secret_file(const char* name, std::string_view content, int seals = 0);

}  // namespace tessera
