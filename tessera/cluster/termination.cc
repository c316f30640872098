#include "tessera/cluster/termination.h"

#include <atomic>
#include <mutex>

namespace tessera::cluster {
namespace {

// A process has one handler of a signal.
struct Handling {
  std::mutex mutex;
  int num_watches = 0;
  bool is_ours = false;
  struct sigaction before {};  // written while nothing is handled
  std::atomic<bool> has_come = false;
  bool is_answered = false;
};
static_assert(std::atomic<bool>::is_always_lock_free);
Handling handling;

void note_termination(int number) {
  if (!handling.has_come.exchange(true)) return;
  sigaction(number, &handling.before, nullptr);
  raise(number);  // once this handler has returned
}

// What would end the process: nothing that the program has set itself. What only says which signal it was before it
// ends by it, as say_end_signals() does, is set back by its first call.
bool ends_process(const struct sigaction& action) {
  if ((action.sa_flags & SA_SIGINFO) != 0 || action.sa_handler == SIG_IGN) return false;
  return action.sa_handler == SIG_DFL || (static_cast<unsigned>(action.sa_flags) & SA_RESETHAND) != 0;
}

}  // namespace

TerminationWatch::TerminationWatch() {
  const std::lock_guard lock(handling.mutex);
  if (handling.num_watches++ > 0) return;
  handling.has_come = handling.is_answered = false;
  handling.is_ours = sigaction(SIGTERM, nullptr, &handling.before) == 0 && ends_process(handling.before);
  if (!handling.is_ours) return;
  struct sigaction action {};
  action.sa_handler = note_termination;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
}

TerminationWatch::~TerminationWatch() {
  const std::lock_guard lock(handling.mutex);
  if (--handling.num_watches > 0 || !handling.is_ours) return;
  struct sigaction now {};
  if (sigaction(SIGTERM, nullptr, &now) != 0 || now.sa_handler != note_termination) return;
  sigaction(SIGTERM, &handling.before, nullptr);
  if (handling.has_come && !handling.is_answered) raise(SIGTERM);
}

void TerminationWatch::answer() {
  const std::lock_guard lock(handling.mutex);
  handling.is_answered = true;
}

bool TerminationWatch::has_come() const { return handling.has_come; }

}  // namespace tessera::cluster
