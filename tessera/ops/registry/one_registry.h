// A process has one registry of operators. With a second copy of Tessera, as a program has that links the static
// libraries and libtessera.so, names of namespace tessera would be shared by halves: what one copy adds the other does
// not know, and what both make is destroyed twice.
#pragma once

namespace tessera::ops {

// Where the process has loaded this file twice, ends it with one sentence on standard error that names both places, and
// with the exit code of a wrong command line. Each copy asks as it is loaded, before it makes anything.
void require_one_registry();

}  // namespace tessera::ops
