// Which errors are the end of a rank's generation, after which it begins anew (Recovery::begin_anew).
#pragma once

#include <exception>

#include "tessera/cluster/recovery/recovery.h"

namespace tessera::cluster {

// Whether the rank begins anew after this error, as far as it has heard. Whatever it meets when its generation has
// ended comes of that, or comes again; while that lasts, ranks tell each other of errors after which all go on.
bool is_end_of_generation(const Recovery& recovery, const std::exception& error);

}  // namespace tessera::cluster
