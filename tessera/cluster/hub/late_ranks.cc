#include "tessera/cluster/hub/late_ranks.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "tessera/base/logging.h"
#include "tessera/cluster/ranks/rank_words.h"

namespace tessera::cluster {

std::string doing_of(const comm::JobState& job, int rank, const std::string& place) {
  std::vector<std::string> waits;
  for (const comm::LongWait& wait : job.long_waits_of(rank)) waits.push_back(wait.place);
  if (std::find(waits.begin(), waits.end(), place) != waits.end()) return "";
  if (!waits.empty()) return fmt::format("it waits in {}", fmt::join(waits, " and in "));
  const int thread = job.thread_of(rank);
  std::string words = thread == 0 ? "" : describe_thread(getpid(), thread);
  if (words.empty()) words = "nothing is known of it";
  const comm::RankNotes* notes = job.notes_of(rank);
  const std::string progress = notes == nullptr ? "" : notes->progress().glance().words();
  return progress.empty() ? words : words + ": " + progress;
}

void report_late(const comm::LongWait& wait, int job_size, const std::map<int, std::string>& doing) {
  std::vector<int> waiting;
  std::vector<int> missing;
  RankErrors words(job_size);
  std::vector<int> ranks = wait.ranks;
  std::sort(ranks.begin(), ranks.end());
  for (const int rank : ranks) {
    const auto found = doing.find(rank);
    if (rank == wait.rank || (found != doing.end() && found->second.empty())) {
      waiting.push_back(rank);
    } else {
      missing.push_back(rank);
      words.add(rank, found == doing.end() ? "it does not answer" : found->second);
    }
  }
  // Nobody is missing: the last one has just come, or the call itself takes long.
  if (missing.empty() || waiting.front() != wait.rank) return;
  std::string all;
  for (const RankErrors::Entry& entry : words.entries()) {
    all += fmt::format("{}{}: {}", all.empty() ? "" : "; ", name_ranks(entry.ranks, job_size), entry.text);
  }
  log_warning("{}: {} {} waited {} ms for {}", wait.place, name_ranks(waiting, job_size),
              waiting.size() == 1 ? "has" : "have", wait.waited_ms, all);
}

}  // namespace tessera::cluster
