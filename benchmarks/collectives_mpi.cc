// MPI_Allreduce, for benchmarks/run collectives; started by mpirun.
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include "benchmarks/collectives_protocol.h"

namespace tessera::benchmarks {
namespace {

// MPI's own wait would keep the cores busy between rounds.
void wait_asleep(MPI_Request request) {
  int is_done = 0;
  while (MPI_Test(&request, &is_done, MPI_STATUS_IGNORE) == MPI_SUCCESS && is_done == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

int run(int argc, char** argv) {
  int64_t bytes = 1 << 20;
  CLI::App app("all_reduce by MPI; see benchmarks/README.md");
  app.add_option("--bytes", bytes)->check(CLI::Range(int64_t{4}, int64_t{1} << 32));
  CLI11_PARSE(app, argc, argv);
  std::vector<float> data(static_cast<size_t>(bytes) / sizeof(float));
  AllReduceSide side{.about = "MPI_Allreduce", .data = data.data(), .count = static_cast<int64_t>(data.size())};
  MPI_Comm_rank(MPI_COMM_WORLD, &side.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &side.num_ranks);
  side.all_reduce = [&] {
    MPI_Allreduce(MPI_IN_PLACE, side.data, static_cast<int>(side.count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  side.largest = [](double own) {
    double all = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(&own, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &request);
    wait_asleep(request);
    MPI_Barrier(MPI_COMM_WORLD);
    return all;
  };
  serve_all_reduce(side);
  return 0;
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    const int code = tessera::benchmarks::run(argc, argv);
    MPI_Finalize();
    return code;
  } catch (const std::exception& error) {
    fmt::print(stderr, "collectives_mpi: {}\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}
