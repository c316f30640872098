// What becomes of a call on a file that the system has refused.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Throws IoError with path, operation ("open") and the words of errno; NoRoom, with the limits of this process, where
// errno says that it has no more memory or descriptors.
[[noreturn]] void refused_call(std::string_view operation, const std::string& path);

}  // namespace tessera
