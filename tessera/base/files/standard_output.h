// Standard output at the end of a program: what it has printed has arrived, or somebody hears that it has not.
#pragma once

#include <string>

namespace tessera {

// Puts something that takes no bytes where standard output and standard error are closed, so that no file which is
// opened later gets their numbers and, with them, what is printed. To be called before files are opened.
void occupy_closed_outputs();

// Writes what is still buffered of standard output. Returns why it, or what was printed before, has not arrived: "No
// space left on device"; "" where all has, or where nobody reads it any more, as behind `| head -1`. What could not be
// written is given up.
std::string flush_standard_output();

// What a program that would end with `code` is to end with: it has printed, and this is its last word. The same where
// standard output has arrived; else prints "error: cannot write standard output: ..." and returns `code`, or 1 where
// that is 0.
int code_after_output(int code);

}  // namespace tessera
