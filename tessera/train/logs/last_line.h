// LastLine: what a process still writes into a log when a signal ends it at once: SIGTERM where nothing saves the step,
// SIGINT or SIGHUP. Then nobody calls an end() any more; the line is made beforehand, and the handler of the signal
// writes it. It changes nothing else: the signal does then what it would have done.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::train {

// Writes one file's last line. A process has 16 at most; of more, and of a file that cannot be opened, no line is
// written. A program that handles a signal itself, or ignores it, goes on to do so, and a child by fork() writes
// nothing.
class LastLine {
 public:
  explicit LastLine(const std::string& path);
  ~LastLine();
  LastLine(const LastLine&) = delete;
  LastLine& operator=(const LastLine&) = delete;

  // The line without its end, in which the time of the signal and its name, "SIGTERM", stand between the three parts.
  // One of more than 1000 bytes is not written.
  void set(std::string_view before_time, std::string_view before_signal, std::string_view rest);

  // While it lives the file is written to by its thread: a signal on another one waits, a second at most.
  class Writing {
   public:
    explicit Writing(LastLine& line);
    ~Writing();
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;

   private:
    int slot_;
  };

 private:
  int slot_ = -1;
};

}  // namespace tessera::train
