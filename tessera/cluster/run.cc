#include "tessera/cluster/run.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/thread.h"
#include "tessera/cluster/launch.h"
#include "tessera/cluster/rank_words.h"
#include "tessera/cluster/threads.h"

namespace tessera::cluster {
namespace {

void write_text(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

// One write per line: ranks share the terminal.
void print_error(const std::string& who, const std::string& message) {
  write_text(fmt::format("{}: error: {}\n", who, message));
}

std::string rank_name(int rank) { return fmt::format("rank {}", rank); }

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

// Tells the launcher, if there is one, whose failure this is.
void report_status(const JobOptions& job, int rank, int origin) {
  if (job.status_fd < 0) return;
  const std::string line = fmt::format("{} {}\n", rank, origin);
  [[maybe_unused]] const ssize_t written = write(job.status_fd, line.data(), line.size());
}

// The rank that failed first comes first: the others only say that they stopped because of it.
void print_errors(const ThreadsResult& result) {
  const auto num_ranks = static_cast<int>(result.errors.size());
  RankErrors errors(num_ranks);
  const int first = result.first_failed_rank;
  const std::string cause = message_of(result.errors[static_cast<size_t>(first)]);
  errors.add(first, cause);
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::exception_ptr& error = result.errors[static_cast<size_t>(rank)];
    if (rank == first || !error) continue;
    std::string message = message_of(error);
    const std::string because = fmt::format(" because rank {} failed", first);
    if (message.ends_with(because + ": " + cause)) message.erase(message.size() - cause.size() - 2);
    errors.add(rank, message);
  }
  for (const RankErrors::Entry& entry : errors.entries()) print_error(name_ranks(entry.ranks, num_ranks), entry.text);
}

// Ends the process: nothing else ends a thread that works on or waits for something that never comes.
[[noreturn]] void end_hung_job(const JobOptions& job, int64_t grace_ms, const ThreadsResult& known,
                               const std::vector<HungRank>& hung) {
  print_errors(known);
  for (const HungRank& rank : hung) {
    print_error(fmt::format("rank {}", rank.rank),
                fmt::format("has not ended {} ms after rank {} failed{}{}; the process is ended", grace_ms,
                            known.first_failed_rank, rank.doing.empty() ? "" : ": ", rank.doing));
  }
  report_status(job, known.first_failed_rank, known.first_failed_rank);
  std::fflush(nullptr);
  _exit(kExitFailure);
}

int run_as_threads(const JobOptions& job, const Arguments& arguments,
                   const std::function<int(Context&, const Arguments&)>& f) {
  constexpr int64_t kGraceMs = 3000;
  ThreadsOptions options{.timeout_ms = job.timeout_ms,
                         .num_compute_threads = job.num_compute_threads,
                         .grace_ms = std::min(kGraceMs, job.timeout_ms)};
  options.on_hang = [&](const ThreadsResult& known, const std::vector<HungRank>& hung) {
    end_hung_job(job, options.grace_ms, known, hung);
  };
  const ThreadsResult result =
      run_threads(job.thread_ranks, options, [&](Context& context) { return f(context, arguments); });
  if (result.first_failed_rank >= 0) {
    print_errors(result);
    report_status(job, result.first_failed_rank, result.first_failed_rank);
    return kExitFailure;
  }
  for (const int code : result.codes) {
    if (code != 0) return code;
  }
  return kExitSuccess;
}

int run_as_rank(const JobOptions& job, const Arguments& arguments,
                const std::function<int(Context&, const Arguments&)>& f) {
  std::unique_ptr<Context> context;
  try {
    context = join_job(job);
  } catch (const comm::PeerFailure& e) {
    print_error(rank_name(job.rank), e.what());
    report_status(job, job.rank, e.rank());
    return kExitFailure;
  } catch (const std::exception& e) {
    print_error(rank_name(job.rank), e.what());
    report_status(job, job.rank, job.rank);
    return kExitFailure;
  }
  if (context->size() > 1) set_log_rank(context->rank());
  std::string message;
  int origin = context->rank();
  try {
    const int code = f(*context, arguments);
    context->finish();
    return code;
  } catch (const comm::PeerFailure& e) {
    message = e.what();
    origin = e.rank();
  } catch (const std::exception& e) {
    message = e.what();
  } catch (...) {
    message = "an exception that is no std::exception";
  }
  print_error(rank_name(context->rank()), message);
  context->abort(message);
  report_status(job, context->rank(), origin);
  return kExitFailure;
}

// All ranks that this process is.
int run_own_ranks(const Arguments& arguments, const std::function<int(Context&, const Arguments&)>& f) {
  if (const auto level = log_level_from_environment()) set_log_level(*level);
  const JobOptions job = job_from_environment();
  // The launcher says itself what has ended the job.
  if (job.status_fd < 0 && job.size == 1) say_end_signals();
  if (job.thread_ranks > 1) return run_as_threads(job, arguments, f);
  return run_as_rank(job, arguments, f);
}

// Says which signal ends the process, and ends it by that signal.
void say_and_end(int number) {
  const char* line = number == SIGINT    ? "ended by SIGINT\n"
                     : number == SIGTERM ? "ended by SIGTERM\n"
                                         : "ended by SIGHUP\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, std::strlen(line));
  raise(number);
}

}  // namespace

int run_program(int argc, char** argv, const std::function<int(Context&, const Arguments&)>& f) {
  const Arguments arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  int code = kExitFailure;
  const auto run_all = [&] {
    try {
      code = run_own_ranks(arguments, f);
    } catch (const std::exception& e) {
      write_text(fmt::format("error: {}\n", e.what()));
    }
  };
  try {
    with_room_on_stack(run_all);
  } catch (const std::exception& e) {
    write_text(fmt::format("error: {}\n", e.what()));
  }
  return code;
}

int usage_error(const std::string& program, const std::string& message) {
  const size_t slash = program.rfind('/');
  const std::string name = slash == std::string::npos ? program : program.substr(slash + 1);
  write_text(fmt::format("error: {}\n{} --help lists the options\n", message, name));
  return kExitUsage;
}

void say_end_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    if (sigaction(number, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    struct sigaction action {};
    action.sa_handler = say_and_end;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    sigaction(number, &action, nullptr);
  }
}

}  // namespace tessera::cluster
