// RankWatch: looks on while the ranks of this process work, from a thread of its own, so that it sees them also where
// they hang in a kernel, in a user's function or in a collective. It warns of a rank that comes no further and of one
// that is slow, and writes the ranks' reports. It ends nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/base/files/file_system.h"
#include "tessera/cluster/report/slow_ranks.h"
#include "tessera/comm/job_state.h"

namespace tessera::cluster {

// What is seen of a rank in one look.
struct RankGlance {
  int rank = 0;
  comm::RankProgress::Glance progress;
  std::vector<comm::LongWait> waits;
  std::optional<SlowRank> slow;  // for whom it has waited most lately
};

struct WatchOptions {
  std::string directory;  // of the reports; "": none is written
  std::string host;
  std::string job;
  uint64_t generation = 0;
  int64_t timeout_ms = 30000;  // deadline of every wait for a peer
  int num_servers = 0;         // so many of the job's first ranks wait for the others because that is their task
  // As JobOptions have them; null: there is no script.
  std::function<std::string()> script_place = {};
  std::function<std::string()> script_left_at = {};
  // Of a job that may end a generation as planned, with nobody failing: whether this one has ended so, as far as is
  // known. Ranks that are gone by then are no failure. It does not block; null: there is no such end.
  std::function<bool()> has_ended_as_planned = {};
  // Of the last generation of a job that a loss has ended: that loss. Reports are files of their own then: those of the
  // loss stay, and a rank that says the loss when it leaves has not failed.
  std::string last_reason = {};
  // After each look; it must not block.
  std::function<void(const RankGlance&)> on_look = {};
  // Whether a thread looks, and signals that end the process are taken; else somebody calls look().
  bool has_thread = true;
  FileSystem* files = &FileSystem::local();
  Clock* clock = &Clock::system();
};

class RankWatch {
 public:
  // Watches these ranks of the job, which are this process's. A report that an earlier process of a rank has left is
  // removed. Where the system has no room for a thread, nobody looks, which is said.
  RankWatch(std::shared_ptr<comm::JobState> job, const std::vector<int>& ranks, WatchOptions options);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // Looks once at all ranks.
  void look();
  // A rank fails, because of itself or of `origin`: writes its report at once. Never throws.
  void note_failure(int rank, int origin, const std::string& message);
  // A rank ends with exit code 0: it makes no more calls, and waits for the ends of the others.
  void note_end(int rank);
  // A rank that waits long asks what the ranks of this process do. Those that neither wait nor come further say so in
  // their reports, at once: whoever looks into the folder now asks the same. Any thread; never blocks.
  void note_asked();
  // Nobody looks from here on. Not to be called by two threads at a time.
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::cluster
