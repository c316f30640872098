#include "tessera/tools/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <thread>

namespace tessera::tools {
namespace {

// What takes so long is long enough to be measured.
constexpr double kLongEnough = 0.02;

double now() { return static_cast<double>(Clock::system().monotonic_ns()) / 1e9; }

// Operations a second, at the first size that takes long enough.
double flops_per_second(int64_t size, int64_t largest, FunctionRef<session::Measured(int64_t)> measure) {
  for (;; size *= 2) {
    const auto measured = measure(size);
    if (measured.seconds >= kLongEnough || size >= largest) return measured.per_second();
  }
}

// Between so many ranks of this host. Gradients do not lie in caches.
compiler::Link link_among(int num_ranks) {
  constexpr comm::SpeedOptions kOptions{.large_bytes = 16 << 20, .num_runs = 15};
  compiler::Link link;
  const auto result = cluster::run_threads(num_ranks, {.num_compute_threads = 1}, [&](cluster::Context& context) {
    const auto speed = comm::measure_speed(context.world(), kOptions);
    if (context.rank() == 0) link = session::link_of(speed, num_ranks);
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
  const auto context = cluster::single_context(threads);
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  compiler::MachineProfile profile{
      .name = fmt::format("measured, ranks of {} thread{}", threads, threads == 1 ? "" : "s"),
      .ranks_per_host = std::max(1, cores / threads),
      .inter_host = {1.25e9, 50e-6}};
  profile.memory_bytes = memory_of_machine() / profile.ranks_per_host;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    profile.flops_per_second[dtype] =
        flops_per_second(128, 2048, [&](int64_t size) { return session::measure_matmul(*context, dtype, size); });
    tell(fmt::format("matmul {:<22}{:10.1f} GFLOP/s", to_string(dtype), profile.flops_per_second[dtype] / 1e9));
    profile.convolution_flops_per_second[dtype] =
        flops_per_second(1, 64, [&](int64_t images) { return session::measure_convolution(*context, dtype, images); });
    tell(fmt::format("convolution {:<17}{:10.1f} GFLOP/s", to_string(dtype),
                     profile.convolution_flops_per_second[dtype] / 1e9));
  }
  profile.memory_bytes_per_second = session::measure_memory(*context, 1 << 25).per_second();  // beyond every cache
  tell(fmt::format("{:<29}{:10.1f} GB/s", "memory", profile.memory_bytes_per_second / 1e9));
  const auto kernels = session::measure_kernels(*context, 1000);
  profile.kernel_overhead_seconds = kernels.seconds / kernels.amount;
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
