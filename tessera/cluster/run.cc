#include "tessera/cluster/run.h"

#include <omp.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/cluster/launch.h"
#include "tessera/cluster/threads.h"

namespace tessera::cluster {
namespace {

// One write per line: ranks share the terminal.
void print_error(int rank, const std::string& message) {
  const std::string line = fmt::format("rank {}: error: {}\n", rank, message);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

void print_error(int rank, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    print_error(rank, std::string(e.what()));
  } catch (...) {
    print_error(rank, std::string("an exception that is no std::exception"));
  }
}

// Tells the launcher, if there is one, whose failure this is.
void report_status(const JobOptions& job, int rank, int origin) {
  if (job.status_fd < 0) return;
  const std::string line = fmt::format("{} {}\n", rank, origin);
  [[maybe_unused]] const ssize_t written = write(job.status_fd, line.data(), line.size());
}

int run_as_threads(const JobOptions& job, const Arguments& arguments,
                   const std::function<int(Context&, const Arguments&)>& f) {
  const ThreadsResult result =
      run_threads(job.thread_ranks, {.timeout_ms = job.timeout_ms, .num_compute_threads = job.num_compute_threads},
                  [&](Context& context) { return f(context, arguments); });
  // The rank that failed first comes first: the others only say that they stopped because of it.
  if (result.first_failed_rank >= 0) {
    print_error(result.first_failed_rank, result.errors[static_cast<size_t>(result.first_failed_rank)]);
  }
  for (size_t rank = 0; rank < result.errors.size(); ++rank) {
    if (result.errors[rank] && static_cast<int>(rank) != result.first_failed_rank) {
      print_error(static_cast<int>(rank), result.errors[rank]);
    }
  }
  if (result.first_failed_rank >= 0) {
    report_status(job, result.first_failed_rank, result.first_failed_rank);
    return 1;
  }
  for (const int code : result.codes) {
    if (code != 0) return code;
  }
  return 0;
}

int run_as_rank(const JobOptions& job, const Arguments& arguments,
                const std::function<int(Context&, const Arguments&)>& f) {
  std::unique_ptr<Context> context;
  try {
    context = join_job(job);
  } catch (const comm::PeerFailure& e) {
    print_error(job.rank, std::string(e.what()));
    report_status(job, job.rank, e.rank());
    return 1;
  } catch (const std::exception& e) {
    print_error(job.rank, std::string(e.what()));
    report_status(job, job.rank, job.rank);
    return 1;
  }
  if (context->size() > 1) set_log_rank(context->rank());
  omp_set_num_threads(context->num_compute_threads());
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
  print_error(context->rank(), message);
  context->abort(message);
  report_status(job, context->rank(), origin);
  return 1;
}

}  // namespace

int run_program(int argc, char** argv, const std::function<int(Context&, const Arguments&)>& f) {
  const Arguments arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  try {
    const JobOptions job = job_from_environment();
    if (job.thread_ranks > 1) return run_as_threads(job, arguments, f);
    return run_as_rank(job, arguments, f);
  } catch (const std::exception& e) {
    const std::string line = fmt::format("error: {}\n", e.what());
    std::fwrite(line.data(), 1, line.size(), stderr);
    return 1;
  }
}

}  // namespace tessera::cluster
