// How many compute threads run at once.
#pragma once

namespace tessera {

// How many of `num_threads` compute threads run at once: one on each core that this process may use (its affinity when
// first asked), at most. Threads that outnumber cores only wait for one another; the work is cut into as many parts all
// the same, and a thread takes several, so that results do not depend on the machine's cores where parts decide them.
int concurrent_threads(int num_threads);

}  // namespace tessera
