#include "tessera/tools/calibrate.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <thread>

#include "tessera/tools/arguments/train_step.h"

namespace tessera::tools {
namespace {

// What takes so long is long enough to be measured.
constexpr double kLongEnough = 0.02;

// Other hosts cannot be measured from here.
constexpr compiler::Link kAssumedNetwork = {1.25e9, 50e-6};

double now() { return static_cast<double>(Clock::system().monotonic_ns()) / 1e9; }

// Is told of each figure.
class Teller {
 public:
  explicit Teller(const CalibrateOptions& options) : is_told_(options.progress) {}
  void operator()(const std::string& figure) const {
    if (is_told_) fmt::print(stderr, "{:6.1f} s  {}\n", now() - begin_, figure);
  }

 private:
  bool is_told_;
  double begin_ = now();
};

// How often others wanted the cores.
struct Disturbed {
  int num_measured = 0;
  int num_disturbed = 0;
};

// The ranks of this host, each a thread.
struct Ranks {
  int num_ranks = 1;
  int num_threads = 1;             // of each, for its work
  Disturbed* disturbed = nullptr;  // gets what they notice
};

// What rank 0 says of what all do at once.
template <typename Result>
Result on_all(const Ranks& ranks, FunctionRef<Result(session::RunTimer&)> run) {
  Result first;
  const auto result =
      cluster::run_threads(ranks.num_ranks, {.num_compute_threads = ranks.num_threads}, [&](cluster::Context& context) {
        session::RunTimer timer(context);
        auto own = run(timer);
        if (context.rank() > 0) return 0;
        first = std::move(own);
        if (ranks.disturbed != nullptr) {
          ranks.disturbed->num_measured += timer.num_measured();
          ranks.disturbed->num_disturbed += timer.num_disturbed();
        }
        return 0;
      });
  for (const auto& error : result.errors) {
    if (error) std::rethrow_exception(error);
  }
  return first;
}

double per_second(const Ranks& ranks, FunctionRef<session::Measured(session::RunTimer&)> measure) {
  return on_all<session::Measured>(ranks, measure).per_second();
}

// Operations a second, at the first size that takes long enough.
template <typename Measure>
double flops_per_second(const Ranks& ranks, int64_t size, int64_t largest, DType dtype, Measure measure) {
  for (;; size *= 2) {
    const auto measured =
        on_all<session::Measured>(ranks, [&](session::RunTimer& timer) { return measure(timer, dtype, size); });
    if (measured.seconds >= kLongEnough || size >= largest) return measured.per_second();
  }
}

// Between so many ranks of this host. Gradients do not lie in caches.
compiler::Link link_among(int num_ranks) {
  constexpr comm::SpeedOptions kOptions{.large_bytes = 16 << 20, .num_runs = 15};
  const auto speed = on_all<comm::GroupSpeed>({.num_ranks = num_ranks}, [&](session::RunTimer& timer) {
    return comm::measure_speed(timer.context().world(), kOptions);
  });
  return session::link_of(speed, num_ranks);
}

// What was measured of a device, in a line that begins with the file's name, and what was not.
std::string device_text(const CalibrateOptions& options, const compiler::MachineProfile& profile,
                        const std::string& file) {
  return fmt::format(
      "{}: {} of memory on each of {} a host. Links are {}: {} GB/s and {} us between devices, {} GB/s and {} us to "
      "other hosts; look at them before you use the file\n",
      file, format_bytes(profile.memory_bytes), plural(profile.ranks_per_host, "device"),
      options.links.empty() ? "assumed" : "those of " + options.links,
      shortest(profile.intra_host.bytes_per_second / 1e9), shortest(profile.intra_host.latency_seconds * 1e6),
      shortest(profile.inter_host.bytes_per_second / 1e9), shortest(profile.inter_host.latency_seconds * 1e6));
}

}  // namespace

compiler::MachineProfile measure_machine(const CalibrateOptions& options) {
  const Teller tell(options);
  const int threads = options.num_threads;
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  compiler::MachineProfile profile{
      .name = fmt::format("measured, ranks of {} thread{}", threads, threads == 1 ? "" : "s"),
      .ranks_per_host = std::max(1, cores / threads),
      .inter_host = kAssumedNetwork};
  profile.memory_bytes = memory_of_machine() / profile.ranks_per_host;
  Disturbed disturbed;
  const Ranks ranks{profile.ranks_per_host, threads, &disturbed};
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    const auto note = [&](const char* what, std::map<DType, double>& speeds, double flops) {
      speeds[dtype] = flops;
      tell(fmt::format("{:<29}{:10.1f} GFLOP/s", fmt::format("{} {}", what, to_string(dtype)), flops / 1e9));
    };
    note("matmul", profile.flops_per_second, flops_per_second(ranks, 128, 2048, dtype, session::measure_matmul));
    note("convolution", profile.convolution_flops_per_second,
         flops_per_second(ranks, 4, 64, dtype, session::measure_convolution));
    note("other operators", profile.vector_flops_per_second,
         per_second(ranks, [&](session::RunTimer& timer) { return session::measure_functions(timer, dtype); }));
  }
  constexpr int64_t kMemory = 400 << 20;  // beyond every cache
  constexpr std::array<int64_t, 4> kCaches = {64 << 20, 16 << 20, 4 << 20, 1 << 20};
  profile.memory_bytes_per_second =
      per_second(ranks, [](session::RunTimer& timer) { return session::measure_memory(timer, kMemory); });
  tell(fmt::format("{:<29}{:10.1f} GB/s", "memory", profile.memory_bytes_per_second / 1e9));
  profile.cached_bytes_per_second = on_all<std::map<int64_t, double>>(ranks, [&](session::RunTimer& timer) {
    return session::measure_caches(timer, profile.memory_bytes_per_second, kCaches);
  });
  for (const auto& [bytes, speed] : profile.cached_bytes_per_second) {
    tell(fmt::format("{:<29}{:10.1f} GB/s", fmt::format("up to {}", format_bytes(bytes)), speed / 1e9));
  }
  profile.kernel_overhead_seconds =
      1 / per_second(ranks, [](session::RunTimer& timer) { return session::measure_kernels(timer, 1000); });
  tell(fmt::format("{:<29}{:10.2f} us", "a kernel's overhead", profile.kernel_overhead_seconds * 1e6));
  constexpr std::array<int64_t, 5> kPieces = {4, 16, 64, 256, 1024};
  profile.copied_bytes_per_second = on_all<std::map<int64_t, double>>(
      ranks, [&](session::RunTimer& timer) { return session::measure_copies(timer, kPieces); });
  for (const auto& [bytes, speed] : profile.copied_bytes_per_second) {
    tell(fmt::format("{:<29}{:10.1f} GB/s", fmt::format("copies of {} at a time", format_bytes(bytes)), speed / 1e9));
  }
  profile.rearranged_bytes_per_second =
      per_second(ranks, [](session::RunTimer& timer) { return session::measure_rearranging(timer); });
  tell(fmt::format("{:<29}{:10.1f} GB/s", "images in another order", profile.rearranged_bytes_per_second / 1e9));
  profile.convolution_shares = on_all<compiler::ConvolutionShares>(ranks, [&](session::RunTimer& timer) {
    return session::measure_convolution_shares(timer, profile.convolution_flops_per_second.at(DType::kF32),
                                               profile.kernel_overhead_seconds,
                                               {.in_channels = {3, 8, 16, 32, 64, 128},
                                                .out_channels = {8, 16, 32, 64, 128},
                                                .pixels = {64, 256, 1024, 4096}});
  });
  for (const auto& [kind, shares] : profile.convolution_shares.by_kind) {
    const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
    tell(fmt::format("{:<29}{:10.2f} to {:.2f} of the speed", kind, *least, *most));
  }
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
  profile.communication_load =
      on_all<double>({std::max(2, profile.ranks_per_host), threads, &disturbed},
                     [](session::RunTimer& timer) { return session::measure_communication_load(timer); });
  tell(fmt::format("{:<29}{:10.2f}", "load by communication", profile.communication_load));
  profile.disturbed_share = static_cast<double>(disturbed.num_disturbed) / disturbed.num_measured;
  return profile;
}

bool is_of_device(const CalibrateOptions& options) { return !options.device.empty() && options.device != "cpu"; }

compiler::MachineProfile measure_device(const CalibrateOptions& options) {
  std::optional<compiler::MachineProfile> links;
  if (!options.links.empty()) links = compiler::read_machine(FileSystem::local(), options.links);
  const auto context = cluster::single_context(options.num_threads);
  const session::Session session(*context, {.device = options.device});
  const kernels::Backend& backend = *session.options().backend;
  // The name of a session's device is "cuda:" and its number.
  const std::string name = backend.device->name();
  const auto index = static_cast<int>(parse_int(name.substr(name.find(':') + 1), "the number of " + name));
  const auto gpus = cuda::cuda_devices();
  auto profile = session::measure_device(backend, {.tf32 = &cuda::cuda_tf32_backend(index), .tell = Teller(options)});
  profile.name = fmt::format("measured, {}", gpus.at(static_cast<size_t>(index)).name);
  profile.ranks_per_host = static_cast<int>(gpus.size());
  profile.memory_bytes = cuda::free_bytes(index);
  if (links) {
    profile.intra_host = links->intra_host;
    profile.intra_host_by_ranks = links->intra_host_by_ranks;
    profile.inter_host = links->inter_host;
    profile.communication_load = links->communication_load;
  } else {
    // Down to the host's memory and up again.
    profile.intra_host = {profile.host_link.bytes_per_second / 2, 2 * profile.host_link.latency_seconds};
    profile.inter_host = kAssumedNetwork;
  }
  return profile;
}

std::string busy_warning(const compiler::MachineProfile& profile, const std::string& file) {
  if (!is_of_busy_machine(profile)) return "";
  return fmt::format(
      "{}: the machine was busy: in {:.0f} % of the measurements other processes took the cores in every run, however "
      "often it was repeated. Times that follow from them are too long, and the order of plans may be wrong: calibrate "
      "again when the machine is quiet\n",
      file, 100 * profile.disturbed_share);
}

std::string calibrate_text(const CalibrateOptions& options) {
  const auto profile = is_of_device(options) ? measure_device(options) : measure_machine(options);
  const auto json = compiler::to_json(profile);
  if (options.out.empty()) {
    fmt::print(stderr, "{}", busy_warning(profile, profile.name));
    if (is_of_device(options)) fmt::print(stderr, "{}", device_text(options, profile, profile.name));
    return json;
  }
  FileSystem::local().write_atomically(options.out, json);
  if (is_of_device(options)) return device_text(options, profile, options.out);
  return fmt::format(
             "{}: {} of memory for each of {} ranks a host. The link to other hosts is assumed, {} GB/s and {} us: "
             "look at it "
             "before you use the file\n",
             options.out, format_bytes(profile.memory_bytes), profile.ranks_per_host,
             shortest(profile.inter_host.bytes_per_second / 1e9), shortest(profile.inter_host.latency_seconds * 1e6)) +
         busy_warning(profile, options.out);
}

}  // namespace tessera::tools
