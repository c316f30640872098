// ResNet-50 steps of several processes of one thread each, for benchmarks/run ranks: data parallel, or each for itself.
// And of ranks that are threads with a slow link between them, to see what of the communication computing hides.
#include <CLI/CLI.hpp>
#include <cmath>

#include "benchmarks/protocol.h"
#include "benchmarks/rank_processes.h"
#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::benchmarks {
namespace {

struct Options {
  int num_ranks = 2;
  int64_t batch_size = 64;  // of each rank
  std::string mode = "parallel";
  bool local_statistics = false;
  double gigabytes_per_second = 1;
};

// A rank's model and its rows of the batch.
class Training {
 public:
  Training(cluster::Context& context, const Options& options)
      : rows_(options.batch_size * context.size()),
        images_(DType::kF32, {options.batch_size, 3, 32, 32}),
        labels_(DType::kI32, {options.batch_size}),
        network_(nn::resnet50(10, {.initial_values = nn::InitialValues::kUsual})),
        loss_({.sparse = true, .reduction = "mean"}),
        optimizer_({.learning_rate = 0.01, .momentum = 0.9}) {
    const auto pixels = images_.values<float>();
    for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(random_normal({.seed = 1}, i));
    const auto labels = labels_.values<int32_t>();
    for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i % 10);
    train::ModelOptions model{.session = {.num_threads = 1, .overlap = options.mode != "without overlap"}};
    if (context.size() > 1) model.parallel_mode = train::ParallelMode::kDataParallel;
    if (options.local_statistics) model.batch_norm_statistics = train::BatchNormStatistics::kLocal;
    model_ = std::make_unique<train::Model>(context, *network_, &loss_, &optimizer_, model);
  }

  double seconds_of_step() {
    const int64_t begin = Clock::system().monotonic_ns();
    const double loss = model_->train_step({images_.view(), labels_.view()}, rows_);
    if (!std::isfinite(loss)) throw Error(fmt::format("the loss is {}", loss));
    return static_cast<double>(Clock::system().monotonic_ns() - begin) / 1e9;
  }
  double seconds_of_steps(int count) {
    double sum = 0;
    for (int i = 0; i < count; ++i) sum += seconds_of_step();
    return sum / count;
  }

 private:
  int64_t rows_;
  Tensor images_;
  Tensor labels_;
  std::unique_ptr<nn::Cell> network_;
  nn::SoftmaxCrossEntropyWithLogits loss_;
  nn::Momentum optimizer_;
  std::unique_ptr<train::Model> model_;
};

constexpr int kWarmupSteps = 3;

// How many steps all ranks take in a round, when the slowest rank's takes so long.
int steps_of_round(double seconds) { return static_cast<int>(std::ceil(kRoundSeconds / seconds)); }

// The ranks' common steps, or in mode "alone" steps of their own at the same time. images/s of all ranks together.
void serve_process(const Options& options, int rank) {
  const auto job = cluster::join_job(job_of_processes(rank, options.num_ranks));
  const auto single = cluster::single_context(1);
  Training training(options.mode == "alone" ? *single : *job, options);
  // Rank 0 brings 1 for a round, 0 at the end. Who waits sleeps.
  const auto largest = [&](double value) {
    job->world().all_reduce(&value, 1, DType::kF64, comm::ReduceOp::kMax, "largest");
    return value;
  };
  training.seconds_of_steps(kWarmupSteps);
  const int steps = steps_of_round(largest(training.seconds_of_step()));
  // The first step after an idle spell is not counted.
  const auto round = [&] {
    training.seconds_of_step();
    return largest(training.seconds_of_steps(steps));
  };
  if (rank > 0) {
    while (largest(0) > 0) round();
  } else {
    serve_rounds("images/s", fmt::format("{}, a thread each", options.mode), [&] {
      largest(1);
      return static_cast<double>(options.batch_size * options.num_ranks) / round();
    });
    largest(0);
  }
  job->finish();
}

// Seconds of a step of ranks that are threads, over a link that is as slow as asked for.
void serve_threads(const Options& options) {
  const double rate = options.mode == "instant link" ? 0 : options.gigabytes_per_second;
  const auto result = cluster::run_threads(
      options.num_ranks,
      {.timeout_ms = 3'600'000,
       .link = {.latency_us = rate > 0 ? 20.0 : 0.0, .gigabytes_per_second = rate},
       .num_compute_threads = 1},
      [&](cluster::Context& context) {
        Training training(context, options);
        const auto largest = [&](double value) {
          context.world().all_reduce(&value, 1, DType::kF64, comm::ReduceOp::kMax, "largest");
          return value;
        };
        training.seconds_of_steps(kWarmupSteps);
        const int steps = steps_of_round(largest(training.seconds_of_step()));
        const auto round = [&] {
          training.seconds_of_step();
          return largest(training.seconds_of_steps(steps));
        };
        if (context.rank() > 0) {
          while (largest(0) > 0) round();
          return 0;
        }
        serve_rounds("s", fmt::format("{}, {} GB/s", options.mode, options.gigabytes_per_second), [&] {
          largest(1);
          return round();
        });
        largest(0);
        return 0;
      });
  for (const auto& error : result.errors) {
    if (error) std::rethrow_exception(error);
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("ResNet-50 on several ranks; see benchmarks/README.md");
  app.add_option("--ranks", options.num_ranks)->check(CLI::Range(2, 64));
  app.add_option("--batch_size", options.batch_size)->check(CLI::Range(1, 4096));
  app.add_option("--mode", options.mode)
      ->check(CLI::IsMember({"parallel", "alone", "overlap", "without overlap", "instant link"}));
  app.add_option("--link", options.gigabytes_per_second, "GB/s of the modes that have a slow link")
      ->check(CLI::Range(0.001, 1000.0));
  app.add_flag("--local_statistics", options.local_statistics, "batch normalisation over each rank's own rows");
  CLI11_PARSE(app, argc, argv);
  if (options.mode == "parallel" || options.mode == "alone") {
    return run_processes(options.num_ranks, [&](int rank) { serve_process(options, rank); });
  }
  serve_threads(options);
  return 0;
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::benchmarks::run); }
