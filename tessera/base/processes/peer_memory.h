// Memory of another process of this user: an anonymous file (memfd), which that process shows by a descriptor of its
// own below /proc.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Opens what lies at /proc/<process>/fd/<number> to be read and written, where it is a memfd of that name and of this
// user; the caller closes the descriptor. Other things are not opened at all: opening a device or a FIFO may wait or
// act. Throws IoError "cannot open <what> at <path>: <why>".
int open_memory_of_process(const std::string& path, std::string_view name, std::string_view what);

}  // namespace tessera
