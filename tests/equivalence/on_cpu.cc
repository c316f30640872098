#include "tests/equivalence/where.h"

namespace tessera::equivalence {

session::SessionOptions session_there(bool plain_loops) { return session_on_cpu(plain_loops); }
size_t stride_there() { return 1; }

}  // namespace tessera::equivalence
