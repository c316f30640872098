#include "tessera/tools/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
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

// The fastest of some runs of a graph, on inputs that are zero.
double seconds_of(const ir::Graph& graph, int num_threads) {
  const auto context = cluster::single_context(num_threads);
  session::Session session(*context, {.fusions = compiler::Fusions::none()});
  const auto executable = session.compile_local(graph);
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run <= kRuns; ++run) {
    const double begin = now();
    executable->run();
    const double seconds = now() - begin;
    // The first run touches the memory; of what takes long it is near enough.
    if (run > 0 || seconds > kTooLong) best = std::min(best, seconds);
    if (seconds > kTooLong) break;
  }
  return best;
}

// Of a graph that does flops(size) operations, at the first size that takes long enough.
template <typename Graph>
double flops_per_second(int64_t size, int64_t largest, int num_threads, Graph make) {
  for (;; size *= 2) {
    const auto [graph, flops] = make(size);
    const double seconds = seconds_of(graph, num_threads);
    if (seconds >= kLongEnough || size >= largest) return flops / seconds;
  }
}

double matmul_flops(DType dtype, int num_threads) {
  return flops_per_second(128, 2048, num_threads, [&](int64_t size) {
    ir::Graph graph("product");
    const auto a = graph.add_input(ir::InputKind::kInput, "a", {dtype, {size, size}});
    const auto b = graph.add_input(ir::InputKind::kInput, "b", {dtype, {size, size}});
    graph.add_output("c", ops::matmul(a, b));
    const auto n = static_cast<double>(size);
    return std::pair(std::move(graph), 2 * n * n * n);
  });
}

// 3x3, as in the middle of a residual network; `rows` images.
double convolution_flops(DType dtype, int num_threads) {
  constexpr int64_t kChannels = 128;
  constexpr int64_t kSize = 28;
  return flops_per_second(1, 64, num_threads, [&](int64_t rows) {
    ir::Graph graph("convolution");
    const auto x = graph.add_input(ir::InputKind::kInput, "x", {dtype, {rows, kChannels, kSize, kSize}});
    const auto weight = graph.add_input(ir::InputKind::kInput, "weight", {dtype, {kChannels, kChannels, 3, 3}});
    graph.add_output("y", ops::conv2d(x, weight, {.pad_mode = ops::PadMode::kSame}));
    constexpr int64_t kPerImage = 2 * kSize * kSize * kChannels * kChannels * 9;
    return std::pair(std::move(graph), static_cast<double>(rows * kPerImage));
  });
}

double memory_bytes_per_second(int num_threads) {
  constexpr int64_t kSize = 1 << 25;  // beyond every cache
  ir::Graph graph("copy");
  const auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {kSize}});
  graph.add_output("y", ops::neg(x));
  return 2.0 * kSize * sizeof(float) / seconds_of(graph, num_threads);
}

double kernel_overhead_seconds(int num_threads) {
  constexpr int kSteps = 1000;
  ir::Graph graph("steps");
  auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {8}});
  for (int i = 0; i < kSteps; ++i) x = ops::neg(x);
  graph.add_output("y", x);
  return seconds_of(graph, num_threads) / kSteps;
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
  const auto result = cluster::run_threads(num_ranks, {.num_compute_threads = 1}, [&](cluster::Context& context) {
    std::vector<float> data(kCount);
    const double few = all_reduce_seconds(context.world(), data, 1);
    const double many = all_reduce_seconds(context.world(), data, kCount);
    if (context.rank() == 0) {
      const double received = 2.0 * (num_ranks - 1) / num_ranks * kCount * sizeof(float);
      // Noise must not make it infinitely fast.
      link = {received / std::max(many - few, many / 2), few / 2};
    }
    return 0;
  });
  for (const auto& error : result.errors) {
    if (error) std::rethrow_exception(error);
  }
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
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    profile.flops_per_second[dtype] = matmul_flops(dtype, threads);
    tell(fmt::format("matmul {:<22}{:10.1f} GFLOP/s", to_string(dtype), profile.flops_per_second[dtype] / 1e9));
    profile.convolution_flops_per_second[dtype] = convolution_flops(dtype, threads);
    tell(fmt::format("convolution {:<17}{:10.1f} GFLOP/s", to_string(dtype),
                     profile.convolution_flops_per_second[dtype] / 1e9));
  }
  profile.memory_bytes_per_second = memory_bytes_per_second(threads);
  tell(fmt::format("{:<29}{:10.1f} GB/s", "memory", profile.memory_bytes_per_second / 1e9));
  profile.kernel_overhead_seconds = kernel_overhead_seconds(threads);
  tell(fmt::format("{:<29}{:10.2f} us", "a kernel's overhead", profile.kernel_overhead_seconds * 1e6));
  for (int ranks = 2; ranks <= std::max(2, profile.ranks_per_host); ranks *= 2) {
    const auto link = link_among(ranks);
    if (ranks == 2) {
      profile.intra_host = link;
    } else {
      profile.intra_host_by_ranks[ranks] = link;
    }
    tell(fmt::format("{:<29}{:10.1f} GB/s, {:.1f} us", fmt::format("link among {} ranks", ranks),
                     link.bytes_per_second / 1e9, link.latency_seconds * 1e6));
  }
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
