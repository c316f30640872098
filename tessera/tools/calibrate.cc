#include "tessera/tools/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <limits>
#include <thread>

namespace tessera::tools {
namespace {

constexpr int kRuns = 5;
// What takes so long is long enough to be measured.
constexpr double kLongEnough = 0.02;
// And what takes longer than this is not tried at a larger size.
constexpr double kTooLong = 0.5;

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

// From when all ranks have come until the last is done.
double seconds_together(cluster::Context& context, const std::function<void()>& run) {
  context.world().barrier("calibrate");
  const double begin = now();
  run();
  double seconds = now() - begin;
  context.world().all_reduce(&seconds, 1, DType::kF64, comm::ReduceOp::kMax, "calibrate");
  return seconds;
}

// The fastest of some runs.
double least_seconds(cluster::Context& context, const std::function<void()>& run) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= kRuns; ++i) {
    const double seconds = seconds_together(context, run);
    // The first run touches the memory; of what takes long it is near enough.
    if (i > 0 || seconds > kTooLong) best = std::min(best, seconds);
    if (seconds > kTooLong) break;
  }
  return best;
}

// Of a graph, on inputs that are zero.
double seconds_of(const ir::Graph& graph, const Ranks& ranks) {
  return on_all(ranks, [&](cluster::Context& context) {
    session::Session session(context, {.fusions = compiler::Fusions::none()});
    const auto executable = session.compile_local(graph);
    return least_seconds(context, [&] { executable->run(); });
  });
}

// Of a graph that does flops(size) operations, at the first size that takes long enough.
template <typename Graph>
double flops_per_second(int64_t size, int64_t largest, const Ranks& ranks, Graph make) {
  for (;; size *= 2) {
    const auto [graph, flops] = make(size);
    const double seconds = seconds_of(graph, ranks);
    if (seconds >= kLongEnough || size >= largest) return flops / seconds;
  }
}

ir::Graph product_of(DType dtype, int64_t size) {
  ir::Graph graph("product");
  const auto a = graph.add_input(ir::InputKind::kInput, "a", {dtype, {size, size}});
  const auto b = graph.add_input(ir::InputKind::kInput, "b", {dtype, {size, size}});
  graph.add_output("c", ops::matmul(a, b));
  return graph;
}

double matmul_flops(DType dtype, const Ranks& ranks) {
  return flops_per_second(128, 2048, ranks, [&](int64_t size) {
    const auto n = static_cast<double>(size);
    return std::pair(product_of(dtype, size), 2 * n * n * n);
  });
}

// 3x3, as in the middle of a residual network; `rows` images.
double convolution_flops(DType dtype, const Ranks& ranks) {
  constexpr int64_t kChannels = 128;
  constexpr int64_t kSize = 28;
  return flops_per_second(1, 64, ranks, [&](int64_t rows) {
    ir::Graph graph("convolution");
    const auto x = graph.add_input(ir::InputKind::kInput, "x", {dtype, {rows, kChannels, kSize, kSize}});
    const auto weight = graph.add_input(ir::InputKind::kInput, "weight", {dtype, {kChannels, kChannels, 3, 3}});
    graph.add_output("y", ops::conv2d(x, weight, {.pad_mode = ops::PadMode::kSame}));
    constexpr int64_t kPerImage = 2 * kSize * kSize * kChannels * kChannels * 9;
    return std::pair(std::move(graph), static_cast<double>(rows * kPerImage));
  });
}

// Of `count` steps, one after the other, each on the result of the one before.
template <typename Step>
double chain_seconds(const Type& type, int count, const Ranks& ranks, Step step) {
  ir::Graph graph("chain");
  const auto other = graph.add_input(ir::InputKind::kInput, "other", type);
  auto x = graph.add_input(ir::InputKind::kInput, "x", type);
  for (int i = 0; i < count; ++i) x = step(x, other);
  graph.add_output("y", x);
  return seconds_of(graph, ranks) / count;
}

// What is neither a product nor a convolution: transcendental functions on values in a cache.
double vector_flops(DType dtype, const Ranks& ranks) {
  const Type type{dtype, {1 << 15}};
  const auto& tanh = ops::OpRegistry::instance().get("tanh");
  const double flops = ops::cost_of(tanh, {}, std::vector<Type>{type}, std::vector<Type>{type}).flops;
  return flops / chain_seconds(type, 100, ranks, [](ir::Value x, ir::Value) { return ops::tanh(x); });
}

// Of steps that read and write so many bytes.
double bytes_per_second(int64_t bytes, const Ranks& ranks) {
  constexpr int64_t kBytesOfAll = int64_t{1} << 29;
  const int64_t count = std::clamp<int64_t>(kBytesOfAll / bytes, 2, 1000);
  // Two operands and a result.
  const Type type{DType::kF32, {bytes / 3 / static_cast<int64_t>(sizeof(float))}};
  return static_cast<double>(bytes) /
         chain_seconds(type, static_cast<int>(count), ranks, [](ir::Value x, ir::Value y) { return x + y; });
}

double kernel_overhead_seconds(const Ranks& ranks) {
  return chain_seconds({DType::kF32, {8}}, 1000, ranks, [](ir::Value x, ir::Value) { return ops::neg(x); });
}

// The share of a collective's time by which computing takes longer while it runs beside it.
double communication_load(const Ranks& ranks) {
  constexpr int64_t kCount = 4 << 20;
  return on_all(ranks, [&](cluster::Context& context) {
    session::Session session(context, {.fusions = compiler::Fusions::none()});
    const auto executable = session.compile_local(product_of(DType::kF32, 1024));
    std::vector<float> data(kCount);
    const auto reduce = [&] {
      context.world().all_reduce(data.data(), kCount, DType::kF32, comm::ReduceOp::kMax, "calibrate");
    };
    // Both take about as long.
    const double once = least_seconds(context, reduce);
    const double compute = least_seconds(context, [&] { executable->run(); });
    const int repeats = static_cast<int>(std::clamp(compute / once, 1.0, 1000.0));
    const auto reduces = [&] {
      for (int i = 0; i < repeats; ++i) reduce();
    };
    const double communication = least_seconds(context, reduces);
    const double together = least_seconds(context, [&] {
      std::thread lane(reduces);
      executable->run();
      lane.join();
    });
    const double longer = together - std::max(compute, communication);
    return std::clamp(longer / std::min(compute, communication), 0.0, 1.0);
  });
}

// The median all_reduce of so many numbers, as rank 0 sees it.
double all_reduce_seconds(comm::Communicator& group, std::vector<float>& data, int64_t count) {
  constexpr int kReduces = 15;
  std::vector<double> seconds;
  for (int run = 0; run <= kReduces; ++run) {
    const double begin = now();
    group.all_reduce(data.data(), count, DType::kF32, comm::ReduceOp::kMax, "calibrate");
    if (run > 0) seconds.push_back(now() - begin);
  }
  std::nth_element(seconds.begin(), seconds.begin() + kReduces / 2, seconds.end());
  return seconds[kReduces / 2];
}

// Between so many ranks of this host. An all_reduce is two rounds, in which a rank receives 2 (n-1)/n of its buffer.
compiler::Link link_among(int num_ranks) {
  constexpr int64_t kCount = 4 << 20;  // 16 MiB: gradients do not lie in caches
  compiler::Link link;
  on_all({.num_ranks = num_ranks}, [&](cluster::Context& context) {
    std::vector<float> data(kCount);
    const double few = all_reduce_seconds(context.world(), data, 1);
    const double many = all_reduce_seconds(context.world(), data, kCount);
    const double received = 2.0 * (num_ranks - 1) / num_ranks * kCount * sizeof(float);
    // Noise must not make it infinitely fast.
    if (context.rank() == 0) link = {received / std::max(many - few, many / 2), few / 2};
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
      speeds[dtype] = flops(dtype, ranks);
      tell(fmt::format("{:<29}{:10.1f} GFLOP/s", fmt::format("{} {}", what, to_string(dtype)), speeds[dtype] / 1e9));
    };
    measure("matmul", profile.flops_per_second, matmul_flops);
    measure("convolution", profile.convolution_flops_per_second, convolution_flops);
    measure("other operators", profile.vector_flops_per_second, vector_flops);
  }
  profile.memory_bytes_per_second = bytes_per_second(int64_t{400} << 20, ranks);
  tell(fmt::format("{:<29}{:10.1f} GB/s", "memory", profile.memory_bytes_per_second / 1e9));
  double slower = profile.memory_bytes_per_second;
  for (const int64_t bytes : {int64_t{64} << 20, int64_t{16} << 20, int64_t{4} << 20, int64_t{1} << 20}) {
    // What is larger is not faster, but by noise.
    slower = std::max(slower, bytes_per_second(bytes, ranks));
    profile.cached_bytes_per_second[bytes] = slower;
    tell(fmt::format("{:<29}{:10.1f} GB/s", fmt::format("up to {}", format_bytes(bytes)), slower / 1e9));
  }
  profile.kernel_overhead_seconds = kernel_overhead_seconds(ranks);
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
  profile.communication_load = communication_load({std::max(2, profile.ranks_per_host), threads});
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
