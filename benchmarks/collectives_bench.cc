// all_reduce between processes of this host, by Tessera, by Gloo or by a plain program, for benchmarks/run collectives.
// The program starts its ranks itself.
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <sched.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <new>
#include <thread>

#include "benchmarks/collectives_protocol.h"
#include "benchmarks/protocol.h"
#include "benchmarks/rank_processes.h"
#include "tessera/cluster/ranks/rank_context.h"
#include "tessera/executor/arena.h"

namespace tessera::benchmarks {
namespace {

constexpr int64_t kTimeoutMs = 3'600'000;

struct Options {
  std::string library = "tessera";
  int num_ranks = 2;
  int64_t bytes = 1 << 20;
  bool arena = false;
  bool on_hosts = false;
  std::string transport;
  int64_t count() const { return bytes / static_cast<int64_t>(sizeof(float)); }
};

// What the ranks share before they share anything better: made before they are started.
struct Common {
  std::atomic<int> num_arrived{0};
  std::atomic<int> generation{0};
  double values[64] = {};
};

void serve_tessera(const Options& options, int rank) {
  cluster::JobOptions job = job_of_processes(rank, options.num_ranks);
  if (options.on_hosts) job.host_id = fmt::format("host {}", rank);
  if (!options.transport.empty()) job.transport = cluster::parse_transport_kind(options.transport);
  const auto context = cluster::join_job(job);
  std::vector<float> own(static_cast<size_t>(options.arena ? 0 : options.count()));
  executor::Arena arena(options.bytes, context->reserve_shared_memory(static_cast<size_t>(options.bytes)));
  arena.grow_to(options.bytes);
  AllReduceSide side{.rank = rank,
                     .num_ranks = options.num_ranks,
                     .about = context->transport() + (options.arena ? ", arena" : ", private buffers"),
                     .data = options.arena ? reinterpret_cast<float*>(arena.data()) : own.data(),
                     .count = options.count()};
  comm::Communicator& world = context->world();
  side.all_reduce = [&] { world.all_reduce(side.data, side.count, DType::kF32, comm::ReduceOp::kSum, "bench"); };
  side.largest = [&](double value) {
    world.all_reduce(&value, 1, DType::kF64, comm::ReduceOp::kMax, "largest");
    return value;
  };
  serve_all_reduce(side);
  context->finish();
}

template <typename Algorithm>
void serve_gloo(const Options& options, int rank, const std::string& directory) {
  ::gloo::transport::tcp::attr attribute("127.0.0.1");
  auto device = ::gloo::transport::tcp::CreateDevice(attribute);
  ::gloo::rendezvous::FileStore files(directory);
  auto context = std::make_shared<::gloo::rendezvous::Context>(rank, options.num_ranks);
  context->setTimeout(std::chrono::milliseconds(kTimeoutMs));
  context->connectFullMesh(files, device);
  std::vector<float> data(static_cast<size_t>(options.count()));
  double value = 0;
  Algorithm all_reduce(context, std::vector<float*>{data.data()}, static_cast<int>(options.count()));
  ::gloo::AllreduceRingChunked<double> largest(context, std::vector<double*>{&value}, 1,
                                               ::gloo::ReductionFunction<double>::max);
  AllReduceSide side{
      .rank = rank, .num_ranks = options.num_ranks, .about = "over TCP", .data = data.data(), .count = options.count()};
  side.all_reduce = [&] { all_reduce.run(); };
  side.largest = [&](double own) {
    value = own;
    largest.run();
    return value;
  };
  serve_all_reduce(side);
}

// Sums n buffers of one share, and writes the sum to all.
__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3"))) void reduce_share(float* const* buffers,
                                                                                               int n, int64_t begin,
                                                                                               int64_t end) {
  constexpr int64_t kBlock = 1024;
  float sums[kBlock];
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t length = std::min(kBlock, end - at);
    for (int64_t i = 0; i < length; ++i) sums[i] = buffers[0][at + i];
    for (int b = 1; b < n; ++b) {
      const float* source = buffers[b] + at;
      for (int64_t i = 0; i < length; ++i) sums[i] += source[i];
    }
    for (int b = 0; b < n; ++b) std::copy_n(sums, length, buffers[b] + at);
  }
}

// No library: buffers that all ranks map, a share each, and barriers that spin.
void serve_plain(const Options& options, int rank, Common& common, float* memory) {
  const int n = options.num_ranks;
  const bool may_spin = cluster::num_cores() >= n;
  const auto barrier = [&](bool sleeps) {
    const int generation = common.generation.load();
    if (common.num_arrived.fetch_add(1) + 1 == n) {
      common.num_arrived.store(0);
      common.generation.fetch_add(1);
      return;
    }
    while (common.generation.load() == generation) {
      if (sleeps) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      } else if (!may_spin) {
        sched_yield();
      }
    }
  };
  std::vector<float*> buffers;
  for (int r = 0; r < n; ++r) buffers.push_back(memory + r * options.count());
  AllReduceSide side{.rank = rank,
                     .num_ranks = n,
                     .about = "shared buffers, barriers",
                     .data = buffers[static_cast<size_t>(rank)],
                     .count = options.count()};
  const int64_t share = (options.count() / n + 15) / 16 * 16;
  side.all_reduce = [&] {
    barrier(false);
    reduce_share(buffers.data(), n, std::min(side.count, rank * share),
                 rank == n - 1 ? side.count : std::min(side.count, (rank + 1) * share));
    barrier(false);
  };
  side.largest = [&](double own) {
    common.values[rank] = own;
    barrier(true);
    const double all = *std::max_element(common.values, common.values + n);
    barrier(false);
    return all;
  };
  serve_all_reduce(side);
}

void serve(const Options& options, int rank, const std::string& directory, Common& common, float* memory) {
  if (options.library == "tessera") {
    serve_tessera(options, rank);
  } else if (options.library == "gloo_ring") {
    serve_gloo<::gloo::AllreduceRingChunked<float>>(options, rank, directory);
  } else if (options.library == "gloo_halving") {
    serve_gloo<::gloo::AllreduceHalvingDoubling<float>>(options, rank, directory);
  } else {
    serve_plain(options, rank, common, memory);
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("all_reduce between processes of this host; see benchmarks/README.md");
  app.add_option("--library", options.library)->check(CLI::IsMember({"tessera", "gloo_ring", "gloo_halving", "plain"}));
  app.add_option("--ranks", options.num_ranks)->check(CLI::Range(2, 64));
  app.add_option("--bytes", options.bytes)->check(CLI::Range(int64_t{4}, int64_t{1} << 32));
  app.add_flag("--arena", options.arena, "buffers that peers map");
  app.add_flag("--on_hosts", options.on_hosts, "ranks pretend to be on a host each, and talk by this one's loopback");
  app.add_option("--transport", options.transport, "as TESSERA_TRANSPORT; default: automatic")
      ->check(CLI::IsMember({"shm", "tls", "gloo"}));
  CLI11_PARSE(app, argc, argv);

  auto* common = new (map_common(sizeof(Common))) Common;
  float* memory = nullptr;
  if (options.library == "plain") {
    memory = static_cast<float*>(map_common(static_cast<size_t>(options.bytes * options.num_ranks)));
  }
  char directory[] = "/tmp/collectives_bench_XXXXXX";
  if (mkdtemp(directory) == nullptr) throw IoError("cannot make a folder in /tmp");
  const int code =
      run_processes(options.num_ranks, [&](int rank) { serve(options, rank, directory, *common, memory); });
  std::filesystem::remove_all(directory);
  return code;
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::benchmarks::run); }
