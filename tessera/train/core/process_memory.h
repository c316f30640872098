// How much memory this process has.
#pragma once

#include <cstdint>

namespace tessera::train {

// The memory of this process that is resident now, in bytes; 0 where the system does not say.
int64_t resident_bytes_of_process();

}  // namespace tessera::train
