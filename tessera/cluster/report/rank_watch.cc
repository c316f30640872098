#include "tessera/cluster/report/rank_watch.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/thread.h"
#include "tessera/cluster/hub/hub_socket.h"
#include "tessera/cluster/ranks/rank_words.h"
#include "tessera/cluster/report/bounded_question.h"
#include "tessera/cluster/report/fault_signals.h"
#include "tessera/cluster/report/rank_report.h"

namespace tessera::cluster {
namespace {

// A rank that comes no further is spoken of after so long, sooner where the others give it up sooner.
constexpr int64_t kStillMs = 10000;
constexpr int64_t kStillsPerDeadline = 3;
constexpr int64_t kLeastStillMs = 1000;
// A wait of so long is reported, as it is spoken of (comm/watched_wait.cc).
constexpr int64_t kLongWaitMs = 5000;
constexpr int64_t kLongWaitsPerDeadline = 6;
constexpr int64_t kMostLookMs = 1000;
constexpr int64_t kLooksPerDeadline = 30;
// Slow ranks are looked for in the times of such windows.
constexpr int64_t kWindowMs = 5000;
// A script whose interpreter does not answer for so long hangs, too.
constexpr int64_t kAnswerMs = 500;
// A rank that has come no further for so long may hang.
constexpr int64_t kPauseMs = 1000;
// A generation's planned end is told of by the scheduler, and felt by ranks that others have left before: so long a
// failure waits for that word.
constexpr int64_t kPlanWordMs = 500;
// The latest are kept.
constexpr size_t kMaxWarnings = 8;

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("SIG{}", name);
}

}  // namespace

struct RankWatch::Impl {
  struct Watched {
    int rank = 0;
    uint64_t count = 0;
    int64_t changed_ms = 0;  // when the rank was seen to have come further
    ReportEvent event = ReportEvent::kGoesOn;
    bool has_ended = false;            // its last report is written
    bool is_at_end = false;            // it has ended with exit code 0
    bool is_asked = false;             // by one that waits for it, since it has come further
    bool has_warned = false;           // that it stands still
    int64_t failed_ms = -1;            // when the job was seen to have failed
    std::optional<RankReport> latest;  // that was written
    uint64_t latest_count = 0;         // how far it had come then
    SlowRanks slow_ranks;
    std::optional<SlowRank> slow;
    std::vector<std::string> warnings;
  };

  Impl(std::shared_ptr<comm::JobState> job_state, const std::vector<int>& ranks, WatchOptions watch_options)
      : job(std::move(job_state)),
        options(std::move(watch_options)),
        script(options.script_place),
        wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    const int64_t now = now_ms();
    window_begin_ms = now;
    for (const int rank : ranks) {
      Watched& one = watched.emplace_back();
      one.rank = rank;
      one.changed_ms = now;
    }
    if (writes()) remove_old();
    if (!options.has_thread) return;
    listener.emplace(*job, [this] {
      if (job->failed()) wake_up();
    });
    try {
      thread = start_thread("looking on while the ranks work", [this] { run(); });
    } catch (const IoError& error) {
      log_warning("nobody looks whether this process's ranks stand still: {}", error.what());
      return;
    }
    if (writes()) signals.emplace(wake.fd());
  }

  ~Impl() { close(); }

  void close() {
    must_stop.store(true);
    listener.reset();
    wake_up();
    if (thread.joinable()) thread.join();
    signals.reset();
    if (!job->failed()) return;
    // Of ranks that are threads one may have ended that no other thread reports.
    const std::lock_guard lock(mutex);
    for (Watched& one : watched) {
      const bool is_said = one.has_ended || one.event == ReportEvent::kStopped || has_ended_as_planned();
      if (one.is_at_end && !is_said) note_stopped(one);
    }
  }

  bool writes() const { return !options.directory.empty(); }
  int64_t now_ms() const { return options.clock->monotonic_ns() / 1'000'000; }
  bool is_last() const { return !options.last_reason.empty(); }
  std::string path_of(int rank) const {
    return join_path(options.directory, is_last() ? last_report_name(rank) : rank_report_name(rank));
  }

  void wake_up() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake.fd(), &one, sizeof(one));
  }

  // Of another job, or of what this one was before it began anew, where that has written no new one.
  void remove_old() {
    if (options.generation > 1) return;
    for (const Watched& one : watched) {
      for (const std::string& name : {rank_report_name(one.rank), last_report_name(one.rank)}) {
        const std::string path = join_path(options.directory, name);
        try {
          if (options.files->exists(path)) options.files->remove(path);
        } catch (const IoError& error) {
          log_warning("{}: an older report is in the way: {}", path, error.what());
        }
      }
    }
  }

  void run() {
    const auto pause_ms = std::clamp<int64_t>(options.timeout_ms / kLooksPerDeadline, 20, kMostLookMs);
    while (!must_stop.load()) {
      pollfd wait{wake.fd(), POLLIN, 0};
      poll(&wait, 1, static_cast<int>(pause_ms));
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t done = read(wake.fd(), &count, sizeof(count));
      if (signals) take_signal();
      if (!must_stop.load()) look();
    }
  }

  // The process ends once it is let.
  void take_signal() {
    const auto taken = signals->taken();
    if (!taken || is_signal_taken) return;
    is_signal_taken = true;
    signals->gets_on();
    const std::lock_guard lock(mutex);
    const bool is_told = taken->number == SIGTERM;
    const auto is_of_thread = [&](const Watched& one) { return job->thread_of(one.rank) == taken->thread; };
    const auto guilty = std::ranges::find_if(watched, is_of_thread);
    for (Watched& one : watched) {
      // Of several ranks that are threads the one whose thread it was; a thread that none has made may be any's.
      const bool has_crashed = !is_told && (guilty == watched.end() || guilty->rank == one.rank);
      if (one.has_ended || (is_told && one.event == ReportEvent::kStopped)) continue;
      const ReportEvent event = is_told       ? ReportEvent::kToldToEnd
                                : has_crashed ? ReportEvent::kCrashed
                                              : ReportEvent::kStopped;
      const int cause = is_told ? -1 : has_crashed ? one.rank : guilty->rank;
      write_report(one, event, cause, "", signal_name(taken->number));
      signals->gets_on();
      one.has_ended = true;
    }
    signals->let_end();
  }

  void look() {
    const std::lock_guard lock(mutex);
    const int64_t now = now_ms();
    const bool is_asked = must_answer.exchange(false);
    const bool is_window = now - window_begin_ms >= kWindowMs;
    for (Watched& one : watched) {
      one.is_asked = one.is_asked || is_asked;
      look_at(one, now, is_window ? now - window_begin_ms : 0);
    }
    if (is_window) window_begin_ms = now;
  }

  void look_at(Watched& one, int64_t now, int64_t window_ms) {
    comm::RankNotes* notes = job->notes_of(one.rank);
    if (notes == nullptr || one.has_ended) return;
    RankGlance glance{.rank = one.rank,
                      .progress = notes->progress().glance(),
                      .waits = job->long_waits_of(one.rank),
                      .slow = std::nullopt};
    if (glance.progress.count != one.count) {
      one.changed_ms = now;
      one.is_asked = false;
    }
    one.count = glance.progress.count;
    if (job->failed()) {
      if (one.failed_ms < 0) one.failed_ms = now;
      const bool may_be_planned = options.has_ended_as_planned && now - one.failed_ms < kPlanWordMs;
      const bool must_say = one.event != ReportEvent::kStopped && !may_be_planned && !has_ended_as_planned();
      if (must_say) note_stopped(one);
    } else if (!one.is_at_end) {
      look_at_waits(one, glance, now);
      if (window_ms > 0 && one.rank >= options.num_servers) look_at_times(one, *notes, window_ms);
    }
    glance.slow = one.slow;
    if (options.on_look) options.on_look(glance);
  }

  bool has_ended_as_planned() const { return options.has_ended_as_planned && options.has_ended_as_planned(); }

  // The job has failed; what this rank says of it itself comes later, if it comes at all.
  void note_stopped(Watched& one) {
    const int failed = job->failed_rank();
    write_report(one, ReportEvent::kStopped, failed, failed == one.rank ? job->message() : "", "");
  }

  void look_at_waits(Watched& one, const RankGlance& glance, int64_t now) {
    const int64_t long_ms = std::min(kLongWaitMs, options.timeout_ms / kLongWaitsPerDeadline);
    const int64_t still_ms = std::clamp(options.timeout_ms / kStillsPerDeadline, kLeastStillMs, kStillMs);
    const bool waits = !glance.waits.empty();
    const bool waits_long =
        std::ranges::any_of(glance.waits, [&](const auto& wait) { return wait.waited_ms >= long_ms; });
    const auto& progress = glance.progress;
    const bool may_take_long = progress.piece.what.empty() && (progress.phase == comm::RankProgress::kSave ||
                                                               progress.phase == comm::RankProgress::kCompilation);
    const bool is_still_long =
        !waits && !may_take_long && !progress.doing().empty() && now - one.changed_ms >= still_ms;
    if (waits) one.is_asked = false;
    const bool is_still = is_still_long || (one.is_asked && now - one.changed_ms >= kPauseMs);
    const ReportEvent event = waits_long                                  ? ReportEvent::kWaits
                              : is_still                                  ? ReportEvent::kStandsStill
                              : waits && one.event == ReportEvent::kWaits ? ReportEvent::kWaits
                                                                          : ReportEvent::kGoesOn;
    const bool must_warn = is_still_long && !one.has_warned;
    one.has_warned = is_still_long;
    if (event == one.event && !must_warn) return;
    if (must_warn) {
      const std::string thread = describe_thread(getpid(), job->thread_of(one.rank));
      warn(one, fmt::format("rank {} has come no further for {} s: {}{}", one.rank, (now - one.changed_ms) / 1000,
                            progress.words(), thread.empty() ? "" : "; " + thread));
    }
    write_report(one, event, -1, "", "");
  }

  void look_at_times(Watched& one, comm::RankNotes& notes, int64_t window_ms) {
    one.slow = one.slow_ranks.add(one.rank, notes.wait_times().take(), window_ms);
    const auto slow = one.slow_ranks.warning();
    if (!slow) return;
    warn(one,
         fmt::format("rank {} is slow: rank {} has waited for it {} % of the last {} s, most in {}; the job goes on",
                     slow->rank, one.rank, slow->percent, window_ms / 1000, slow->call));
    write_report(one, one.event, -1, "", "");
  }

  void warn(Watched& one, const std::string& words) {
    log_warning("{}", words);
    one.warnings.push_back(words);
    if (one.warnings.size() > kMaxWarnings) one.warnings.erase(one.warnings.begin());
  }

  ReportedWait reported(const comm::RankProgress& progress, const comm::LongWait& wait) const {
    return {.call = wait.place,
            .line = progress.line_of_call(wait.place),
            .waits_for = wait.peer,
            .ranks = wait.ranks,
            .waited_ms = wait.waited_ms,
            .is_mismatch = false};
  }

  // With the mutex held. Whatever fails is said, and stops nothing.
  void write_report(Watched& one, ReportEvent event, int cause, const std::string& error, const std::string& signal) {
    one.event = event;
    if (!writes() || job->notes_of(one.rank) == nullptr) return;
    try {
      RankReport report = make_report(one, event, cause, error, signal);
      const std::string text = print_report(report);
      one.latest = std::move(report);
      one.latest_count = job->notes_of(one.rank)->progress().count();
      options.files->create_directories(options.directory);
      options.files->write_atomically(path_of(one.rank), text, 0600);
    } catch (const std::exception& failure) {
      log_warning("the report of rank {} cannot be written: {}", one.rank, failure.what());
    }
  }

  RankReport make_report(const Watched& one, ReportEvent event, int cause, const std::string& error,
                         const std::string& signal) {
    comm::RankNotes& notes = *job->notes_of(one.rank);
    const comm::RankProgress& progress = notes.progress();
    const auto glance = progress.glance();
    RankReport report;
    report.rank = one.rank;
    report.size = job->size();
    report.host = options.host;
    report.pid = getpid();
    report.job = options.job;
    report.generation = options.generation;
    report.time_ms = options.clock->wall_ms();
    report.event = event_of(one, event, cause);
    const bool is_over = report.event == ReportEvent::kEnded;
    const bool has_failed = !is_over && (event == ReportEvent::kFailed || event == ReportEvent::kStopped);
    report.cause = cause;
    report.error = error;
    report.signal = signal;
    report.step = glance.step;
    const bool has_piece = !glance.doing().empty() || !has_failed;
    report.doing = has_piece ? glance.doing() : glance.failed_piece.what;
    report.line = has_piece ? glance.piece.line : glance.failed_piece.line;
    report.doing_ms = now_ms() - one.changed_ms;
    const bool has_words = has_failed && !error.empty();
    if ((is_over || has_words) && options.script_left_at) report.script = options.script_left_at();
    // A thread to which a signal has come waits for this report.
    const auto taken = signals ? signals->taken() : std::nullopt;
    const int thread_of_rank = job->thread_of(one.rank);
    if (!taken || taken->thread != thread_of_rank) report.thread = describe_thread(getpid(), thread_of_rank);
    if (const auto broken = has_failed ? notes.broken_call() : std::nullopt) {
      // An earlier one, which the program has got over, is none of this error's.
      const bool is_of_error =
          error.empty() || broken->is_mismatch || error.find(broken->wait.place) != std::string::npos;
      if (is_of_error) {
        report.waits.push_back(reported(progress, broken->wait));
        report.waits.back().line = broken->line;
        report.waits.back().is_mismatch = broken->is_mismatch;
      }
    }
    for (const comm::LongWait& wait : job->long_waits_of(one.rank)) report.waits.push_back(reported(progress, wait));
    const bool is_told = event == ReportEvent::kToldToEnd;
    const bool is_cut_short = is_told || (event == ReportEvent::kStopped && error.empty());
    if (is_cut_short && !is_over) keep_known(one, glance.count, report);
    // Of a rank that waits, its waits say where it is.
    const bool may_hang = event == ReportEvent::kStandsStill || (is_cut_short && !(is_told && !report.waits.empty()));
    const bool must_ask = may_hang && !is_over && report.doing_ms >= kPauseMs && report.script.empty();
    if (must_ask) report.script = script.answer(kAnswerMs);
    const bool is_not_finite =
        has_failed && glance.non_finite && error.find(glance.non_finite->piece.what) != std::string::npos;
    if (is_not_finite) report.non_finite = glance.non_finite;
    report.warnings = one.warnings;
    report.log = last_log_lines(one.rank);
    return report;
  }

  // A rank whose failure came first has failed by itself, and one that had ended before has not been stopped.
  static ReportEvent event_of(const Watched& one, ReportEvent event, int cause) {
    if (event == ReportEvent::kStopped && cause == one.rank) return ReportEvent::kFailed;
    const bool is_others = event == ReportEvent::kStopped || event == ReportEvent::kToldToEnd;
    return is_others && one.is_at_end ? ReportEvent::kEnded : event;
  }

  // Of a rank that has come no further since its latest report that one may know more: its script can no longer be
  // asked, where the thread that would answer is the one to which the signal came.
  static void keep_known(const Watched& one, uint64_t count, RankReport& report) {
    if (!one.latest || one.latest_count != count || one.latest->event == ReportEvent::kGoesOn) return;
    report.script = one.latest->script;
    if (report.thread.empty()) report.thread = one.latest->thread;
    if (report.waits.empty()) report.waits = one.latest->waits;
  }

  void note_end(int rank) {
    const std::lock_guard lock(mutex);
    for (Watched& one : watched) {
      if (one.rank != rank) continue;
      one.is_at_end = true;
      const bool has_said_otherwise = one.event == ReportEvent::kWaits || one.event == ReportEvent::kStandsStill;
      if (has_said_otherwise) write_report(one, ReportEvent::kGoesOn, -1, "", "");
    }
  }

  void note_failure(int rank, int origin, const std::string& message) {
    const std::lock_guard lock(mutex);
    for (Watched& one : watched) {
      if (one.rank != rank || one.has_ended) continue;
      one.has_ended = true;
      if (has_ended_as_planned()) continue;
      // Its machine is taken away, say, and the job goes on: it has not failed.
      if (says_told_to_end(message)) {
        write_report(one, ReportEvent::kToldToEnd, -1, "", signal_name(SIGTERM));
        continue;
      }
      if (is_last() && message.find(options.last_reason) != std::string::npos) {
        write_report(one, ReportEvent::kLeft, -1, message, "");
        continue;
      }
      // Of ranks that fail together the job has heard of one first.
      const int cause = job->failed() ? job->failed_rank() : origin;
      write_report(one, cause == rank ? ReportEvent::kFailed : ReportEvent::kStopped, cause, message, "");
    }
  }

  std::shared_ptr<comm::JobState> job;
  WatchOptions options;
  BoundedQuestion script;
  std::mutex mutex;  // of all that is watched
  std::vector<Watched> watched;
  int64_t window_begin_ms = 0;
  bool is_signal_taken = false;  // of the thread
  Socket wake;
  std::atomic<bool> must_stop{false};
  std::atomic<bool> must_answer{false};  // somebody has asked since the latest look
  std::optional<comm::JobListener> listener;
  std::optional<FaultSignals> signals;
  std::thread thread;
};

RankWatch::RankWatch(std::shared_ptr<comm::JobState> job, const std::vector<int>& ranks, WatchOptions options)
    : impl_(std::make_unique<Impl>(std::move(job), ranks, std::move(options))) {}
RankWatch::~RankWatch() = default;

void RankWatch::look() { impl_->look(); }
void RankWatch::note_failure(int rank, int origin, const std::string& message) {
  impl_->note_failure(rank, origin, message);
}
void RankWatch::note_end(int rank) { impl_->note_end(rank); }
void RankWatch::note_asked() {
  impl_->must_answer.store(true);
  impl_->wake_up();
}
void RankWatch::close() { impl_->close(); }

}  // namespace tessera::cluster
