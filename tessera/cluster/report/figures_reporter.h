// FiguresReporter: says a rank's figures to its launcher, at most once a second, by the pipe that the launcher has
// given it; a launcher that does not read misses them, and the rank never waits. Thread-safe: the rank's own thread
// says how its training goes, that of the watch what it sees of the rank.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "tessera/base/clock.h"
#include "tessera/cluster/ranks/training_figures.h"
#include "tessera/cluster/report/rank_watch.h"

namespace tessera::cluster {

class FiguresReporter {
 public:
  // `fd`: the pipe, which takes writes without waiting; it stays the caller's. -1: only latest() tells of the figures.
  FiguresReporter(int fd, int rank, Clock& clock = Clock::system()) : fd_(fd), rank_(rank), clock_(clock) {}

  // How the rank's training goes now. The end of a training is said at once.
  void report(const TrainingFigures& figures);
  // What the watch has seen.
  void look(const RankGlance& glance);
  // The latest of report(), as text; "" before the first.
  std::string latest() const;

 private:
  // To be called with the mutex held.
  void say_if_due(bool is_new, bool at_once);

  int fd_;
  int rank_;
  Clock& clock_;
  mutable std::mutex mutex_;
  TrainingFigures figures_;
  bool has_figures_ = false;
  bool is_unsaid_ = false;
  int64_t said_ms_ = -1;  // when; -1: never
};

}  // namespace tessera::cluster
