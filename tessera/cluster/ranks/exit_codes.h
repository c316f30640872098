// What programs and the command `tessera` end with; a process that a signal ends has 128 + its number in a shell.
#pragma once

namespace tessera::cluster {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;  // the command line was wrong, nothing was begun

}  // namespace tessera::cluster
