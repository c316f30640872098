#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"
#include "tessera/base/limits.h"
#include "tessera/base/printable.h"
#include "tessera/base/random.h"
#include "tessera/base/strings.h"
#include "tessera/base/usage_error.h"
#include "tessera/cluster/dashboard/launcher_dashboard.h"
#include "tessera/cluster/hub/hub_socket.h"
#include "tessera/cluster/launch.h"
#include "tessera/cluster/launcher/failure_report.h"
#include "tessera/cluster/launcher/fallen_processes.h"
#include "tessera/cluster/launcher/guard.h"
#include "tessera/cluster/launcher/launch_reports.h"
#include "tessera/cluster/launcher/launcher_output.h"
#include "tessera/cluster/launcher/process_tree.h"
#include "tessera/cluster/launcher/rank_activity.h"
#include "tessera/cluster/launcher/rank_child.h"
#include "tessera/cluster/launcher/rank_environment.h"
#include "tessera/cluster/launcher/rank_process.h"
#include "tessera/cluster/network.h"
#include "tessera/cluster/ranks/environment.h"
#include "tessera/cluster/ranks/rank_context.h"
#include "tessera/cluster/ranks/rank_words.h"
#include "tessera/cluster/run.h"
#include "tessera/cluster/scheduler_link.h"
#include "tessera/cluster/scheduler_process.h"
#include "tessera/comm/wire/secret.h"
#include "tessera/timeline/timeline_files.h"

namespace tessera::cluster {
namespace {

// After a signal a reader that takes nothing for so long is not waited for.
constexpr int64_t kLastWordsMs = 1000;
// The job has finished: ranks that have not noticed have so long.
constexpr int64_t kFinishMs = 10000;
// The scheduler tells of ranks that leave together one by one; for others of them so long is waited.
constexpr int64_t kMoreDroppedMs = 200;
// So often the launcher looks whether guards have noticed that their ranks have ended. One that has been stopped is
// woken after as long.
constexpr int64_t kLookAtGuardsMs = 1000;
// A guard that has not ended so long after its rank, or the job's timeout where that is longer, is killed.
constexpr int64_t kGuardMs = 30000;
// What a rank has left behind and the launcher kills ends at once, unless it waits for a disk.
constexpr int64_t kFallenMs = 2000;
// After so many starts the launcher looks at those that have started.
constexpr int kStartsPerLook = 64;

// A guard, memory that is kept, and two pipes, or a pipe and a log. Where there are other launchers, memory for what
// their ranks give it, too.
int descriptors_per_rank(const LaunchOptions& options) { return options.scheduler.empty() ? 4 : 5; }

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options)
      : options_(options),
        is_threads_(options.num_thread_ranks > 0),
        program_(find_program(options.command.at(0))),
        descriptors_(num_children(), descriptors_per_rank(options),
                     options.dashboard.place.empty() ? 0 : LauncherDashboard::kMostDescriptors),
        reports_(static_cast<size_t>(num_children())),
        activity_(reports_, static_cast<size_t>(num_children())),
        out_(options.out_fd),
        launch_reports_(report_directory_of(options), own_host_name()) {
    if (!out_.is_same_as(options.err_fd)) own_err_.emplace(options.err_fd);
  }

  int run() {
    if (!options_.dashboard.place.empty()) open_dashboard();
    const int code = run_job();
    if (dashboard_) {
      const bool is_signal = end_signal_ != 0;
      dashboard_->end(is_signal              ? BoardJobState::kEndedBySignal
                      : code == kExitSuccess ? BoardJobState::kCompleted
                                             : BoardJobState::kFailed,
                      is_signal              ? fmt::format("SIG{}", sigabbrev_np(end_signal_))
                      : code == kExitSuccess ? ""
                                             : why_failed());
    }
    return code;
  }

 private:
  int run_job() {
    // A job whose start, or the start of a rank that was lost, fails must not leave those behind that have started.
    try {
      std::tie(status_, status_write_) = make_pipe();
      fcntl(status_.fd(), F_SETFL, fcntl(status_.fd(), F_GETFL) | O_NONBLOCK);
      children_.resize(static_cast<size_t>(num_children()));
      const std::string job_id = comm::hex(comm::random_bytes(16));
      if (!options_.scheduler.empty() || has_own_scheduler()) {
        join();
      } else if (!is_threads_) {
        secret_ = make_secret(comm::Secret::random().bytes());
      }
      if (is_unneeded_) return 0;
      if (dashboard_) {
        dashboard_->board().set_num_ranks(num_ranks());
        dashboard_->board().set_job(BoardJobState::kRunning);
      }
      const bool is_beginning = !link_ || (generation_ && generation_->number <= 1);
      if (is_beginning && next_kill_ms_ == 0) {
        launch_reports_.forget_earlier(own_ranks());
        if (records()) timeline::remove_earlier(FileSystem::local(), options_.timeline.file, own_ranks());
      }
      for (int place = 0; place < num_children() && next_kill_ms_ == 0; ++place) {
        start(place, job_id);
        take_signal();
        if (place % kStartsPerLook == kStartsPerLook - 1) step(/*may_wait=*/false);
      }
      while (num_running_ > 0 || is_any_awaited()) step(/*may_wait=*/true);
      say_dropped();
    } catch (...) {
      kill_all(SIGKILL);
      for (RankChild& child : children_) wait_for(child);
      end_fallen();
      throw;
    }
    end_fallen();
    for (RankOutput& stream : earlier_) {
      pass_on_rest(stream);
      stream.release();
    }
    for (RankChild& child : children_) {
      pass_on_rest(child.out);
      pass_on_rest(child.err);
    }
    read_status();
    const bool are_all_dropped = std::ranges::all_of(children_, &RankChild::is_dropped);
    const std::string loss = last_reason();
    const bool has_failed = are_all_dropped || !loss.empty();
    int code = end_signal_ != 0 ? 128 + end_signal_ : has_failed ? kExitFailure : kExitSuccess;
    const bool is_unsaid = !loss.empty() && end_signal_ == 0 && first_failed_ < 0 && !has_said_end_;
    if (is_unsaid) say(fmt::format("the job has failed, though its last ranks have ended well: {}", loss));
    note_endings();
    if (end_signal_ == 0 && first_failed_ >= 0) {
      show_held_errors();
      code = report();
    } else {
      for (RankChild& child : children_) child.err.release();
    }
    say_why(code);
    join_timeline();
    if (code == kExitSuccess) stay_until_heard();
    take_output_error();
    while (out_.has_pending() || err().has_pending()) wait_for_readers();
    if (code != kExitSuccess) return code;
    return end_signal_ != 0 ? 128 + end_signal_ : output_error_ != 0 ? kExitFailure : kExitSuccess;
  }

  // Says where it is, once it is there: before any rank is.
  void open_dashboard() {
    std::string program;
    for (const std::string& word : options_.command) program += (program.empty() ? "" : " ") + word;
    dashboard_.emplace(options_.dashboard, program, host_ip(""));
    err().write(fmt::format("tessera run: dashboard: {}\n", dashboard_->url()));
    if (const std::string warning = dashboard_->warning(); !warning.empty()) say(warning);
    dashboard_->board().set_num_ranks(num_ranks());
  }
  // What the dashboard shows of the ranks that a process at this place is.
  void show_ranks(int place, BoardRankState state, const std::string& detail = "") {
    if (!dashboard_) return;
    for (int rank = 0; is_threads_ && rank < num_own_ranks(); ++rank) dashboard_->board().set_rank(rank, state, detail);
    if (!is_threads_) dashboard_->board().set_rank(rank_of(place), state, detail);
  }
  // Ranks may have other numbers now, and others may be of this launcher.
  void show_all_ranks() {
    if (!dashboard_) return;
    dashboard_->board().set_num_ranks(num_ranks());
    for (int place = 0; place < num_children(); ++place) {
      const RankChild& child = children_[static_cast<size_t>(place)];
      if (child.is_running && !child.is_dropped) show_ranks(place, BoardRankState::kRunning);
    }
  }
  void show_end(int place) {
    const RankChild& child = children_[static_cast<size_t>(place)];
    const BoardRankState state = child.is_dropped    ? BoardRankState::kLeft
                                 : child.status == 0 ? BoardRankState::kEnded
                                 : child.is_awaited  ? BoardRankState::kLost
                                                     : BoardRankState::kFailed;
    if (dashboard_) show_ranks(place, state, how_ended(static_cast<size_t>(place)));
  }
  // Errors that are said once for all ranks, and so pass by the log.
  void show_held_errors() {
    if (!dashboard_) return;
    for (int place = 0; place < num_children(); ++place) {
      for (const std::string_view line : split(children_[static_cast<size_t>(place)].err.held(), '\n')) {
        if (!trim(line).empty()) dashboard_->board().add_line(is_threads_ ? -1 : rank_of(place), without_end(line));
      }
    }
  }
  std::string why_failed() {
    if (const std::string reason = last_reason(); !reason.empty()) return reason;
    if (first_failed_ < 0) return "";
    const auto place = is_threads_ ? std::optional(0) : place_of(first_failed_);
    return place ? fmt::format("rank {}: {}", first_failed_, how_ended(static_cast<size_t>(*place))) : "";
  }

  static std::string report_directory_of(const LaunchOptions& options) {
    if (!options.report_directory.empty()) return options.report_directory;
    return options.log_directory.empty() ? "" : join_path(options.log_directory, "report");
  }
  bool has_own_scheduler() const {
    return options_.scheduler.empty() && (options_.max_restarts > 0 || options_.min_ranks > 0);
  }
  int num_children() const { return is_threads_ ? 1 : options_.num_processes; }
  // Of the job, which may have some on other hosts.
  int num_ranks() const {
    if (generation_) return generation_->size;
    return is_threads_ ? options_.num_thread_ranks : options_.num_processes;
  }
  // That this launcher starts.
  int num_own_ranks() const { return is_threads_ ? options_.num_thread_ranks : options_.num_processes; }
  std::vector<int> own_ranks() const {
    std::vector<int> ranks;
    for (int i = 0; i < num_own_ranks(); ++i) ranks.push_back(is_threads_ ? i : rank_of(i));
    return ranks;
  }
  int rank_of(int place) const { return ranks_.empty() ? place : ranks_[static_cast<size_t>(place)]; }
  // Where the rank is among the children; nullopt for one that another launcher has started.
  std::optional<int> place_of(int rank) const {
    for (int place = 0; place < num_children(); ++place) {
      const bool is_dropped = !children_.empty() && children_[static_cast<size_t>(place)].is_dropped;
      if (rank_of(place) == rank && !is_dropped) return place;
    }
    return std::nullopt;
  }
  // Equal for launchers whose ranks are started alike, wherever the program lies on each host.
  uint64_t program_number() const {
    const std::string& path = options_.command.at(0);
    std::string text = path.substr(path.rfind('/') + 1);
    for (size_t i = 1; i < options_.command.size(); ++i) text += '\0' + options_.command[i];
    return std::max<uint64_t>(hash_name(text), 1);
  }
  std::string node_id_of(int place) const { return fmt::format("{}/{}", node_id_, place); }

  // Registers the ranks of this host at the scheduler and waits until all of the job are there. A signal ends the wait.
  void join() {
    if (has_own_scheduler()) {
      hold_scheduler();
    } else {
      scheduler_ = scheduler_place_from_environment();
      scheduler_.address = options_.scheduler;
    }
    scheduler_.incarnation = scheduler_.token = 0;  // of its own, also where a rank of another job has started it
    scheduler_.num_servers = options_.num_servers;
    scheduler_.program = program_number();
    node_id_ = options_.node_id.empty() ? random_node_id() : options_.node_id;
    rendezvous::check_node_id(node_id_, "a launcher's node id", rendezvous::kMaxNodeIdOfLauncher);
    if (scheduler_.secret) secret_ = make_secret(scheduler_.secret.bytes());
    if (scheduler_.tls_password) password_ = make_secret(scheduler_.tls_password->text());
    std::tie(end_, end_write_) = make_pipe();
    std::vector<std::string> node_ids;
    for (int place = 0; place < num_children(); ++place) node_ids.push_back(node_id_of(place));
    // Where ranks wait for each other for longer than for a silent node, one may do nothing for as long before it
    // joins.
    const int64_t wait_ms = options_.timeout_ms > 0 ? options_.timeout_ms : timeout_from_environment();
    link_.emplace(scheduler_, rendezvous::PeerRole::kLauncher, node_ids, [this, wait_ms](int64_t node_timeout_ms) {
      return activity_.find_idle(std::max<int64_t>(0, wait_ms - node_timeout_ms));
    });
    scheduler_.incarnation = link_->client().incarnation();
    link_->on_end([this](const rendezvous::RendezvousEnd& end) {
      const std::lock_guard lock(ends_mutex_);
      ends_.push_back(end);
      [[maybe_unused]] const ssize_t written = write(end_write_.fd(), "e", 1);
    });
    int64_t deadline_ms = now_ms() + scheduler_.join_timeout_ms;
    constexpr int64_t kLookMs = 50;
    bool has_said = false;
    while (next_kill_ms_ == 0) {
      if (link_->client().is_newcomer()) {
        if (link_->client().is_registered()) deadline_ms = now_ms() + scheduler_.join_timeout_ms;
        if (!std::exchange(has_said, true)) {
          say(link_->client().is_spare()
                  ? "the job is running, and has all its ranks: these wait, and take the place of one that is lost"
                  : "the job is running: it takes these ranks in when it saves next, or by `tessera cluster resize`");
        }
      }
      // The job may end before it needs who waits.
      if (link_->client().is_newcomer() && link_->client().has_finished()) {
        is_unneeded_ = true;
        return say("the job has ended, and has not needed these ranks");
      }
      try {
        generation_ = now_ms() < deadline_ms ? link_->find_generation(kLookMs) : link_->wait_for_generation();
      } catch (const IoError&) {
        if (link_->client().is_newcomer() && link_->client().has_finished()) continue;
        throw;
      }
      take_signal();
      if (!generation_) continue;
      for (const std::string& id : node_ids) ranks_.push_back(generation_->ranks.at(id));
      recovers_ = link_->client().recovers();
      if (recovers_) keep_memory();
      return;
    }
  }
  // The job is all here: so is its scheduler.
  void hold_scheduler() {
    if (const std::string why = why_no_loopback(); !why.empty()) {
      throw IoError("tessera run: ranks that may be lost meet at a scheduler of this host, and {}", why);
    }
    scheduler_.secret = comm::Secret::random();
    SchedulerOfJob job{.num_workers = num_children(), .max_restarts = options_.max_restarts};
    job.min_ranks = options_.min_ranks;
    job.rank_timeout_ms = options_.rank_timeout_ms;
    if (options_.timeout_ms > 0) job.node_timeout_ms = std::min(job.node_timeout_ms, options_.timeout_ms);
    own_scheduler_.emplace(job, scheduler_);
    scheduler_.address = own_scheduler_->address();
  }
  // What a rank keeps there outlives it, not the launcher.
  void keep_memory() {
    for (RankChild& child : children_) {
      child.kept = make_kept_memory();
      // Ranks of one launcher lose what they keep together, and keep nothing for each other.
      if (!has_own_scheduler()) child.kept_for_others = make_kept_memory();
    }
  }
  void take_ends() {
    char bytes[64];
    [[maybe_unused]] const ssize_t count = read(end_.fd(), bytes, sizeof(bytes));
    std::vector<rendezvous::RendezvousEnd> ends;
    {
      const std::lock_guard lock(ends_mutex_);
      ends.swap(ends_);
    }
    for (const rendezvous::RendezvousEnd& end : ends) take_end(end);
    // The end of the generation, which follows on the last one, says whether that was planned.
    const bool has_ended = std::ranges::any_of(
        ends, [](const auto& end) { return end.kind != rendezvous::RendezvousEnd::Kind::kNodeDropped; });
    if (has_ended) say_dropped();
  }
  void take_end(const rendezvous::RendezvousEnd& end) {
    using Kind = rendezvous::RendezvousEnd::Kind;
    if (end.kind == Kind::kNodeDropped) return take_drop(end);
    if (end.kind == Kind::kGenerationEnded && recovers_) return take_end_of_generation(end);
    recovers_ = false;
    is_finished_ = end.kind == Kind::kJobFinished;
    const std::optional<int> lost = end.kind == Kind::kJobFailed ? place_of(end.rank) : std::nullopt;
    if (lost && children_[static_cast<size_t>(*lost)].is_awaited) note_failure(end.rank);
    for (int place = 0; place < num_children(); ++place) {
      RankChild& child = children_[static_cast<size_t>(place)];
      if (std::exchange(child.is_awaited, false) && !is_finished_) note_failure(rank_of(place));
    }
    const bool is_ending_already = num_running_ == 0 || end_signal_ != 0 || next_kill_ms_ != 0;
    // Why a job does not go on without a rank, or what its last ranks have saved or why they have not, no rank may be
    // left to say.
    const bool may_lack_ranks = link_->client().is_elastic() || !link_->client().generation().last_reason.empty();
    const bool says_more = lost && !children_[static_cast<size_t>(*lost)].is_for_good &&
                           !end.reason.ends_with(how_ended(static_cast<size_t>(*lost)));
    const bool says_why = end.kind == Kind::kJobFailed && (may_lack_ranks || says_more) && end_signal_ == 0;
    if (!is_finished_ && (says_why || !is_ending_already)) {
      say(fmt::format("the scheduler has ended the job: {}", end.reason));
      has_said_end_ = true;
    }
    if (is_ending_already) return;
    // The scheduler has ended the job, perhaps for a rank of another host: ranks that do not notice are ended.
    next_kill_ms_ = now_ms() + (is_finished_ ? kFinishMs : options_.grace_ms);
  }
  // A rank has no part in the job any more: its process is not started again, and ends if it still runs.
  void take_drop(const rendezvous::RendezvousEnd& end) {
    for (int place = 0; place < num_children(); ++place) {
      RankChild& child = children_[static_cast<size_t>(place)];
      if (end.node_id != node_id_of(place) || std::exchange(child.is_dropped, true)) continue;
      child.is_awaited = false;
      child.restart_ms = 0;
      child.after = end.generation;
      child.ends_job = end.ends_job;
      show_ranks(place, BoardRankState::kLeft, end.reason);
      if (child.is_running && child.kill_ms == 0) child.kill_ms = now_ms() + grace_after_telling();
      if (is_ending()) continue;
      dropped_.emplace_back(place, end.reason);
      say_dropped_ms_ = now_ms() + kMoreDroppedMs;
    }
  }
  // Ranks that leave for one reason in one line.
  void say_dropped() {
    say_dropped_ms_ = 0;
    while (!dropped_.empty()) {
      const std::string reason = dropped_.front().second;
      const bool ends_job = children_[static_cast<size_t>(dropped_.front().first)].ends_job;
      std::vector<int> ranks;
      for (const auto& [place, why] : dropped_) {
        if (why == reason) ranks.push_back(rank_of(place));
      }
      std::ranges::sort(ranks);
      say(fmt::format("the job {} without {}: {}", ends_job ? "cannot go on" : "goes on", name_ranks(ranks, -1),
                      reason));
      std::erase_if(dropped_, [&](const auto& entry) { return entry.second == reason; });
    }
  }
  // Each generation of an elastic job has ranks of its own, and so has the last one of any other.
  void take_generation() {
    if (!generation_ || !link_) return;
    rendezvous::Generation newest = link_->client().generation();
    if (newest.number <= generation_->number) return;
    if (!link_->client().is_elastic() && newest.last_reason.empty()) return;
    generation_ = std::move(newest);
    for (int place = 0; place < num_children(); ++place) {
      const auto found = generation_->ranks.find(node_id_of(place));
      if (found == generation_->ranks.end() || found->second == rank_of(place)) continue;
      ranks_[static_cast<size_t>(place)] = found->second;
      RankChild& child = children_[static_cast<size_t>(place)];
      // Its log keeps its name.
      for (RankOutput* stream : {&child.out, &child.err}) stream->set_prefix(prefix_of(found->second));
    }
    show_all_ranks();
  }
  static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }
  static std::string prefix_of(int rank) { return fmt::format("[{}] ", rank); }
  // Ranks that live begin anew by themselves.
  void take_end_of_generation(const rendezvous::RendezvousEnd& end) {
    if (is_ending()) return;
    num_losses_ = end.num_losses;
    if (end.is_lost) last_lost_ = end.rank;
    for (const auto& [place, reason] : dropped_) {
      if (end.is_planned() && reason == end.reason) children_[static_cast<size_t>(place)].is_planned = true;
    }
    for (int place = 0; place < num_children(); ++place) {
      RankChild& child = children_[static_cast<size_t>(place)];
      const bool is_named = end.is_lost && end.node_id == node_id_of(place);
      if (is_named && end.ends_by_itself) child.last_word = end.reason;
      // Who says itself that it fails has more to write, and ends.
      if (child.is_running && is_named && end.ends_by_itself) {
        child.kill_ms = now_ms() + options_.grace_ms;
      } else if (child.is_running && is_named) {
        say(fmt::format("rank {} is lost: {}; killing it", rank_of(place), end.reason));
        note_doing(child);
        kill_at_once(child);
      }
      if (!child.is_running && child.restart_ms == 0 && !child.is_dropped && !child.is_for_good) {
        child.is_awaited = true;
        child.num_idle = end.generation > child.after ? 0 : child.num_idle + 1;
        child.after = end.generation;
        child.restart_ms = now_ms() + pause_before_start(child);
      }
    }
  }
  // A guard that has been stopped goes on for it.
  static void kill_at_once(RankChild& child) {
    child.is_told = true;
    kill(child.guard, kEndAllSignal);
    kill(child.guard, SIGCONT);
  }
  void kill_late() {
    for (int place = 0; place < num_children(); ++place) {
      RankChild& child = children_[static_cast<size_t>(place)];
      if (!child.is_running || child.kill_ms == 0 || now_ms() < child.kill_ms) continue;
      child.kill_ms = 0;
      say(child.is_dropped ? fmt::format("rank {} has left the job and has not ended; killing it", rank_of(place))
                           : fmt::format("rank {} has said that it fails and has not ended within {} ms; killing it",
                                         rank_of(place), options_.grace_ms));
      kill_at_once(child);
    }
  }
  // Why the job has made a last generation; "" where it has not, or this launcher has no rank of it.
  std::string last_reason() { return link_ ? link_->client().generation().last_reason : ""; }
  bool is_ending() const { return end_signal_ != 0 || output_error_ != 0 || next_kill_ms_ != 0 || is_finished_; }
  // Longer and longer where processes end before they have joined.
  static int64_t pause_before_start(const RankChild& child) {
    constexpr int64_t kFirstPauseMs = 100;
    constexpr int kMostDoublings = 6;
    return child.num_idle == 0 ? 0 : kFirstPauseMs << std::min(child.num_idle - 1, kMostDoublings);
  }
  bool is_any_awaited() const {
    return std::ranges::any_of(children_, [](const RankChild& child) { return child.is_awaited; });
  }
  // When the next process is to be started or killed; -1: none is.
  int64_t next_change_ms() const {
    int64_t first = -1;
    for (const RankChild& child : children_) {
      for (const int64_t at_ms : {child.restart_ms, child.is_running ? child.kill_ms : 0}) {
        if (at_ms != 0 && (first < 0 || at_ms < first)) first = at_ms;
      }
    }
    return first;
  }
  // For a scheduler that does not come back, and where the job ends.
  void give_up_waiting() {
    for (int place = 0; place < num_children(); ++place) {
      RankChild& child = children_[static_cast<size_t>(place)];
      const bool is_late = child.is_awaited && child.restart_ms == 0 && !is_ending() &&
                           now_ms() - child.ended_ms > scheduler_.join_timeout_ms;
      if (!is_late && !is_ending()) continue;
      child.is_awaited = false;
      child.restart_ms = 0;
      if (is_late) note_failure(rank_of(place));
    }
  }
  void start_again() {
    for (int place = 0; place < num_children(); ++place) {
      RankChild& child = children_[static_cast<size_t>(place)];
      if (child.restart_ms == 0 || now_ms() < child.restart_ms) continue;
      for (RankOutput* stream : {&child.out, &child.err}) has_drained(*stream);  // its last lines are known then
      note_ending(place, /*went_on=*/true);
      launch_reports_.write(/*first_failed=*/-1, /*signal=*/"");
      // What nobody takes now waits beside that of the next process.
      for (RankOutput* stream : {&child.out, &child.err}) {
        if (!has_passed_on(*stream)) earlier_.push_back(std::move(*stream));
      }
      // An exit code says less than the process has said itself.
      const std::string word = child.last_word.empty() ? "" : ": " + first_line(child.last_word);
      say(fmt::format("rank {}: {}{}; the job goes on, starting it again ({} of {} losses that it survives)",
                      rank_of(place), how_ended(static_cast<size_t>(place)), word, num_losses_,
                      link_->client().max_restarts()));
      child.last_word.clear();
      ++child.num_restarts;
      child.restart_ms = 0;
      child.is_awaited = false;
      status_text_.clear();
      start(place, "");
    }
  }

  RankEnvironment environment_of(int place, const std::string& job_id) const {
    return {.is_threads = is_threads_,
            .place = place,
            .rank = rank_of(place),
            .num_ranks = num_ranks(),
            .num_own_ranks = num_own_ranks(),
            .num_servers = options_.num_servers,
            .num_compute_threads = options_.num_compute_threads,
            .transport = options_.transport,
            .interface = options_.interface,
            .timeout_ms = options_.timeout_ms,
            .report_directory = launch_reports_.directory(),
            .timeline = options_.timeline,
            .job_id = job_id,
            .scheduler = link_ ? scheduler_.address : "",
            .node_id = link_ ? node_id_of(place) : "",
            .incarnation = scheduler_.incarnation,
            .status = status_write_,
            .figures = dashboard_ ? dashboard_->figures() : no_figures_,
            .secret = secret_,
            .password = password_,
            .kept = children_[static_cast<size_t>(place)].kept,
            .kept_for_others = children_[static_cast<size_t>(place)].kept_for_others};
  }

  void start(int place, const std::string& job_id) {
    const int rank = rank_of(place);
    RankChild& child = children_[static_cast<size_t>(place)];
    child.is_told = child.has_stepped = false;
    child.doing.clear();
    Socket out_read, out_write, err_read, err_write;
    std::shared_ptr<RankLog> log;
    std::tie(out_read, out_write) = make_pipe();
    if (options_.log_directory.empty()) {
      std::tie(err_read, err_write) = make_pipe();
    } else {
      FileSystem::local().create_directories(options_.log_directory);
      child.log_path = join_path(options_.log_directory, fmt::format("rank.{}", rank));
      log = std::make_shared<RankLog>(create_log(child.log_path, child.num_restarts > 0));
      // One pipe for both, so that its lines stand in the order in which they were written.
      err_write = Socket(fcntl(out_write.fd(), F_DUPFD_CLOEXEC, 3));
    }
    // Everything that allocates happens before the fork: afterwards the child may only make system calls.
    const std::vector<std::string> environment = entries_of(environment_of(place, job_id));
    std::vector<char*> environment_pointers, argument_pointers;
    for (const std::string& entry : environment) environment_pointers.push_back(const_cast<char*>(entry.c_str()));
    environment_pointers.push_back(nullptr);
    for (const std::string& argument : options_.command) {
      argument_pointers.push_back(const_cast<char*>(argument.c_str()));
    }
    argument_pointers.push_back(nullptr);

    RankStart rank_start{.program = program_.c_str(),
                         .arguments = argument_pointers.data(),
                         .environment = environment_pointers.data(),
                         .out_fd = out_write.fd(),
                         .err_fd = err_write.fd(),
                         .status_fd = status_write_.fd(),
                         .figures_fd = dashboard_ ? dashboard_->figures().fd() : -1,
                         .secret_fd = secret_.fd(),
                         .signal_mask = &signals_.mask_before(),
                         .descriptors = &descriptors_};
    GuardReport& report = reports_[static_cast<size_t>(place)];
    report.rank_pid = report.start_error = report.status = 0;
    report.has_ended = false;
    child.num_out_of_memory = num_out_of_memory();
    const pid_t launcher = getpid();
    const pid_t guard = fork();
    if (guard < 0) throw IoError("cannot start rank {}: {}; {}", rank, std::strerror(errno), limits_text());
    const GuardedLog guarded = log == nullptr ? GuardedLog{} : GuardedLog{.pipe = out_read.fd(), .log = log->fd()};
    if (guard == 0) guard_rank(launcher, report, guarded, exec_rank, &rank_start);
    child.guard = guard;
    child.is_running = true;
    child.kill_ms = child.rank_ended_ms = 0;
    child.has_woken_guard = false;
    ++num_running_;
    show_ranks(place, BoardRankState::kStarting);
    child.guard_fd = Socket(static_cast<int>(syscall(SYS_pidfd_open, guard, 0)));
    if (!child.guard_fd) throw IoError("cannot watch rank {}: {}", rank, std::strerror(errno));
    const std::string prefix = is_threads_ ? "" : prefix_of(rank);
    child.out = RankOutput(std::move(out_read), out_, prefix, &child.last_lines, /*holds_errors=*/false);
    if (log != nullptr) {
      child.out.set_log(std::move(log), [this, path = child.log_path](int error) { say_log_is_full(path, error); });
    } else {
      // Threads of one process say by themselves what several of them have to say.
      child.err = RankOutput(std::move(err_read), err(), prefix, &child.last_lines, !is_threads_);
    }
    if (!dashboard_) return;
    for (RankOutput* stream : {&child.out, &child.err}) {
      stream->set_listener([this, place](std::string_view line) {
        dashboard_->board().add_line(is_threads_ ? -1 : rank_of(place), line);
      });
    }
  }

  // Once for all ranks: the disk is the same.
  void say_log_is_full(const std::string& path, int error) {
    if (std::exchange(has_said_full_, true)) return;
    say(fmt::format("cannot write {}: {}; what does not go there is printed here from now on", path,
                    std::strerror(error)));
  }

  void step(bool may_wait) {
    std::vector<pollfd> waits = {{signals_.fd(), POLLIN, 0},
                                 {status_.fd(), POLLIN, 0},
                                 {out_.fd_to_wait_for(), POLLOUT, 0},
                                 {err().fd_to_wait_for(), POLLOUT, 0},
                                 {end_.fd(), POLLIN, 0},
                                 {dashboard_ ? dashboard_->fd_to_wait_for() : -1, POLLIN, 0}};
    const size_t num_own = waits.size();
    for (const RankChild& child : children_) {
      waits.push_back({child.is_running ? child.guard_fd.fd() : -1, POLLIN, 0});
      waits.push_back({child.out.fd_to_wait_for(), POLLIN, 0});
      waits.push_back({child.err.fd_to_wait_for(), POLLIN, 0});
    }
    int64_t limit = -1;
    const auto or_never = [](int64_t at_ms) { return at_ms == 0 ? -1 : at_ms; };
    for (const int64_t at_ms : {or_never(next_kill_ms_), or_never(say_dropped_ms_), next_change_ms()}) {
      if (at_ms < 0) continue;
      const int64_t rest = std::max<int64_t>(0, at_ms - now_ms());
      limit = limit < 0 ? rest : std::min(limit, rest);
    }
    constexpr int64_t kLookMs = std::min<int64_t>(1000, kLookAtGuardsMs);
    if (num_running_ > 0 || is_any_awaited()) limit = limit < 0 ? kLookMs : std::min(limit, kLookMs);
    if (!may_wait) limit = 0;
    poll(waits.data(), waits.size(), static_cast<int>(limit));
    take_generation();
    if (waits[2].revents != 0) out_.flush();
    if (waits[3].revents != 0) err().flush();
    while (!earlier_.empty() && has_passed_on(earlier_.front())) earlier_.pop_front();
    for (size_t i = 0; i < children_.size(); ++i) {
      RankChild& child = children_[i];
      const pollfd* of_child = &waits[num_own + 3 * i];
      if (of_child[1].revents != 0) child.out.drain();
      if (of_child[2].revents != 0) child.err.drain();
      if (of_child[0].revents != 0) {
        wait_for(child);
        const bool may_go_on = recovers_ && child.status != 0 && !child.is_dropped && !is_ending();
        const std::string why_not = may_go_on ? why_not_again(static_cast<int>(i)) : "";
        // Of one that is not started again the scheduler says what the others do: they may have to save.
        child.is_awaited = may_go_on && (why_not.empty() || !link_->client().is_elastic());
        child.is_for_good = !why_not.empty();
        child.ended_ms = now_ms();
        tell_scheduler(static_cast<int>(i), why_not);
        show_end(static_cast<int>(i));
        if (child.status != 0 && !child.is_awaited && !child.is_dropped && !is_finished_)
          note_failure(rank_of(static_cast<int>(i)));
      }
    }
    if (waits[1].revents != 0) read_status();
    if (waits[5].revents != 0) dashboard_->read_figures();
    if (waits[4].revents != 0) take_ends();
    if (say_dropped_ms_ != 0 && now_ms() >= say_dropped_ms_) say_dropped();
    take_signal();
    take_output_error();
    give_up_waiting();
    look_at_guards();
    kill_late();
    start_again();
    if (next_kill_ms_ != 0 && now_ms() >= next_kill_ms_) {
      if (was_told_) name_killed();
      kill_all(was_told_ ? SIGKILL : SIGTERM);
      note_told();
    }
  }

  // Passes on what a process has written before its end, as far as it is taken now. Returns whether that is all.
  static bool has_drained(RankOutput& stream) {
    while (!stream.drain()) {
      if (stream.is_held_up()) return false;
    }
    stream.finish();
    return true;
  }
  // The same with the report of an error that was held back.
  static bool has_passed_on(RankOutput& stream) {
    if (!has_drained(stream)) return false;
    stream.release();
    return true;
  }
  // Waits for who reads; the report of an error stays held back.
  void pass_on_rest(RankOutput& stream) {
    while (!has_drained(stream)) wait_for_readers();
  }

  // The ranks have ended: waits until somebody reads, or a signal says that it is not to be waited for. Who reads on
  // after a signal gets all.
  void wait_for_readers() {
    pollfd waits[] = {
        {signals_.fd(), POLLIN, 0}, {out_.fd_to_wait_for(), POLLOUT, 0}, {err().fd_to_wait_for(), POLLOUT, 0}};
    const int ready = poll(waits, std::size(waits), end_signal_ != 0 ? static_cast<int>(kLastWordsMs) : -1);
    out_.flush();
    err().flush();
    if (const int number = signals_.take(); number != 0 && number != SIGUSR2) {
      if (end_signal_ != 0 && number != SIGPIPE) give_up_output();
      if (end_signal_ == 0) end_signal_ = number;
    }
    take_output_error();
    if (ready == 0) give_up_output();
  }
  void give_up_output() {
    out_.give_up();
    err().give_up();
  }

  void take_signal() {
    const int number = signals_.take();
    if (number == 0) return;
    if (number == SIGUSR2) return request_timeline();
    if (number == SIGPIPE && (end_signal_ != 0 || out_.error() != 0 || err().error() != 0)) return;
    // The second one is meant.
    const bool is_second = end_signal_ != 0;
    say(fmt::format("SIG{}{}: {} {} rank{}", sigabbrev_np(number), is_second ? " again" : "",
                    is_second ? "killing" : "ending", num_running_, num_running_ == 1 ? "" : "s"));
    end_signal_ = number;
    if (is_second) {
      kill_all(SIGKILL);
      note_told();
    } else if (!was_told_) {
      next_kill_ms_ = now_ms();
    }
  }

  bool records() const { return !options_.timeline.file.empty(); }
  // The ranks look at the file before each step.
  void request_timeline() {
    if (!records() || options_.timeline.steps.on_request == 0) {
      return say("SIGUSR2 asks for a timeline of the next steps, which needs --trace FILE --trace_steps request");
    }
    const std::string path = timeline::request_path(options_.timeline.file);
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    const bool is_written = fd >= 0 && write(fd, "+", 1) == 1;
    const int error = errno;
    if (fd >= 0) close(fd);
    say(is_written ? fmt::format("SIGUSR2: the ranks record their next {} steps", options_.timeline.steps.on_request)
                   : fmt::format("SIGUSR2: cannot write {}: {}", path, std::strerror(error)));
  }
  // The parts of ranks on other hosts may still be on their way.
  void join_timeline() {
    if (!records()) return;
    FileSystem& files = FileSystem::local();
    const std::string& file = options_.timeline.file;
    if (options_.scheduler.empty()) {
      const std::string words = timeline::join_job(files, file, std::max(num_ranks(), num_children()));
      say(words.empty()
              ? fmt::format("there is no timeline {}: no rank has begun one; what a program trains, evaluates "
                            "and predicts with Tessera is recorded",
                            printable(file))
              : words);
      return;
    }
    say(fmt::format("when the job has ended on all hosts, tessera trace merge -o {0} {0}.rank.* joins its timelines",
                    file));
  }

  // An output that cannot be written ends the job, as it would end a program: nobody reads it, or its disk is full.
  void take_output_error() {
    if (output_error_ != 0) return;
    output_error_ = out_.error() != 0 ? out_.error() : err().error();
    if (output_error_ == 0) return;
    const char* name = out_.error() != 0 ? "standard output" : "standard error";
    const std::string what = output_error_ == EPIPE
                                 ? fmt::format("nobody reads {} any more", name)
                                 : fmt::format("cannot write {}: {}", name, std::strerror(output_error_));
    if (num_running_ == 0) {
      say(what);
    } else {
      say(fmt::format("{}: ending {} rank{}", what, num_running_, num_running_ == 1 ? "" : "s"));
    }
    if (end_signal_ != 0) return;
    if (output_error_ == EPIPE) end_signal_ = SIGPIPE;
    if (!was_told_) next_kill_ms_ = now_ms();
  }

  // Where ranks write to one file, pipe or terminal by both of their outputs, lines stay whole.
  LauncherOutput& err() { return own_err_ ? *own_err_ : out_; }

  // One line of the launcher's own.
  void say(const std::string& line) {
    err().write(fmt::format("tessera run: {}\n", line));
    if (dashboard_) dashboard_->board().add_line(-1, line);
  }

  void wait_for(RankChild& child) {
    if (!child.is_running) return;
    GuardReport& report = reports_[static_cast<size_t>(&child - children_.data())];
    int status = 0;
    while (waitpid(child.guard, &status, 0) < 0 && errno == EINTR) {
    }
    if (report.has_ended) {
      child.status = report.status;
    } else {
      // The guard has been killed, and the rank with it; what the rank has started may live on.
      child.status = status;
      if (report.rank_pid > 0) kill(-report.rank_pid, SIGKILL);
      has_lost_guard_ = true;
    }
    child.is_out_of_memory = WIFSIGNALED(child.status) && WTERMSIG(child.status) == SIGKILL && !child.is_told &&
                             num_out_of_memory() > child.num_out_of_memory;
    child.is_running = false;
    child.ended_at_ms = Clock::system().wall_ms();
    --num_running_;
    if (!report.has_ended) end_fallen();
  }

  // Ends what has fallen to the launcher from guards that were killed.
  void end_fallen() {
    if (!has_lost_guard_) return;
    std::vector<pid_t> guards;
    for (const RankChild& child : children_) {
      if (child.is_running) guards.push_back(child.guard);
    }
    fallen_.end_all_but(guards, kFallenMs);
  }

  // Whether the rank's process has ended, as far as its guard has started one.
  bool has_rank_ended(const RankChild& child) {
    const pid_t rank = reports_[static_cast<size_t>(&child - children_.data())].rank_pid;
    if (rank <= 0) return false;
    const auto found = find_process(rank);
    // One of another user may be hidden.
    if (!found) return kill(rank, 0) != 0 && errno == ESRCH;
    return found->has_ended() || found->parent != child.guard;
  }
  int64_t guard_limit_ms() const {
    return std::max(kGuardMs, options_.timeout_ms > 0 ? options_.timeout_ms : timeout_from_environment());
  }
  // A guard ends right after its rank. One that has been stopped does not, and nobody would hear of the rank's end.
  void look_at_guards() {
    if (now_ms() < next_look_ms_) return;
    next_look_ms_ = now_ms() + kLookAtGuardsMs;
    for (int place = 0; place < num_children(); ++place) {
      RankChild& child = children_[static_cast<size_t>(place)];
      if (!child.is_running || !has_rank_ended(child)) {
        child.rank_ended_ms = 0;
        continue;
      }
      if (child.rank_ended_ms == 0) {
        child.rank_ended_ms = now_ms();
        continue;
      }
      const auto guard = find_process(child.guard);
      const bool is_stopped = guard && guard->is_stopped();
      const std::string who = fmt::format("{}, process {}", guard_of(place), child.guard);
      if (now_ms() - child.rank_ended_ms >= guard_limit_ms()) {
        say(fmt::format("{} has ended, and {} {} and has not answered for {} ms; killing the guard", process_at(place),
                        who, is_stopped ? "is stopped" : "waits for what the rank has started", guard_limit_ms()));
        child.is_told = true;
        kill(child.guard, SIGKILL);
        child.rank_ended_ms = now_ms();
      } else if (is_stopped && !std::exchange(child.has_woken_guard, true)) {
        say(fmt::format("{} has ended, and {} has been stopped; letting the guard go on", process_at(place), who));
        kill(child.guard, SIGCONT);
      }
    }
  }
  std::string process_at(int place) const {
    return is_threads_ ? "the process" : fmt::format("rank {}", rank_of(place));
  }
  std::string guard_of(int place) const {
    return is_threads_ ? "its guard" : fmt::format("the guard of rank {}", rank_of(place));
  }

  // What the scheduler cannot see: how a process has ended, and why no other one is started in its place.
  void tell_scheduler(int place, const std::string& why_not_again) {
    if (!link_) return;
    const size_t index = static_cast<size_t>(place);
    const RankChild& child = children_[index];
    const bool failed = child.status != 0;
    // The last word waits for those before it, too.
    constexpr int64_t kLastWordMs = 2000;
    std::string reason = failed ? how_ended(index) : "";
    if (!why_not_again.empty()) reason += ", and it is not started again: " + why_not_again;
    link_->client().leave(node_id_of(place), failed, reason, num_running_ == 0 ? kLastWordMs : 0,
                          /*for_good=*/!why_not_again.empty());
  }

  // All ranks have ended well. Where the scheduler has died before it has heard that, one that is started again with
  // its state would wait for them in vain and take the job for failed. A signal ends the wait.
  void stay_until_heard() {
    constexpr int64_t kLookMs = 50;
    const int64_t limit_ms = link_ && !own_scheduler_ ? link_->client().return_ms() : 0;
    if (limit_ms == 0 || link_->client().wait_until_heard(0)) return;
    say(fmt::format("all ranks have ended, and the scheduler at {} has not heard that: {}", scheduler_.address,
                    words_for_return(limit_ms)));
    const int64_t deadline_ms = now_ms() + limit_ms;
    while (!link_->client().wait_until_heard(kLookMs)) {
      if (now_ms() >= deadline_ms) {
        return say("no scheduler has come back: one that is started now takes the job for failed, though it is not");
      }
      const int number = signals_.take();
      if (number == 0 || number == SIGUSR2 || number == SIGPIPE) continue;
      end_signal_ = number;
      return;
    }
  }

  // Why another process of the rank would fail as the latest one has: a command line that is wrong stays so, and so
  // does, likely, what a script fails of by itself before its first step, twice in a row. "" where it may go on. A job
  // whose number of ranks may change goes on without a rank in its own time.
  std::string why_not_again(int place) {
    RankChild& child = children_[static_cast<size_t>(place)];
    const std::string before = std::exchange(child.failed_with, "");
    const bool may_resize = link_ && link_->client().is_elastic();
    if (is_usage_error(child.status) && (own_scheduler_ || !may_resize)) return "what it was started with is wrong";
    read_status();
    if (!WIFEXITED(child.status) || child.is_told || child.has_stepped || may_resize) return "";
    if (origin_of(rank_of(place)) != rank_of(place)) return "";
    for (RankOutput* stream : {&child.out, &child.err}) has_drained(*stream);  // its last lines are known then
    const std::string last = last_line_of(child);
    child.failed_with = last.empty() ? "" : fmt::format("{}: {}", how_ended(static_cast<size_t>(place)), last);
    if (child.failed_with.empty() || child.failed_with != before) return "";
    say(fmt::format("rank {} has failed in the same way twice, before its first step, and is not started again: {}",
                    rank_of(place), child.failed_with));
    return fmt::format("it has failed in the same way twice, before its first step: {}", last);
  }

  // Of its error, or of its output.
  static std::string last_line_of(const RankChild& child) {
    std::string last;
    for (const std::string_view line : split(child.err.held(), '\n')) {
      if (!trim(line).empty()) last = line;
    }
    return std::string(trim(!last.empty() || child.last_lines.empty() ? last : child.last_lines.back()));
  }

  std::string how_ended(size_t place) {
    const RankChild& child = children_[place];
    return tessera::cluster::how_ended(reports_[place].start_error, child.status, child.is_out_of_memory);
  }

  void note_failure(int rank) {
    if (end_signal_ != 0 || output_error_ != 0) return;
    if (first_failed_ < 0) first_failed_ = rank;
    // The others hear of it from their peers and end by themselves, with their own messages.
    if (next_kill_ms_ == 0) next_kill_ms_ = now_ms() + options_.grace_ms;
  }

  // The ranks have been told to end: they have so long.
  void note_told() {
    was_told_ = true;
    next_kill_ms_ = now_ms() + grace_after_telling();
  }
  // After SIGTERM, what trains ends its step and saves.
  int64_t grace_after_telling() const {
    constexpr int64_t kSavesMs = 30'000;
    return std::max<int64_t>(options_.grace_ms, end_signal_ == SIGTERM ? kSavesMs : 100);
  }

  // A guard passes it on to its rank, or kills all that its rank has started.
  void kill_all(int number) {
    for (RankChild& child : children_) {
      if (!child.is_running) continue;
      child.is_told = true;
      if (number == SIGKILL) {
        kill_at_once(child);
      } else {
        kill(child.guard, number);
      }
    }
  }

  // What the process of a rank does that is about to be killed.
  void note_doing(RankChild& child) {
    const pid_t pid = reports_[static_cast<size_t>(&child - children_.data())].rank_pid;
    child.doing = describe_thread(pid, pid);
  }

  // What its reports are to say of the latest process of a rank, or of ranks that are its threads.
  void note_ending(int place, bool went_on) {
    const auto index = static_cast<size_t>(place);
    const RankChild& child = children_[index];
    RankEnding ending = ending_of(rank_of(place), reports_[index].rank_pid, child.status, how_ended(index));
    ending.time_ms = child.ended_at_ms;
    ending.is_told = child.is_told;
    ending.went_on = went_on;
    ending.is_last = !child.is_dropped && !went_on && !last_reason().empty();
    const bool is_of_earlier = went_on || child.ends_job;
    ending.generation = is_of_earlier ? child.after : link_ ? link_->client().generation().number : 0;
    ending.doing = child.doing;
    ending.last_lines.assign(child.last_lines.begin(), child.last_lines.end());
    for (const std::string_view line : split(child.err.held(), '\n')) {
      if (!trim(line).empty()) ending.last_lines.emplace_back(line);
    }
    for (int rank = 0; is_threads_ && rank < num_own_ranks(); ++rank) {
      ending.rank = rank;
      launch_reports_.add(ending);
    }
    if (!is_threads_) launch_reports_.add(std::move(ending));
  }
  void note_endings() {
    if (launch_reports_.directory().empty()) return;
    for (int place = 0; place < num_children(); ++place) {
      const RankChild& child = children_[static_cast<size_t>(place)];
      if (child.guard > 0 && !child.is_planned) note_ending(place, /*went_on=*/child.is_dropped && !child.ends_job);
    }
  }
  // Whether a loss has ended the job by way of a last generation, as far as this launcher knows, and the rank that was
  // lost, by the numbers of the generation that it was lost in; -1: not known.
  bool ends_by_loss() { return std::ranges::any_of(children_, &RankChild::ends_job) || !last_reason().empty(); }
  int lost_rank() const {
    const auto lost = std::ranges::find_if(children_, &RankChild::ends_job);
    return lost == children_.end() ? last_lost_ : rank_of(static_cast<int>(lost - children_.begin()));
  }
  // Writes what this launcher knows and says who is guilty, where a rank was lost or the job does not end well.
  void say_why(int code) {
    const bool is_lost = std::ranges::any_of(children_, [](const RankChild& child) {
      return child.num_restarts > 0 || (child.is_dropped && !child.is_planned);
    });
    const bool is_planned =
        first_failed_ < 0 && end_signal_ == 0 && std::ranges::all_of(children_, &RankChild::is_planned);
    if (launch_reports_.directory().empty() || (code == kExitSuccess && !is_lost) || is_planned) return;
    const bool is_ended = end_signal_ != 0 && first_failed_ < 0;
    launch_reports_.write(ends_by_loss()      ? lost_rank()
                          : first_failed_ < 0 ? -1
                                              : origin(),
                          is_ended ? fmt::format("SIG{}", sigabbrev_np(end_signal_)) : "");
    if (code != kExitSuccess) err().write(launch_reports_.words());
  }

  // Ranks that did not end when they were told to.
  void name_killed() {
    for (size_t i = 0; i < children_.size(); ++i) {
      if (!children_[i].is_running) continue;
      const int place = static_cast<int>(i);
      if (has_rank_ended(children_[i])) {
        say(fmt::format("{} has ended, but {}, process {}, has not answered within {} ms; ending it", process_at(place),
                        guard_of(place), children_[i].guard, grace_after_telling()));
        continue;
      }
      note_doing(children_[i]);
      const std::string& doing = children_[i].doing;
      say(fmt::format("{} has not ended {} ms after it was told to{}{}; killing it", process_at(place),
                      grace_after_telling(), doing.empty() ? "" : ": ", doing));
    }
  }

  // Failing ranks report lines `RANK ORIGIN`, those that have finished a step `RANK -1`.
  void read_status() {
    char buffer[512];
    ssize_t count;
    while ((count = read(status_.fd(), buffer, sizeof(buffer))) > 0) {
      status_text_.append(buffer, static_cast<size_t>(count));
    }
    for (const std::string_view line : split(status_text_, '\n')) {
      const std::string_view rank = line.ends_with(" -1") ? line.substr(0, line.size() - 3) : "";
      constexpr size_t kMostDigits = 6;
      const bool is_one = rank.find_first_not_of("0123456789") == rank.npos && rank.size() <= kMostDigits;
      if (rank.empty() || !is_one) continue;
      const auto place = place_of(static_cast<int>(parse_int(rank, "status")));
      if (place) children_[static_cast<size_t>(*place)].has_stepped = true;
    }
  }

  // With whose failure that of the rank began, as its process has said; its own where it has said nothing.
  int origin_of(int rank) const {
    const std::string own = fmt::format("{} ", rank);
    for (const std::string_view line : split(status_text_, '\n')) {
      if (!line.starts_with(own) || line.substr(own.size()) == "-1") continue;
      return static_cast<int>(parse_int(line.substr(own.size()), "status"));
    }
    return rank;
  }

  // The rank whose failure made the others fail: they may all end at the same time.
  int origin() const {
    for (const std::string_view line : split(status_text_, '\n')) {
      const size_t space = line.find(' ');
      if (space == std::string_view::npos) continue;
      const int64_t rank = parse_int(line.substr(space + 1), "status");
      if (rank >= 0 && rank < num_ranks()) return static_cast<int>(rank);
    }
    return first_failed_;
  }

  // Returns the exit code.
  int report() {
    // Where it began on another host, the first one here stands for it.
    const int rank = is_threads_ || place_of(origin()) ? origin() : first_failed_;
    const int place = is_threads_ ? 0 : place_of(rank).value_or(0);
    const bool has_errors = !is_threads_;
    std::vector<int> ranks;
    for (int i = 0; has_errors && i < num_children(); ++i) ranks.push_back(rank_of(i));
    return report_failure({.children = children_,
                           .ranks = ranks,
                           .num_ranks = num_ranks(),
                           .failed_rank = rank,
                           .failed_place = place,
                           .how = how_ended(static_cast<size_t>(place)),
                           .last_reason = last_reason()},
                          err());
  }

  const LaunchOptions& options_;
  bool is_threads_;
  std::string program_;
  DescriptorLimit descriptors_;
  GuardReports reports_;
  FallenProcesses fallen_;
  RankActivity activity_;
  EndSignals signals_;
  LauncherOutput out_;
  std::optional<LauncherDashboard> dashboard_;
  Socket no_figures_;
  LaunchReports launch_reports_;
  std::optional<LauncherOutput> own_err_;
  int output_error_ = 0;
  Socket secret_;
  Socket password_;
  SchedulerPlace scheduler_;
  std::string node_id_;
  std::optional<rendezvous::Generation> generation_;
  std::vector<int> ranks_;    // by place, where a scheduler has given them
  bool recovers_ = false;     // a rank that is lost is started again
  uint64_t num_losses_ = 0;   // of the job, as the scheduler counts them
  bool is_finished_ = false;  // the scheduler says so
  bool is_unneeded_ = false;  // and that was before these ranks had a part in the job
  Socket end_;                // readable when the scheduler has ended the job or a generation
  Socket end_write_;
  std::mutex ends_mutex_;
  std::vector<rendezvous::RendezvousEnd> ends_;
  std::vector<std::pair<int, std::string>> dropped_;  // places whose drop is not said yet, and why they were
  int64_t say_dropped_ms_ = 0;                        // when it is said; 0: there are none
  std::optional<SchedulerInside> own_scheduler_;
  std::optional<SchedulerLink> link_;
  Socket status_;
  Socket status_write_;  // the launcher's own, so that the pipe does not end where a rank has closed its
  std::string status_text_;
  std::vector<RankChild> children_;
  std::deque<RankOutput> earlier_;  // of processes that have been replaced, while nobody takes it
  int num_running_ = 0;
  bool has_lost_guard_ = false;  // it was killed, and may have left processes behind
  int64_t next_look_ms_ = 0;     // at guards
  int first_failed_ = -1;
  int last_lost_ = -1;         // the rank with whose loss the latest generation ended that has
  bool has_said_end_ = false;  // why the scheduler has ended the job
  int end_signal_ = 0;
  int64_t next_kill_ms_ = 0;
  bool was_told_ = false;
  bool has_said_full_ = false;
};

}  // namespace

int launch(const LaunchOptions& options) {
  if (options.command.empty()) throw UsageError("tessera run: no program is given");
  if (options.num_thread_ranks < 0) {
    throw UsageError("tessera run: --threads must be at least 1, got {}", options.num_thread_ranks);
  }
  if (options.num_thread_ranks > 0 && options.num_processes > 1) {
    throw UsageError("tessera run: -n {} and --threads {}: ranks are either processes or threads",
                     options.num_processes, options.num_thread_ranks);
  }
  if (options.num_processes < 1) {
    throw UsageError("tessera run: a job needs at least 1 rank, got -n {}", options.num_processes);
  }
  if (options.timeout_ms < 0 || options.timeout_ms > kMaxTimeoutMs) {
    throw UsageError("tessera run: a timeout must be from 1 to {} ms, got {}", kMaxTimeoutMs, options.timeout_ms);
  }
  if (!options.scheduler.empty() && options.num_thread_ranks > 0) {
    throw UsageError("tessera run: --join and --threads: the ranks of a scheduler's job are processes");
  }
  if (options.min_ranks != 0) {
    if (options.num_thread_ranks > 0 || !options.scheduler.empty()) {
      throw UsageError("tessera run: --min_ranks is for ranks that are processes of this job{}",
                       options.scheduler.empty() ? "" : "; with --join the scheduler says it");
    }
    if (options.num_servers > 0) {
      throw UsageError("tessera run: --min_ranks and --servers: the number of ranks of a job with servers stays");
    }
    if (options.min_ranks < 1 || options.min_ranks > options.num_processes) {
      throw UsageError("tessera run: --min_ranks must be from 1 to the number of ranks, {}, got {}",
                       options.num_processes, options.min_ranks);
    }
  }
  if (options.max_restarts > 0 && (options.num_thread_ranks > 0 || !options.scheduler.empty())) {
    throw UsageError("tessera run: --max_restarts is for ranks that are processes of this job{}",
                     options.scheduler.empty() ? "" : "; with --join the scheduler says how often");
  }
  if (!options.transport.empty()) from_user([&] { return parse_transport_kind(options.transport); });
  for (const std::string& directory : {options.log_directory, options.report_directory}) {
    const std::string why = directory.empty() ? "" : why_no_folder(directory);
    if (!why.empty()) throw UsageError("tessera run: the folder \"{}\" cannot be: {}", directory, why);
  }
  if (const std::string why = why_no_proc(); !why.empty()) throw IoError("tessera run: {}", why);
  open_standard_descriptors();
  LaunchOptions launched = options;
  std::string& file = launched.timeline.file;
  if (!file.empty()) {
    file = std::filesystem::absolute(file).lexically_normal();  // a rank may work in another folder
    timeline::check_writable(FileSystem::local(), file);
  }
  return Launcher(launched).run();
}

}  // namespace tessera::cluster
