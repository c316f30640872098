// Our Transformer training step for benchmarks/run transformer: one rank, AdamW, the same batch again and again.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>

#include "benchmarks/device.h"
#include "benchmarks/protocol.h"
#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::benchmarks {
namespace {

// Token numbers, drawn evenly.
Tensor tokens(const Shape& shape, int64_t vocabulary, uint64_t seed) {
  Tensor tensor(DType::kI32, shape);
  const auto values = tensor.values<int32_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<int32_t>(random_below({.seed = seed}, i, vocabulary));
  }
  return tensor;
}

int run(int argc, char** argv) {
  int64_t batch_size = 32;
  int64_t num_tokens = 64;
  int64_t vocabulary = 20000;
  double dropout = 0.1;
  std::string precision = "float32";
  int threads = 2;
  int warmup_steps = 2;
  int profiled_steps = 0;
  CLI::App app("A Transformer training step; see benchmarks/README.md");
  app.add_option("--batch_size", batch_size)->check(CLI::Range(1, 4096));
  app.add_option("--tokens", num_tokens)->check(CLI::Range(1, 65536));
  app.add_option("--vocabulary", vocabulary)->check(CLI::Range(1, 1 << 24));
  app.add_option("--dropout", dropout)->check(CLI::Range(0.0, 0.99));
  app.add_option("--precision", precision)->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024));
  app.add_option("--warmup_steps", warmup_steps)->check(CLI::Range(0, 1000));
  std::string device;
  app.add_option("--device", device, "cpu, cuda:0, ...; dry: no device, kernels are compiled and nothing is computed");
  double round_seconds = kRoundSeconds;
  app.add_option("--round_seconds", round_seconds, "what the steps of a round take at least")
      ->check(CLI::Range(0.01, 60.0));
  app.add_option("--profile", profiled_steps, "instead: that many steps, then the time of each kernel in them")
      ->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);

  const Tensor source = tokens({batch_size, num_tokens}, vocabulary, 1);
  const Tensor target = tokens({batch_size, num_tokens}, vocabulary, 2);
  const Tensor labels = tokens({batch_size, num_tokens}, vocabulary, 3);

  const auto context = cluster::single_context(threads);
  nn::TranslatorOptions options{
      .source_vocabulary = vocabulary, .target_vocabulary = vocabulary, .max_length = num_tokens};
  options.transformer.attention_dropout_rate = dropout;
  options.transformer.hidden_dropout_rate = dropout;
  const auto network = nn::translator(options);
  nn::CrossEntropyLoss loss;
  nn::AdamW optimizer({.learning_rate = 1e-4});
  train::ModelOptions model_options{.session = {.num_threads = threads}};
  if (precision == "bfloat16") model_options.precision = DType::kBF16;
  use_device(device, model_options.session);
  train::Model model(*context, *network, &loss, &optimizer, model_options);
  const std::vector<TensorView> batch{source.view(), target.view(), labels.view()};
  // The loss is looked at, and the step therefore waited for, as the peer's is.
  const auto step = [&] {
    const int64_t begin = Clock::system().monotonic_ns();
    const double value = model.train_step(batch, batch_size);
    if (!std::isfinite(value)) throw Error(fmt::format("the loss is {}", value));
    return static_cast<double>(Clock::system().monotonic_ns() - begin) / 1e9;
  };
  for (int i = 0; i < warmup_steps; ++i) step();
  if (profiled_steps > 0) {
    model.enable_profiling();
    for (int i = 0; i < profiled_steps; ++i) step();
    fmt::print("{}", executor::profile_table(model.train_executable()->executor(), profiled_steps,
                                             executor::ProfileRows::kNodes));
    print_kernel_times(model.train_executable()->executor(), profiled_steps);
    return 0;
  }
  serve_rounds(
      "tokens/s", fmt::format("{} threads", threads),
      [&] { return static_cast<double>(batch_size * num_tokens) / seconds_of_step_in_round(step, round_seconds); },
      bytes_of(model));
  return 0;
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::benchmarks::run); }
