// Threads that live as long as the process, as OpenMP's do, are not there in a child of fork().
#pragma once

namespace tessera {

// Called before the threads of OpenMP are used. Throws Error where this process is a child of fork() whose parent had
// used them: GNU's OpenMP would wait for them forever.
void require_threads_of_this_process();

}  // namespace tessera
