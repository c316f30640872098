// What choosing kernels by measuring brings to the convolutions of a ResNet-50 training step: for each distinct one the
// time of the usual kernel, oneDNN's first choice, and that of the chosen one, and their sums over the step.
//   kernel_choice_bench --image_size 32 --batch_size 128 --dtype bf16 --threads 2 [--all]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "benchmarks/protocol.h"
#include "tessera/engine.h"
#include "tessera/executor/kernel_measurement.h"
#include "tessera/tessera.h"

namespace tessera::benchmarks {
namespace {

struct Convolution {
  KernelRequest request;
  int count = 0;  // in a step
};

// By a short text that says which one it is.
std::map<std::string, Convolution> convolutions_of_step(int64_t image_size, int64_t batch_size, DType dtype,
                                                        int threads) {
  const auto network = nn::resnet50(10);
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
  const std::vector<session::InputSpec> inputs = {{"x", {DType::kF32, {batch_size, 3, image_size, image_size}}},
                                                  {"label", {DType::kI32, {batch_size}}}};
  const auto graph = session::trace_train_step(*network, &loss, optimizer, inputs, {.training = true});
  const auto compiled = compiler::compile(graph, mesh::Mesh({{"data", 1}}), {}, 0, ops::FakeKernelCatalogue(),
                                          compiler::CompileOptions());
  std::map<std::string, Convolution> found;
  for (const auto& step : compiled.schedule.steps) {
    if (!step.op.starts_with("conv2d")) continue;
    KernelRequest request{.op = step.op, .attributes = step.attributes, .num_threads = threads};
    const auto add = [&](const std::vector<int>& values, std::vector<TensorView>& views) {
      for (const int v : values) {
        const auto& value = compiled.schedule.values[static_cast<size_t>(v)];
        views.emplace_back(nullptr, dtype, value.type.shape, value.strides);
      }
    };
    add(step.inputs, request.inputs);
    add(step.outputs, request.outputs);
    const bool grad_weight = step.op == "conv2d_grad_weight";
    const Shape& first = request.inputs[0].shape;
    const Shape& second = request.inputs[1].shape;
    const Shape& weight = grad_weight ? request.outputs[0].shape : second;
    const Shape& image = grad_weight ? second : step.op == "conv2d" ? first : request.outputs[0].shape;
    const auto key = fmt::format("{:<18} {:>4} -> {:<4} {:>3}x{:<3} {}x{}/{}", step.op, weight[1], weight[0], image[2],
                                 image[3], weight[2], weight[3], step.attributes.get_ints("strides")[0]);
    auto& convolution = found[key];
    convolution.request = std::move(request);
    ++convolution.count;
  }
  return found;
}

struct Sums {
  double usual = 0, chosen = 0;  // milliseconds
};

int run(int argc, char** argv) {
  int64_t image_size = 32;
  int64_t batch_size = 128;
  int threads = 2;
  std::string dtype = "f32";
  bool all = false;
  CLI::App app("Usual and chosen kernels of the convolutions of a ResNet-50 step");
  app.add_option("--image_size", image_size)->check(CLI::Range(32, 1024));
  app.add_option("--batch_size", batch_size)->check(CLI::Range(1, 4096));
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024));
  app.add_option("--dtype", dtype, "f32, bf16 or f16");
  app.add_flag("--all", all, "every candidate's time");
  CLI11_PARSE(app, argc, argv);

  std::map<std::string, Sums> sums;
  executor::KernelTimer timer(Clock::system());
  const int64_t begin = Clock::system().monotonic_ns();
  for (const auto& [text, convolution] : convolutions_of_step(image_size, batch_size, parse_dtype(dtype), threads)) {
    const auto measured = timer.measure(kernels::cpu_kernels(), convolution.request);
    const auto time_of = [&](const std::string& name) {
      const auto is_it = [&](const executor::TimedKernel& kernel) { return kernel.name == name; };
      return std::find_if(measured.candidates.begin(), measured.candidates.end(), is_it)->microseconds / 1e3;
    };
    const double usual = measured.candidates[0].microseconds / 1e3;
    const double chosen = time_of(measured.chosen);
    fmt::print("{} x{}: usual {:8.3f} ms, chosen {:8.3f} ms, {}\n", text, convolution.count, usual, chosen,
               measured.chosen);
    if (all) {
      for (const auto& kernel : measured.candidates) {
        fmt::print("    {:8.3f} ms  {}\n", kernel.microseconds / 1e3, kernel.name);
      }
    }
    for (const auto& key : {convolution.request.op, std::string("sum")}) {
      sums[key].usual += usual * convolution.count;
      sums[key].chosen += chosen * convolution.count;
    }
  }
  fmt::print("measured in {:.1f} s\n", static_cast<double>(Clock::system().monotonic_ns() - begin) / 1e9);
  for (const auto& [op, sum] : sums) {
    fmt::print("{:<18} usual {:8.1f} ms, chosen {:8.1f} ms, {:.2f} times as fast\n", op, sum.usual, sum.chosen,
               sum.usual / sum.chosen);
  }
  return 0;
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::benchmarks::run); }
