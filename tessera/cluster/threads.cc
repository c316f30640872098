#include "tessera/cluster/threads.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>

#include "tessera/base/core_share.h"
#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/thread.h"
#include "tessera/cluster/hub/late_ranks.h"
#include "tessera/cluster/network.h"
#include "tessera/cluster/ranks/rank_context.h"
#include "tessera/cluster/ranks/rank_words.h"
#include "tessera/cluster/report/figures_reporter.h"
#include "tessera/cluster/report/rank_watch.h"
#include "tessera/cluster/run.h"
#include "tessera/cluster/termination.h"
#include "tessera/comm/hierarchy.h"

namespace tessera::cluster {
namespace {

// What the ranks' threads and the one that waits for them tell each other.
struct Progress {
  explicit Progress(int num_ranks) : threads(static_cast<size_t>(num_ranks)), has_ended(threads.size()) {}

  std::mutex mutex;
  std::condition_variable changed;
  enum class Start { kWait, kGo, kDrop } start = Start::kWait;
  std::vector<pid_t> threads;   // of the ranks, once they have begun
  std::vector<bool> has_ended;  // by rank
  int num_ended = 0;
  int num_with_threads = 0;  // ranks whose compute threads have been started
};

// OpenMP starts a rank's compute threads with its first parallel work, and ends the process where it can start none.
// That comes now, before any rank works, rather than in the midst of it.
void start_compute_threads(int num_threads) {
  omp_set_num_threads(num_threads);
#pragma omp parallel num_threads(num_threads)
  static_cast<void>(omp_get_thread_num());
}

// Of the ranks that have not ended; none where all have.
std::vector<HungRank> hung_ranks(const Progress& progress) {
  std::vector<HungRank> hung;
  for (size_t rank = 0; rank < progress.threads.size(); ++rank) {
    if (progress.has_ended[rank]) continue;
    hung.push_back({static_cast<int>(rank), describe_thread(getpid(), progress.threads[rank])});
  }
  return hung;
}

}  // namespace

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

ThreadsResult run_threads(int num_ranks, const ThreadsOptions& options, FunctionRef<int(Context&)> f) {
  if (num_ranks < 1) throw InvalidArgument("a job needs at least 1 rank, got {}", num_ranks);
  const int cores = num_cores();
  int compute_threads = options.num_compute_threads > 0 ? options.num_compute_threads : std::max(1, cores / num_ranks);
  const auto world = std::make_shared<comm::InProcessWorld>(
      num_ranks, comm::WaitOptions{.timeout_ms = options.timeout_ms, .spin = cores >= num_ranks}, options.link);
  const std::shared_ptr<comm::JobState> job(world, &world->job());
  std::optional<RankWatch> watch;
  job->set_late_report([&state = world->job(), &watch](const comm::LongWait& wait) {
    if (watch) watch->note_asked();
    std::map<int, std::string> doing;
    for (const int rank : wait.ranks) doing[rank] = doing_of(state, rank, wait.place);
    report_late(wait, state.size(), doing);
  });

  std::vector<int> all_ranks(static_cast<size_t>(num_ranks));
  std::iota(all_ranks.begin(), all_ranks.end(), 0);
  std::vector<std::shared_ptr<FiguresReporter>> reporters;  // by rank; none where nobody wants to know
  std::function<void(const RankGlance&)> on_look;
  if (options.figures_fd >= 0) {
    for (const int rank : all_ranks) reporters.push_back(std::make_shared<FiguresReporter>(options.figures_fd, rank));
    on_look = [&reporters](const RankGlance& glance) { reporters[static_cast<size_t>(glance.rank)]->look(glance); };
  }
  if (options.is_watched) {
    watch.emplace(job, all_ranks,
                  WatchOptions{.directory = options.report_directory,
                               .host = own_host_name(),
                               .job = {},
                               .timeout_ms = options.timeout_ms,
                               .num_servers = options.num_servers,
                               .on_look = on_look});
  }
  const auto note_failure = [&](int rank, int origin, const std::string& message) {
    if (watch) watch->note_failure(rank, origin, message);
  };

  const int per_host = options.ranks_per_host > 0 ? options.ranks_per_host : num_ranks;
  const auto make_transport = [&]() -> std::unique_ptr<comm::Transport> {
    if (num_ranks == 1) return nullptr;
    if (per_host >= num_ranks) return comm::InProcessWorld::transport(world);
    std::vector<int> host_of;
    for (int rank = 0; rank < num_ranks; ++rank) host_of.push_back(rank / per_host);
    return comm::make_hierarchical_transport(comm::InProcessWorld::transport(world),
                                             comm::InProcessWorld::transport(world), std::move(host_of));
  };

  ThreadsResult result;
  result.codes.resize(static_cast<size_t>(num_ranks));
  result.errors.resize(static_cast<size_t>(num_ranks));
  // What is not known yet of a rank that hangs.
  const auto name_failure = [&job](ThreadsResult& known) {
    known.first_failed_rank = job->failed_rank();
    // A rank may also fail the job by abort() and return.
    std::exception_ptr& error = known.errors[static_cast<size_t>(known.first_failed_rank)];
    if (!error) error = std::make_exception_ptr(IoError(job->message()));
  };
  make_room_on_stacks();
  const ExitGuard guard;
  Progress progress(num_ranks);
  const auto run_rank = [&](int rank) {
    const auto index = static_cast<size_t>(rank);
    {
      std::unique_lock lock(progress.mutex);
      progress.threads[index] = gettid();
      progress.changed.wait(lock, [&] { return progress.start != Progress::Start::kWait; });
      if (progress.start == Progress::Start::kDrop) return;
    }
    set_log_rank(rank);
    const ExitGuard own_guard;  // nothing is destroyed where this thread calls exit()
    start_compute_threads(concurrent_threads(compute_threads));
    {
      std::unique_lock lock(progress.mutex);
      ++progress.num_with_threads;
      progress.changed.notify_all();
      progress.changed.wait(lock, [&] { return progress.num_with_threads == num_ranks; });
    }
    int code = 0;
    std::exception_ptr error;
    try {
      RankContext context({.rank = rank,
                           .size = num_ranks,
                           .local_rank = rank % per_host,
                           .local_size = std::min(per_host, num_ranks - rank / per_host * per_host),
                           .num_compute_threads = compute_threads,
                           .num_servers = options.num_servers},
                          make_transport(), std::make_unique<LocalMembership>(job, rank));
      if (!reporters.empty()) {
        context.set_figures_reader(
            [reporter = reporters[index]](const TrainingFigures& figures) { reporter->report(figures); });
      }
      context.recorder()->begin(options.timeline, FileSystem::local(), Clock::system());
      bool is_terminated = false;
      try {
        code = f(context);
      } catch (const Terminated&) {
        is_terminated = true;
        code = kExitTerminated;
      }
      if (code == 0 || is_terminated) {
        if (watch) watch->note_end(rank);
        context.finish();
      } else {
        context.abort(words_of_exit(code));
        note_failure(rank, rank, words_of_exit(code));
      }
    } catch (...) {
      error = std::current_exception();
      job->fail(origin_of(error, rank), message_of(error));
      note_failure(rank, origin_of(error, rank), message_of(error));
    }
    const std::lock_guard lock(progress.mutex);
    result.codes[index] = code;
    result.errors[index] = error;
    progress.has_ended[index] = true;
    ++progress.num_ended;
    progress.changed.notify_all();
  };
  const auto begin = [&](Progress::Start start) {
    const std::lock_guard lock(progress.mutex);
    progress.start = start;
    progress.changed.notify_all();
  };
  ThreadGroup threads;
  try {
    for (int rank = 0; rank < num_ranks; ++rank) {
      threads.start(fmt::format("rank {} of {}", rank, num_ranks), [&, rank] { run_rank(rank); });
    }
    compute_threads = 1 + usable_threads(num_ranks * (compute_threads - 1)) / num_ranks;
  } catch (...) {
    begin(Progress::Start::kDrop);
    throw;
  }
  begin(Progress::Start::kGo);
  {
    std::unique_lock lock(progress.mutex);
    const auto all_have_ended = [&] { return progress.num_ended == num_ranks; };
    // A rank that fails ends, unless it hangs afterwards.
    progress.changed.wait(lock, [&] { return all_have_ended() || (progress.num_ended > 0 && job->failed()); });
    if (options.on_hang &&
        !progress.changed.wait_for(lock, std::chrono::milliseconds(options.grace_ms), all_have_ended)) {
      ThreadsResult known = result;
      name_failure(known);
      const std::vector<HungRank> hung = hung_ranks(progress);
      lock.unlock();
      options.on_hang(known, hung);
    }
  }
  threads.join();
  if (watch) watch->close();
  if (job->failed()) name_failure(result);
  return result;
}

}  // namespace tessera::cluster
