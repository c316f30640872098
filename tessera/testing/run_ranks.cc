#include "tessera/testing/run_ranks.h"

#include "tessera/base/error.h"
#include "tessera/cluster/threads.h"

namespace tessera {

void run_ranks(int n, FunctionRef<void(cluster::Context&)> f, const RunRanksOptions& options) {
  const cluster::ThreadsResult result = cluster::run_threads(n,
                                                             {.timeout_ms = options.timeout_ms,
                                                              .link = options.link,
                                                              .num_compute_threads = options.num_compute_threads,
                                                              .ranks_per_host = options.ranks_per_host},
                                                             [&](cluster::Context& context) {
                                                               f(context);
                                                               return 0;
                                                             });
  const int rank = result.first_failed_rank;
  if (rank < 0) return;
  const auto text = [rank](const std::exception& e) { return fmt::format("rank {}: {}", rank, e.what()); };
  try {
    std::rethrow_exception(result.errors[static_cast<size_t>(rank)]);
  } catch (const InvalidArgument& e) {
    throw InvalidArgument(text(e));
  } catch (const IoError& e) {
    throw IoError(text(e));
  } catch (const InternalError& e) {
    throw InternalError(text(e));
  } catch (const std::exception& e) {
    throw Error(text(e));
  } catch (...) {
    throw Error(fmt::format("rank {}: an exception that is no std::exception", rank));
  }
}

}  // namespace tessera
