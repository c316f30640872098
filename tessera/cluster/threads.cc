#include "tessera/cluster/threads.h"

#include <omp.h>

#include <algorithm>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/cluster/rank_context.h"
#include "tessera/comm/hierarchy.h"

namespace tessera::cluster {
namespace {

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace

ThreadsResult run_threads(int num_ranks, const ThreadsOptions& options, FunctionRef<int(Context&)> f) {
  if (num_ranks < 1) throw InvalidArgument("a job needs at least 1 rank, got {}", num_ranks);
  const int cores = num_cores();
  const int compute_threads =
      options.num_compute_threads > 0 ? options.num_compute_threads : std::max(1, cores / num_ranks);
  const auto world = std::make_shared<comm::InProcessWorld>(
      num_ranks, comm::WaitOptions{.timeout_ms = options.timeout_ms, .spin = cores >= num_ranks}, options.link);
  const std::shared_ptr<comm::JobState> job(world, &world->job());

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
  const auto run_rank = [&](int rank) {
    const auto index = static_cast<size_t>(rank);
    set_log_rank(rank);
    omp_set_num_threads(compute_threads);
    try {
      RankContext context({.rank = rank,
                           .size = num_ranks,
                           .local_rank = rank % per_host,
                           .local_size = std::min(per_host, num_ranks - rank / per_host * per_host),
                           .num_compute_threads = compute_threads},
                          make_transport(), std::make_unique<LocalMembership>(job, rank));
      result.codes[index] = f(context);
      context.finish();
    } catch (...) {
      result.errors[index] = std::current_exception();
      job->fail(rank, message_of(result.errors[index]));
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(num_ranks));
  for (int rank = 0; rank < num_ranks; ++rank) threads.emplace_back(run_rank, rank);
  for (std::thread& thread : threads) thread.join();
  if (job->failed()) {
    result.first_failed_rank = job->failed_rank();
    // A rank may also fail the job by abort() and return.
    std::exception_ptr& error = result.errors[static_cast<size_t>(result.first_failed_rank)];
    if (!error) error = std::make_exception_ptr(IoError(job->message()));
  }
  return result;
}

}  // namespace tessera::cluster
