// A step of a training that somebody looks on, for benchmarks/run observing: its timeline is recorded, or its logs are
// written, or neither. What callbacks take counts; what is written when a call of train() ends does not.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "benchmarks/measured_directory.h"
#include "benchmarks/protocol.h"
#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::benchmarks {
namespace {

constexpr int64_t kRecords = 2000;

// Times steps from begin to begin, but the first one.
class StepTimer : public train::Callback {
 public:
  explicit StepTimer(std::vector<int64_t>& begins_ns) : begins_ns_(begins_ns) {}
  void step_begin(train::RunContext& run) override {
    if (run.step > 0 && !std::isfinite(run.loss)) throw Error(fmt::format("the loss is {}", run.loss));
    begins_ns_.push_back(Clock::system().monotonic_ns());
  }

 private:
  std::vector<int64_t>& begins_ns_;
};

// Its steps are short: what looking on costs is seen best.
struct Perceptron : nn::Cell {
  nn::Dense& up = child<nn::Dense>("up", 3 * 32 * 32, 64);
  nn::Dense& down = child<nn::Dense>("down", 64, 10);
  using nn::Cell::construct;
  nn::Value construct(nn::Value x) override { return down(ops::relu(up(ops::reshape(x, {x.shape()[0], -1})))); }
};

std::unique_ptr<nn::Cell> make_network(bool is_large) {
  if (is_large) return nn::make_model("resnet50", 10);
  return std::make_unique<Perceptron>();
}

int run(int argc, char** argv) {
  std::string mode = "plain";
  std::string network_name = "mlp";
  int threads = 2;
  int warmup_steps = 10;
  CLI::App app("What looking on costs a training; see benchmarks/README.md");
  app.add_option("--mode", mode)->check(CLI::IsMember({"plain", "trace", "logs"}));
  app.add_option("--network", network_name)->check(CLI::IsMember({"resnet50", "mlp"}));
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024));
  app.add_option("--warmup_steps", warmup_steps)->check(CLI::Range(0, 1000));
  CLI11_PARSE(app, argc, argv);

  const MeasuredDirectory directory("observing");
  data::write_synthetic_cifar10(FileSystem::local(), directory.path(), {.train_records = kRecords, .test_records = 10});
  const bool is_large = network_name == "resnet50";
  const auto rows = data::cifar10(directory.path(), {.usage = "train", .seed = 1})
                        .map("label", {data::type_cast(DType::kI32)})
                        .map("image", {data::rescale(1 / 255.0, 0), data::hwc2chw()})
                        .batch(is_large ? 32 : 64, {.drop_remainder = true});
  const auto context = cluster::single_context(threads);
  const auto network = make_network(is_large);
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  nn::Momentum optimizer({.learning_rate = 0.001, .momentum = 0.9});
  train::Model model(*context, *network, &loss, &optimizer, {.seed = 1, .session = {.num_threads = threads}});
  std::vector<int64_t> begins_ns;
  const auto train = [&](int64_t num_epochs, int64_t num_steps) {
    begins_ns.clear();
    train::Callbacks callbacks{StepTimer(begins_ns)};
    if (mode == "trace") callbacks.emplace_back(train::Trace(join_path(directory.path(), "job.json")));
    if (mode == "logs") {
      callbacks.emplace_back(train::CsvLog(join_path(directory.path(), "log.csv")));
      callbacks.emplace_back(train::JsonLog(join_path(directory.path(), "log.jsonl")));
    }
    model.train(num_epochs, rows.take(num_steps), callbacks);
    return static_cast<double>(begins_ns.back() - begins_ns[1]) / 1000 / static_cast<double>(std::ssize(begins_ns) - 2);
  };
  const int64_t steps_of_epoch = rows.get_dataset_size();
  train(1, std::clamp<int64_t>(warmup_steps, 3, steps_of_epoch));
  // As many steps a round as take about two seconds.
  const double step_us = train(1, std::min<int64_t>(10, steps_of_epoch));
  const auto wanted = static_cast<int64_t>(kRoundSeconds * 1e6 / step_us);
  const int64_t steps = std::clamp<int64_t>(wanted, 5, steps_of_epoch);
  const int64_t epochs = std::max<int64_t>(1, wanted / steps);
  serve_rounds("us", fmt::format("{}, {} steps a round, {} threads", mode, epochs * steps, threads),
               [&] { return train(epochs, steps); });
  return 0;
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::benchmarks::run); }
