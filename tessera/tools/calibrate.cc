#include "tessera/tools/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <thread>

namespace tessera::tools {
namespace {

// What takes so long is long enough to be measured.
constexpr double kLongEnough = 0.02;

double now() { return static_cast<double>(Clock::system().monotonic_ns()) / 1e9; }

// The ranks of this host, all at work at once, as in a job: together they are slower than one alone.
struct Ranks {
  int num_ranks = 1;
  int num_threads = 1;  // of each
};

// Runs it on all ranks, each in a thread. What rank 0 returns.
double on_all(const Ranks& ranks, const std::function<double(cluster::Context&)>& run) {
  double figure = 0;
  const auto result =
      cluster::run_threads(ranks.num_ranks, {.num_compute_threads = ranks.num_threads}, [&](cluster::Context& context) {
        const double own = run(context);
        if (context.rank() == 0) figure = own;
        return 0;
      });
  for (const auto& error : result.errors) {
    if (error) std::rethrow_exception(error);
  }
  return figure;
}

// Operations a second, at the first size that takes long enough.
double flops_per_second(int64_t size, int64_t largest, FunctionRef<session::Measured(int64_t)> measure) {
  for (;; size *= 2) {
    const auto measured = measure(size);
    if (measured.seconds >= kLongEnough || size >= largest) return measured.per_second();
  }
}

double matmul_flops(cluster::Context& context, DType dtype) {
  return flops_per_second(128, 2048, [&](int64_t size) { return session::measure_matmul(context, dtype, size); });
}

// 3x3, as in the middle of a residual network; `rows` images.
double convolution_flops(cluster::Context& context, DType dtype) {
  constexpr int64_t kChannels = 128;
  constexpr int64_t kSize = 28;
  constexpr int64_t kPerImage = 2 * kSize * kSize * kChannels * kChannels * 9;
  return flops_per_second(1, 64, [&](int64_t rows) {
    ir::Graph graph("convolution");
    const auto x = graph.add_input(ir::InputKind::kInput, "x", {dtype, {rows, kChannels, kSize, kSize}});
    const auto weight = graph.add_input(ir::InputKind::kInput, "weight", {dtype, {kChannels, kChannels, 3, 3}});
    graph.add_output("y", ops::conv2d(x, weight, {.pad_mode = ops::PadMode::kSame}));
    return session::Measured{static_cast<double>(rows * kPerImage), session::least_seconds(context, graph)};
  });
}

// What is neither a product nor a convolution: transcendental functions on values in a cache.
double vector_flops(cluster::Context& context, DType dtype) {
  const Type type{dtype, {1 << 15}};
  const auto& tanh = ops::OpRegistry::instance().get("tanh");
  const double flops = ops::cost_of(tanh, {}, std::vector<Type>{type}, std::vector<Type>{type}).flops;
  return flops / session::chain_seconds(context, type, 100, [](ir::Value x, ir::Value) { return ops::tanh(x); });
}

// Of steps that read and write so many bytes.
double bytes_per_second(cluster::Context& context, int64_t bytes) {
  constexpr int64_t kBytesOfAll = int64_t{1} << 29;
  const auto count = static_cast<int>(std::clamp<int64_t>(kBytesOfAll / bytes, 2, 1000));
  return session::measure_memory(context, bytes, count).per_second();
}

// The share of a collective's time by which computing takes longer while it runs beside it.
double communication_load(cluster::Context& context) {
  constexpr int64_t kCount = 4 << 20;
  session::Session session(context, {.fusions = compiler::Fusions::none()});
  const auto executable = session.compile_local(session::product_graph(DType::kF32, 1024));
  std::vector<float> data(kCount);
  const auto reduce = [&] {
    context.world().all_reduce(data.data(), kCount, DType::kF32, comm::ReduceOp::kMax, "calibrate");
  };
  // Both take about as long.
  const double once = session::least_seconds(context, reduce);
  const double compute = session::least_seconds(context, [&] { executable->run(); });
  const int repeats = static_cast<int>(std::clamp(compute / once, 1.0, 1000.0));
  const auto reduces = [&] {
    for (int i = 0; i < repeats; ++i) reduce();
  };
  const double communication = session::least_seconds(context, reduces);
  const double together = session::least_seconds(context, [&] {
    std::thread lane(reduces);
    executable->run();
    lane.join();
  });
  const double longer = together - std::max(compute, communication);
  return std::clamp(longer / std::min(compute, communication), 0.0, 1.0);
}

// Between so many ranks of this host. Gradients do not lie in caches.
compiler::Link link_among(int num_ranks) {
  constexpr comm::SpeedOptions kOptions{.large_bytes = 16 << 20, .num_runs = 15};
  compiler::Link link;
  on_all({.num_ranks = num_ranks}, [&](cluster::Context& context) {
    const auto speed = comm::measure_speed(context.world(), kOptions);
    if (context.rank() == 0) link = session::link_of(speed, num_ranks);
    return 0;
  });
  return link;
}

// What this process may use: of the machine, or of its control group.
int64_t memory_of_machine() {
  int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    if (!FileSystem::local().exists(path)) continue;
    const auto text = FileSystem::local().read_text(path);
    int64_t limit = 0;
    // "max" where there is no limit.
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), limit);
    if (parsed.ec == std::errc() && limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

}  // namespace

compiler::MachineProfile measure_machine(const CalibrateOptions& options) {
  const double begin = now();
  const auto tell = [&](const std::string& figure) {
    if (options.progress) fmt::print(stderr, "{:6.1f} s  {}\n", now() - begin, figure);
  };
  const int threads = options.num_threads;
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  compiler::MachineProfile profile{
      .name = fmt::format("measured, ranks of {} thread{}", threads, threads == 1 ? "" : "s"),
      .ranks_per_host = std::max(1, cores / threads),
      .inter_host = {1.25e9, 50e-6}};
  profile.memory_bytes = memory_of_machine() / profile.ranks_per_host;
  const Ranks ranks{profile.ranks_per_host, threads};
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    const auto measure = [&](const char* what, std::map<DType, double>& speeds, auto flops) {
      speeds[dtype] = on_all(ranks, [&](cluster::Context& context) { return flops(context, dtype); });
      tell(fmt::format("{:<29}{:10.1f} GFLOP/s", fmt::format("{} {}", what, to_string(dtype)), speeds[dtype] / 1e9));
    };
    measure("matmul", profile.flops_per_second, matmul_flops);
    measure("convolution", profile.convolution_flops_per_second, convolution_flops);
    measure("other operators", profile.vector_flops_per_second, vector_flops);
  }
  const auto speed_of_bytes = [&](int64_t bytes) {
    return on_all(ranks, [&](cluster::Context& context) { return bytes_per_second(context, bytes); });
  };
  profile.memory_bytes_per_second = speed_of_bytes(int64_t{400} << 20);
  tell(fmt::format("{:<29}{:10.1f} GB/s", "memory", profile.memory_bytes_per_second / 1e9));
  double slower = profile.memory_bytes_per_second;
  for (const int64_t bytes : {int64_t{64} << 20, int64_t{16} << 20, int64_t{4} << 20, int64_t{1} << 20}) {
    // What is larger is not faster, but by noise.
    slower = std::max(slower, speed_of_bytes(bytes));
    profile.cached_bytes_per_second[bytes] = slower;
    tell(fmt::format("{:<29}{:10.1f} GB/s", fmt::format("up to {}", format_bytes(bytes)), slower / 1e9));
  }
  profile.kernel_overhead_seconds =
      on_all(ranks, [](cluster::Context& context) { return session::kernel_overhead_seconds(context, 1000); });
  tell(fmt::format("{:<29}{:10.2f} us", "a kernel's overhead", profile.kernel_overhead_seconds * 1e6));
  for (int among = 2; among <= std::max(2, profile.ranks_per_host); among *= 2) {
    const auto link = link_among(among);
    if (among == 2) {
      profile.intra_host = link;
    } else {
      profile.intra_host_by_ranks[among] = link;
    }
    tell(fmt::format("{:<29}{:10.1f} GB/s, {:.1f} us", fmt::format("link among {} ranks", among),
                     link.bytes_per_second / 1e9, link.latency_seconds * 1e6));
  }
  profile.communication_load = on_all({std::max(2, profile.ranks_per_host), threads}, communication_load);
  tell(fmt::format("{:<29}{:10.2f}", "load by communication", profile.communication_load));
  return profile;
}

std::string calibrate_text(const CalibrateOptions& options) {
  const auto profile = measure_machine(options);
  const auto json = compiler::to_json(profile);
  if (options.out.empty()) return json;
  FileSystem::local().write_atomically(options.out, json);
  return fmt::format(
      "{}: {} of memory for each of {} ranks a host. The link to other hosts is assumed, {} GB/s and {} us: look at it "
      "before you use the file\n",
      options.out, format_bytes(profile.memory_bytes), profile.ranks_per_host,
      shortest(profile.inter_host.bytes_per_second / 1e9), shortest(profile.inter_host.latency_seconds * 1e6));
}

}  // namespace tessera::tools
