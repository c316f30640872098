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

// The ranks of a job, a thread each, and what they share.
class RankThreads {
 public:
  // The options, and what f refers to, must outlive it.
  RankThreads(int num_ranks, const ThreadsOptions& options, FunctionRef<int(Context&)> f)
      : num_ranks_(num_ranks),
        options_(options),
        f_(f),
        per_host_(options.ranks_per_host > 0 ? options.ranks_per_host : num_ranks),
        compute_threads_(options.num_compute_threads > 0 ? options.num_compute_threads
                                                         : std::max(1, cores_ / num_ranks)),
        world_(std::make_shared<comm::InProcessWorld>(
            num_ranks, comm::WaitOptions{.timeout_ms = options.timeout_ms, .spin = cores_ >= num_ranks}, options.link)),
        job_(world_, &world_->job()),
        progress_(num_ranks) {
    result_.codes.resize(static_cast<size_t>(num_ranks));
    result_.errors.resize(static_cast<size_t>(num_ranks));
    job_->set_late_report([this](const comm::LongWait& wait) { report_long_wait(wait); });
    watch_ranks();
  }

  ThreadsResult run() {
    make_room_on_stacks();
    const ExitGuard guard;
    ThreadGroup threads;
    start(threads);
    wait_until_ended();
    threads.join();
    if (watch_) watch_->close();
    if (job_->failed()) name_failure(result_);
    return std::move(result_);
  }

 private:
  void report_long_wait(const comm::LongWait& wait) {
    if (watch_) watch_->note_asked();
    const comm::JobState& state = world_->job();
    std::map<int, std::string> doing;
    for (const int rank : wait.ranks) doing[rank] = doing_of(state, rank, wait.place);
    report_late(wait, state.size(), doing);
  }

  // Where somebody wants to know of the ranks while they work, or once the job fails or stands still.
  void watch_ranks() {
    std::vector<int> all_ranks(static_cast<size_t>(num_ranks_));
    std::iota(all_ranks.begin(), all_ranks.end(), 0);
    std::function<void(const RankGlance&)> on_look;
    if (options_.figures_fd >= 0) {
      for (const int rank : all_ranks) {
        reporters_.push_back(std::make_shared<FiguresReporter>(options_.figures_fd, rank));
      }
      on_look = [this](const RankGlance& glance) { reporters_[static_cast<size_t>(glance.rank)]->look(glance); };
    }
    if (!options_.is_watched) return;
    watch_.emplace(job_, all_ranks,
                   WatchOptions{.directory = options_.report_directory,
                                .host = own_host_name(),
                                .job = {},
                                .timeout_ms = options_.timeout_ms,
                                .num_servers = options_.num_servers,
                                .on_look = on_look});
  }

  void note_failure(int rank, int origin, const std::string& message) {
    if (watch_) watch_->note_failure(rank, origin, message);
  }

  // Adds what is not known yet of a rank that hangs.
  void name_failure(ThreadsResult& known) const {
    known.first_failed_rank = job_->failed_rank();
    // A rank may also fail the job by abort() and return.
    std::exception_ptr& error = known.errors[static_cast<size_t>(known.first_failed_rank)];
    if (!error) error = std::make_exception_ptr(IoError(job_->message()));
  }

  // Lets the threads of the ranks go, or, where one of them cannot be started, end.
  void start(ThreadGroup& threads) {
    try {
      for (int rank = 0; rank < num_ranks_; ++rank) {
        threads.start(fmt::format("rank {} of {}", rank, num_ranks_), [this, rank] { run_rank(rank); });
      }
      compute_threads_ = 1 + usable_threads(num_ranks_ * (compute_threads_ - 1)) / num_ranks_;
    } catch (...) {
      begin(Progress::Start::kDrop);
      throw;
    }
    begin(Progress::Start::kGo);
  }

  void begin(Progress::Start start) {
    const std::lock_guard lock(progress_.mutex);
    progress_.start = start;
    progress_.changed.notify_all();
  }

  // Until all ranks have ended, or one has failed and others do not end: then on_hang() hears of these.
  void wait_until_ended() {
    std::unique_lock lock(progress_.mutex);
    const auto all_have_ended = [&] { return progress_.num_ended == num_ranks_; };
    // A rank that fails ends, unless it hangs afterwards.
    progress_.changed.wait(lock, [&] { return all_have_ended() || (progress_.num_ended > 0 && job_->failed()); });
    if (!options_.on_hang ||
        progress_.changed.wait_for(lock, std::chrono::milliseconds(options_.grace_ms), all_have_ended)) {
      return;
    }
    ThreadsResult known = result_;
    name_failure(known);
    const std::vector<HungRank> hung = hung_ranks(progress_);
    lock.unlock();
    options_.on_hang(known, hung);
  }

  // What a rank's thread does.
  void run_rank(int rank) {
    if (!wait_to_begin(rank)) return;
    set_log_rank(rank);
    const ExitGuard own_guard;  // nothing is destroyed where this thread calls exit()
    start_compute_threads(concurrent_threads(compute_threads_));
    wait_for_compute_threads();
    int code = 0;
    std::exception_ptr error;
    try {
      call(rank, code);
    } catch (...) {
      error = std::current_exception();
      job_->fail(origin_of(error, rank), message_of(error));
      note_failure(rank, origin_of(error, rank), message_of(error));
    }
    const std::lock_guard lock(progress_.mutex);
    const auto index = static_cast<size_t>(rank);
    result_.codes[index] = code;
    result_.errors[index] = error;
    progress_.has_ended[index] = true;
    ++progress_.num_ended;
    progress_.changed.notify_all();
  }

  // False where the rank is not to begin.
  bool wait_to_begin(int rank) {
    std::unique_lock lock(progress_.mutex);
    progress_.threads[static_cast<size_t>(rank)] = gettid();
    progress_.changed.wait(lock, [&] { return progress_.start != Progress::Start::kWait; });
    return progress_.start == Progress::Start::kGo;
  }

  // Until all ranks have theirs.
  void wait_for_compute_threads() {
    std::unique_lock lock(progress_.mutex);
    ++progress_.num_with_threads;
    progress_.changed.notify_all();
    progress_.changed.wait(lock, [&] { return progress_.num_with_threads == num_ranks_; });
  }

  std::unique_ptr<comm::Transport> make_transport() const {
    if (num_ranks_ == 1) return nullptr;
    if (per_host_ >= num_ranks_) return comm::InProcessWorld::transport(world_);
    std::vector<int> host_of;
    for (int rank = 0; rank < num_ranks_; ++rank) host_of.push_back(rank / per_host_);
    return comm::make_hierarchical_transport(comm::InProcessWorld::transport(world_),
                                             comm::InProcessWorld::transport(world_), std::move(host_of));
  }

  // Calls f as the rank and ends its part of the job. `code` is f's, also where ending throws.
  void call(int rank, int& code) {
    RankContext context({.rank = rank,
                         .size = num_ranks_,
                         .local_rank = rank % per_host_,
                         .local_size = std::min(per_host_, num_ranks_ - rank / per_host_ * per_host_),
                         .num_compute_threads = compute_threads_,
                         .num_servers = options_.num_servers},
                        make_transport(), std::make_unique<LocalMembership>(job_, rank));
    if (!reporters_.empty()) {
      context.set_figures_reader([reporter = reporters_[static_cast<size_t>(rank)]](const TrainingFigures& figures) {
        reporter->report(figures);
      });
    }
    context.recorder()->begin(options_.timeline, FileSystem::local(), Clock::system());
    bool is_terminated = false;
    try {
      code = f_(context);
    } catch (const Terminated&) {
      is_terminated = true;
      code = kExitTerminated;
    }
    if (code == 0 || is_terminated) {
      if (watch_) watch_->note_end(rank);
      context.finish();
    } else {
      context.abort(words_of_exit(code));
      note_failure(rank, rank, words_of_exit(code));
    }
  }

  const int num_ranks_;
  const ThreadsOptions& options_;
  const FunctionRef<int(Context&)> f_;
  const int cores_ = num_cores();
  const int per_host_;
  int compute_threads_;  // of a rank
  const std::shared_ptr<comm::InProcessWorld> world_;
  const std::shared_ptr<comm::JobState> job_;
  std::vector<std::shared_ptr<FiguresReporter>> reporters_;  // by rank; none where nobody wants to know
  std::optional<RankWatch> watch_;
  Progress progress_;
  ThreadsResult result_;
};

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
  return RankThreads(num_ranks, options, f).run();
}

}  // namespace tessera::cluster
