// What training feels of its checkpoints of 1 GiB of parameters and moments: how long a step takes while a thread saves
// them, how fast the call is that begins such a save, one that is waited for, and taking up training from what was
// saved.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "benchmarks/measured_directory.h"
#include "benchmarks/protocol.h"
#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::benchmarks {
namespace {

constexpr int64_t kFeatures = 4096;
constexpr int64_t kBatch = 64;
constexpr int kSteps = 5;  // of a round without a save

// Square products in a row: 64 MiB of parameters each, and as much of moments.
class Products : public nn::Cell {
 public:
  explicit Products(int count) {
    for (int i = 0; i < count; ++i) {
      children_.push_back(
          &child<nn::Dense>(fmt::format("layer{}", i), kFeatures, kFeatures, nn::DenseOptions{.has_bias = false}));
    }
  }
  using Cell::construct;
  ir::Value construct(ir::Value x) override {
    for (auto* layer : children_) x = (*layer)(x);
    return x;
  }

 private:
  std::vector<nn::Dense*> children_;
};

double now_s() { return static_cast<double>(Clock::system().monotonic_ns()) * 1e-9; }

class Training {
 public:
  Training(cluster::Context& context, int num_layers, const session::SessionOptions& options)
      : network_(num_layers),
        model_(context, network_, &loss_, &optimizer_, {.session = options}),
        images_(DType::kF32, {kBatch, kFeatures}),
        labels_(DType::kI32, {kBatch}) {
    const auto values = images_.values<float>();
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random_normal({.seed = 1}, i));
    const auto labels = labels_.values<int32_t>();
    for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i);
  }

  double seconds_of_step() {
    const double begin = now_s();
    const double loss = model_.train_step({images_.view(), labels_.view()}, kBatch);
    if (!std::isfinite(loss)) throw Error(fmt::format("the loss is {}", loss));
    return now_s() - begin;
  }
  double median_step() {
    std::vector<double> steps;
    for (int i = 0; i < kSteps; ++i) steps.push_back(seconds_of_step());
    std::nth_element(steps.begin(), steps.begin() + kSteps / 2, steps.end());
    return steps[kSteps / 2];
  }

  struct Save {
    double call = 0;            // until save_checkpoint returns
    std::vector<double> steps;  // until the save is done, the call counted with the first
  };
  Save save(const std::string& path) {
    std::atomic<bool> done = false;
    Save save;
    const double begin = now_s();
    model_.save_checkpoint(path, {.async = true, .after_commit = [&] { done = true; }});
    save.call = now_s() - begin;
    save.steps.push_back(save.call + seconds_of_step());
    while (!done) save.steps.push_back(seconds_of_step());
    model_.finish_saves();
    return save;
  }
  double save_at_once(const std::string& path) {
    const double begin = now_s();
    model_.save_checkpoint(path);
    return now_s() - begin;
  }
  // As ModelCheckpoint does when training begins.
  void reserve(const std::string& path) { model_.reserve_snapshot(path, {.async = true}); }
  // Seconds of copying all values to where copies were before.
  double copy() {
    if (copies_.empty()) {
      for (const auto& name : model_.names()) copies_.push_back(model_.value(name));
    }
    const double begin = now_s();
    for (size_t i = 0; i < copies_.size(); ++i)
      copy_elements(*model_.session().values().in_place(model_.names()[i]), copies_[i].view());
    return now_s() - begin;
  }
  double load(const std::string& path) {
    const double begin = now_s();
    model_.load_checkpoint(path);
    return now_s() - begin;
  }
  int64_t num_bytes() {
    int64_t bytes = 0;
    for (const auto& name : model_.names()) bytes += model_.session().values().type(name).size_bytes();
    return bytes;
  }

 private:
  Products network_;
  nn::SoftmaxCrossEntropyWithLogits loss_{{.sparse = true, .reduction = "mean"}};
  nn::Momentum optimizer_{{.learning_rate = 1e-4, .momentum = 0.9}};
  train::Model model_;
  Tensor images_;
  Tensor labels_;
  std::vector<Tensor> copies_;
};

int run(int argc, char** argv) {
  int threads = 2;
  int layers = 8;
  bool cold = false;
  std::string what = "longest";
  std::string device;
  std::string prefix = "build/training_save";
  CLI::App app("What training feels of its checkpoints; see benchmarks/README.md");
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024));
  app.add_option("--layers", layers, "of 128 MiB each")->check(CLI::Range(1, 1024));
  app.add_option(
         "--what", what,
         "s: the longest and the mean step while a save goes on, a step without one; GB/s: the call that begins "
         "a save, copying the values (on the CPU), a save that is waited for, loading them")
      ->check(CLI::IsMember({"longest", "mean", "step", "call", "copy", "save", "load"}));
  app.add_option("--device", device, "cpu, cuda:0, ...");
  app.add_flag("--cold", cold, "load from the disk, not from the page cache");
  app.add_option("--directory", prefix, "for the files, on the disk that is measured");
  CLI11_PARSE(app, argc, argv);

  if (what == "copy" && !device.empty() && device != "cpu") {
    throw InvalidArgument("--what copy copies on the CPU; leave out --device {}", device);
  }
  const session::SessionOptions options{.device = device, .num_threads = threads};
  const auto context = cluster::single_context(threads);
  Training training(*context, layers, options);
  training.median_step();
  const benchmarks::MeasuredDirectory directory(prefix);
  const auto path = directory.path() + "/net.ckpt";
  training.reserve(path);
  if (what == "load") {
    training.save_at_once(path);
    directory.fetch();
  }
  if (what == "copy") training.copy();
  const auto gigabytes = static_cast<double>(training.num_bytes()) * 1e-9;
  const auto measure = [&] {
    if (what == "step") return training.median_step();
    if (what == "copy") return gigabytes / training.copy();
    if (what == "load") {
      Training fresh(*context, layers, options);  // as a job that is started again
      if (cold) directory.forget();
      return gigabytes / fresh.load(path);
    }
    if (what == "save") {
      const double seconds = training.save_at_once(path);
      directory.clear();
      return gigabytes / seconds;
    }
    const auto save = training.save(path);
    directory.clear();
    if (what == "call") return gigabytes / save.call;
    if (what == "longest") return *std::max_element(save.steps.begin(), save.steps.end());
    double sum = 0;
    for (const double step : save.steps) sum += step;
    return sum / static_cast<double>(save.steps.size());
  };
  serve_rounds(what == "step" || what == "longest" || what == "mean" ? "s" : "GB/s",
               fmt::format("{} MiB, {} threads", training.num_bytes() >> 20, threads), measure);
  return 0;
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::benchmarks::run); }
