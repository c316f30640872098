// Ids that no two processes, containers or hosts make alike.
#pragma once

#include <string>

namespace tessera {

// 32 hexadecimal digits from the system's source of randomness, others at each call.
std::string random_id();

}  // namespace tessera
