#include "tessera/cluster/run.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>

#include "tessera/base/error.h"
#include "tessera/base/files/standard_output.h"
#include "tessera/base/logging.h"
#include "tessera/base/printable.h"
#include "tessera/base/strings.h"
#include "tessera/base/thread.h"
#include "tessera/base/usage_error.h"
#include "tessera/cluster/launch.h"
#include "tessera/cluster/ranks/environment.h"
#include "tessera/cluster/ranks/rank_words.h"
#include "tessera/cluster/recovery/end_of_generation.h"
#include "tessera/cluster/termination.h"
#include "tessera/cluster/threads.h"
#include "tessera/comm/job_state.h"

namespace tessera::cluster {
namespace {

void write_text(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

// One write per line: ranks share the terminal.
void print_error(const std::string& who, const std::string& message) {
  write_text(fmt::format("{}: error: {}\n", who, printable(message)));
}

std::string node_name(const std::string& id) {
  return id.empty() ? "this process" : fmt::format("node {}", printable(id));
}

std::string rank_name(int rank) { return fmt::format("rank {}", rank); }

// The rank that failed first comes first: the others only say that they stopped because of it. One that has ended with
// an exit code has said itself what there was to say.
void print_errors(const ThreadsResult& result) {
  const auto num_ranks = static_cast<int>(result.errors.size());
  RankErrors errors(num_ranks);
  const int first = result.first_failed_rank;
  const bool has_code = result.codes[static_cast<size_t>(first)] != kExitSuccess;
  const std::string cause = message_of(result.errors[static_cast<size_t>(first)]);
  if (!has_code) errors.add(first, cause);
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::exception_ptr& error = result.errors[static_cast<size_t>(rank)];
    if (rank == first || !error) continue;
    std::string message = message_of(error);
    const std::string because = fmt::format(" because rank {} failed", first);
    if (!has_code && message.ends_with(because + ": " + cause)) message.erase(message.size() - cause.size() - 2);
    errors.add(rank, message);
  }
  for (const RankErrors::Entry& entry : errors.entries()) print_error(name_ranks(entry.ranks, num_ranks), entry.text);
}

// Of an error before any rank has begun.
int code_before_work(const std::exception& error) {
  return dynamic_cast<const UsageError*>(&error) != nullptr ? kExitUsage : kExitFailure;
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
  report_failure(job.status_fd, known.first_failed_rank, known.first_failed_rank);
  std::fflush(nullptr);
  _exit(kExitFailure);
}

int run_as_threads(const JobOptions& job, const Arguments& arguments,
                   const std::function<int(Context&, const Arguments&)>& f) {
  constexpr int64_t kGraceMs = 3000;
  ThreadsOptions options{.timeout_ms = job.timeout_ms,
                         .num_compute_threads = job.num_compute_threads,
                         .num_servers = job.num_servers,
                         .is_watched = true,
                         .report_directory = job.report_directory,
                         .figures_fd = job.figures_fd,
                         .timeline = job.timeline,
                         .grace_ms = std::min(kGraceMs, job.timeout_ms)};
  options.on_hang = [&](const ThreadsResult& known, const std::vector<HungRank>& hung) {
    end_hung_job(job, options.grace_ms, known, hung);
  };
  const ThreadsResult result =
      run_threads(job.thread_ranks, options, [&](Context& context) { return f(context, arguments); });
  if (result.first_failed_rank >= 0) {
    print_errors(result);
    report_failure(job.status_fd, result.first_failed_rank, result.first_failed_rank);
    const int code = result.codes[static_cast<size_t>(result.first_failed_rank)];
    return code != kExitSuccess ? code : kExitFailure;
  }
  return *std::ranges::max_element(result.codes);  // kExitTerminated where all were told to end
}

// Says the error that is being handled and ends the other ranks' waits.
int fail_rank(Context& context) {
  const std::exception_ptr error = std::current_exception();
  std::string message = message_of(error);
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    if (const std::string why = begin_anew_after(context, known); !why.empty()) message += "; " + why;
  } catch (...) {  // whatever it is, it tells of no rank
  }
  // It has not failed: the job, which goes on, has said that already.
  const bool is_dropped = !why_dropped(context).empty();
  if (!is_dropped) print_error(rank_name(context.rank()), message);
  context.abort(origin_of(error, context.rank()), message);
  return kExitFailure;
}

int run_as_rank(const JobOptions& job, const Arguments& arguments,
                const std::function<int(Context&, const Arguments&)>& f, const Surveyor* surveyor) {
  std::unique_ptr<Context> context;
  try {
    context = join_job(job, surveyor);
  } catch (const SurveyEnd& end) {
    return end.code();
  } catch (const std::exception& e) {
    // Which rank a node has is known once it has joined.
    const bool is_rank_known = job.scheduler.address.empty();
    print_error(is_rank_known ? rank_name(job.rank) : node_name(job.scheduler.node_id), e.what());
    if (is_rank_known) report_failure(job.status_fd, job.rank, origin_of(std::current_exception(), job.rank));
    return code_before_work(e);
  }
  if (context->size() > 1) set_log_rank(context->rank());
  int code = kExitFailure;
  try {
    code = f(*context, arguments);
  } catch (const Terminated&) {
    if (context->recovery() != nullptr) {  // the job goes on without it, for now
      context->abort(kToldToEndWords);
      return kExitTerminated;
    }
    const bool all_end = end_rank(*context, kExitSuccess) == kExitSuccess;
    return all_end ? kExitTerminated : kExitFailure;
  } catch (...) {
    return fail_rank(*context);
  }
  return end_rank(*context, code);
}

// All ranks that this process is.
int run_own_ranks(const Arguments& arguments, const std::function<int(Context&, const Arguments&)>& f,
                  const Surveyor* surveyor) {
  if (const auto level = log_level_from_environment()) set_log_level(*level);
  warn_of_unknown_variables();
  const JobOptions job = job_from_environment();
  // The launcher says itself what has ended the job.
  if (job.status_fd < 0 && job.size == 1) say_end_signals();
  warn_if_alone_among_tasks();
  if (job.thread_ranks > 1) return run_as_threads(job, arguments, f);
  return run_as_rank(job, arguments, f, surveyor);
}

// Says which signal ends the process, and ends it by that signal.
void say_and_end(int number) {
  const char* line = number == SIGINT    ? "ended by SIGINT\n"
                     : number == SIGTERM ? "ended by SIGTERM\n"
                                         : "ended by SIGHUP\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, std::strlen(line));
  raise(number);
}

int run_all_ranks(int argc, char** argv, const std::function<int(Context&, const Arguments&)>& f,
                  const Surveyor* surveyor) {
  const Arguments arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  occupy_closed_outputs();
  int code = kExitFailure;
  const auto run_all = [&] {
    try {
      code = run_own_ranks(arguments, f, surveyor);
    } catch (const std::exception& e) {
      write_text(fmt::format("error: {}\n", printable(e.what())));
      code = code_before_work(e);
    }
  };
  try {
    with_room_on_stack(run_all);
  } catch (const std::exception& e) {
    write_text(fmt::format("error: {}\n", printable(e.what())));
  }
  return code_after_output(code);
}

}  // namespace

int run_program(int argc, char** argv, const std::function<int(Context&, const Arguments&)>& f) {
  return run_all_ranks(argc, argv, f, nullptr);
}

int run_survey(int argc, char** argv, const Surveyor& surveyor, const std::function<int(Context&)>& f) {
  return run_all_ranks(
      argc, argv, [&](Context& context, const Arguments& /*arguments*/) { return f(context); }, &surveyor);
}

std::string why_dropped(Context& context) {
  Recovery* recovery = context.recovery();
  if (recovery == nullptr) return "";
  const std::string why = recovery->why_dropped();
  if (!why.empty() && !recovery->has_launcher()) log_warning("this rank has no part in the job any more: {}", why);
  return why;
}

std::string begin_anew_after(Context& context, const std::exception& error) {
  Recovery* recovery = context.recovery();
  if (recovery == nullptr) return "";
  if (!is_end_of_generation(*recovery, error)) return "";
  const bool is_silence = dynamic_cast<const comm::PeerSilence*>(&error) != nullptr;
  const bool is_resizing = dynamic_cast<const Resizing*>(&error) != nullptr;
  const bool speaks = context.rank() == 0;
  if (is_resizing) return recovery->begin_anew_as_planned(error.what(), speaks);
  if (const std::string planned = is_silence ? "" : recovery->planned_end(); !planned.empty()) {
    return recovery->begin_anew_as_planned(planned, speaks);
  }
  const auto* failure = dynamic_cast<const comm::PeerFailure*>(&error);
  context.write_report(failure != nullptr ? failure->rank() : context.rank(), error.what());
  return recovery->begin_anew(error.what());
}

int end_rank(Context& context, int code) {
  if (code != kExitSuccess) {
    context.abort(words_of_exit(code));
    return code;
  }
  try {
    context.finish();
  } catch (...) {
    return fail_rank(context);
  }
  return kExitSuccess;
}

int usage_error(const std::string& program, const std::string& message) {
  const size_t slash = program.rfind('/');
  const std::string name = slash == std::string::npos ? program : program.substr(slash + 1);
  write_text(fmt::format("error: {}\n{} --help lists the options\n", message, name));
  return kExitUsage;
}

std::string describe_unknown_words(const std::vector<std::string>& words, const std::vector<std::string>& options) {
  // Where an option is not known, its value is left over, too.
  const auto option = std::ranges::find_if(words, [](const auto& word) { return word.size() > 1 && word[0] == '-'; });
  if (option == words.end()) return fmt::format("there is no argument \"{}\" here", words.empty() ? "" : words.front());
  const std::string name = option->substr(0, option->find('='));
  const std::string near = closest(name, options);
  return fmt::format("unknown option {}{}", name, near.empty() ? "" : fmt::format("; did you mean {}?", near));
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
