// Our ResNet-50 training step for benchmarks/run resnet50 and startup: one rank, momentum, the same batch again and
// again.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cmath>
#include <thread>

#include "benchmarks/device.h"
#include "benchmarks/protocol.h"
#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::benchmarks {
namespace {

// Threads that each keep a core busy as long as they live.
class BusyCores {
 public:
  explicit BusyCores(int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this] {
        while (!ends_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~BusyCores() {
    ends_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  BusyCores(const BusyCores&) = delete;
  BusyCores& operator=(const BusyCores&) = delete;

 private:
  std::atomic<bool> ends_ = false;
  std::vector<std::thread> threads_;
};

// One more step on the batch that is in place.
double run_again(train::Model& model) {
  executor::Executor& executor = model.train_executable()->executor();
  executor.run();
  return Tensor::copy_of(executor.output("loss")).item();
}

int run(int argc, char** argv) {
  int64_t image_size = 224;
  int64_t batch_size = 32;
  int threads = 2;
  int warmup_steps = 3;
  std::string precision = "float32";
  std::string memory_limit;
  CLI::App app("A ResNet-50 training step; see benchmarks/README.md");
  app.add_option("--image_size", image_size)->check(CLI::Range(32, 1024));
  app.add_option("--batch_size", batch_size)->check(CLI::Range(1, 4096));
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024));
  app.add_option("--warmup_steps", warmup_steps)->check(CLI::Range(0, 1000));
  std::string kernels = "fixed";
  app.add_option("--kernels", kernels)->check(CLI::IsMember({"fixed", "measured"}));
  app.add_option("--precision", precision)->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  int busy_cores = 0;
  app.add_option("--busy_cores", busy_cores, "threads of somebody else that compute during a round")
      ->check(CLI::Range(0, 1024));
  std::string device;
  app.add_option("--device", device, "cpu, cuda:0, ...; dry: no device, kernels are compiled and nothing is computed");
  bool fed_once = false;
  app.add_flag("--fed_once", fed_once,
               "the batch is written before the first steps only, as a peer's that stays on its device");
  double round_seconds = kRoundSeconds;
  app.add_option("--round_seconds", round_seconds, "what the steps of a round take at least")
      ->check(CLI::Range(0.01, 60.0));
  int profiled_steps = 0;
  app.add_option("--profile", profiled_steps, "instead: that many steps, then the time of each kernel in them")
      ->check(CLI::Range(1, 1000));
  app.add_option("--memory_limit", memory_limit, "of the arena, as 2GiB; what does not fit is recomputed");
  CLI11_PARSE(app, argc, argv);

  Tensor images(DType::kF32, {batch_size, 3, image_size, image_size});
  Tensor labels(DType::kI32, {batch_size});
  const auto pixels = images.values<float>();
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(random_normal({.seed = 1}, i));
  for (int64_t i = 0; i < batch_size; ++i)
    labels.values<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i % 10);

  const auto context = cluster::single_context(threads);
  const auto network = nn::resnet50(10, {.initial_values = nn::InitialValues::kUsual});
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  nn::Momentum optimizer({.learning_rate = 0.01, .momentum = 0.9});
  const int64_t limit = memory_limit.empty() ? 0 : parse_bytes(memory_limit, "--memory_limit");
  train::ModelOptions model_options{
      .precision = parse_dtype(precision),
      .session = {.num_threads = threads,
                  .kernel_choice = session::parse_kernel_choice(kernels),
                  .kernel_cache = kernels == "measured" ? cluster::cache_directory_from_environment() : std::string(),
                  .memory_limit_bytes = limit}};
  use_device(device, model_options.session);
  train::Model model(*context, *network, &loss, &optimizer, model_options);
  const std::vector<TensorView> batch{images.view(), labels.view()};
  bool is_fed = false;
  // The loss is looked at, and the step therefore waited for, as the peer's is.
  const auto step = [&] {
    const int64_t begin = Clock::system().monotonic_ns();
    const double value = is_fed ? run_again(model) : model.train_step(batch, batch_size);
    if (!std::isfinite(value)) throw Error(fmt::format("the loss is {}", value));
    return static_cast<double>(Clock::system().monotonic_ns() - begin) / 1e9;
  };
  for (int i = 0; i < warmup_steps; ++i) step();
  is_fed = fed_once;
  if (profiled_steps > 0) {
    model.enable_profiling();
    for (int i = 0; i < profiled_steps; ++i) step();
    fmt::print("{}", executor::profile_table(model.train_executable()->executor(), profiled_steps,
                                             executor::ProfileRows::kNodes));
    print_kernel_times(model.train_executable()->executor(), profiled_steps);
    return 0;
  }
  const auto about = fmt::format("{} threads, arena {}", threads, format_bytes(model.session().arena_bytes()));
  serve_rounds(
      "images/s", about,
      [&] {
        const BusyCores busy(busy_cores);
        return static_cast<double>(batch_size) / seconds_of_step_in_round(step, round_seconds);
      },
      bytes_of(model));
  return 0;
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::benchmarks::run); }
