// A language model of bytes: a small decoder of Transformer layers reads the pages of docs/, learns which byte comes
// next, is saved, and writes a text of its own. On any number of ranks, with equal losses:
//     language_model                                                            one rank
//     tessera run -n 2 language_model                                           each has a part of every batch
//     tessera run -n 2 language_model --parallel_mode auto_parallel             split as a search finds it best
//     language_model --epochs 0 --prompt "A checkpoint"                         no training: the saved one writes again
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace {

using namespace tessera;  // NOLINT: an example reads better without prefixes

constexpr int64_t kBytes = 256;  // that there are: the vocabulary
constexpr int64_t kLength = 64;  // of the window that the network sees
constexpr nn::GptOptions kNetwork{
    .vocabulary = kBytes, .max_length = kLength, .hidden_size = 96, .num_layers = 2, .num_heads = 4};

struct Options {
  std::string text = "docs";
  std::string checkpoint = "language_model.ckpt";
  std::string parallel_mode = "data_parallel";
  int64_t epochs = 3;
  int64_t samples = 4096;
  int64_t written = 200;
  std::string prompt = "Every rank";
};

std::string read_pages(FileSystem& files, const std::string& folder) {
  std::string text;
  for (const auto& name : files.list(folder)) {
    if (name.ends_with(".md")) text += files.read_text(join_path(folder, name));
  }
  if (std::ssize(text) > kLength) return text;
  throw InvalidArgument("{} has no text in files *.md; name a folder that has by --text", folder);
}

// Sample i is a window somewhere in the text, and the same a byte later: what the network is to say at each place.
data::Dataset windows(const std::string& text, int64_t samples) {
  const auto write = [text](int64_t index, std::span<const TensorView> outputs) {
    const double where = random_uniform({.seed = 7}, static_cast<uint64_t>(index));  // 0 to 1
    const auto begin = static_cast<size_t>(where * static_cast<double>(text.size() - kLength));
    for (size_t t = 0; t < kLength; ++t) {
      outputs[0].as<int32_t>()[t] = static_cast<unsigned char>(text[begin + t]);
      outputs[1].as<int32_t>()[t] = static_cast<unsigned char>(text[begin + t + 1]);
    }
  };
  const Type window{DType::kI32, {kLength}};
  return data::generator({{"bytes", window}, {"next", window}}, samples, write).batch(32);
}

// The network gives logits f32[n*t,256]; the labels are i32[n,t].
struct NextByteLoss : nn::Loss {
  using nn::Cell::construct;
  nn::Value construct(nn::Value logits, nn::Value next) override {
    return ops::reduce_mean(ops::softmax_cross_entropy(logits, ops::reshape(next, {-1})));
  }
};

void train_model(cluster::Context& context, const Options& o) {
  const std::string text = read_pages(context.file_system(), o.text);
  const auto network = nn::gpt(kNetwork);
  NextByteLoss loss;
  nn::AdamW optimizer({.learning_rate = 2e-3});
  train::Model model(context, *network, &loss, &optimizer,
                     {.parallel_mode = train::parse_parallel_mode(o.parallel_mode), .seed = 1});
  if (context.rank() == 0) train::print_line(fmt::format("{} bytes of {}", text.size(), o.text));
  model.train(o.epochs, windows(text, o.samples), {train::ProgressBar(), train::EpochSummary({.row_name = "windows"})});
  model.save_checkpoint(o.checkpoint);
}

// Draws byte number `index` by the probabilities that logits [256] say, likely ones more often than these.
char draw(std::span<const float> logits, int64_t index) {
  constexpr double kTemperature = 0.6;
  double sum = 0;
  std::vector<double> sums;
  for (const float logit : logits) sums.push_back(sum += std::exp(logit / kTemperature));
  const double drawn = random_uniform({.seed = 3}, static_cast<uint64_t>(index)) * sum;
  return static_cast<char>(std::upper_bound(sums.begin(), sums.end() - 1, drawn) - sums.begin());
}

// Each rank writes the same text by itself, with the parameters of the file; rank 0 shows its own.
void write_text(cluster::Context& context, const Options& o) {
  const auto network = nn::gpt(kNetwork);
  train::Model model(context, *network, nullptr, nullptr, {.parallel_mode = train::ParallelMode::kStandAlone});
  model.load_parameters(o.checkpoint);
  std::string text = "\n" + o.prompt;
  for (int64_t i = 0; i < o.written; ++i) {
    // The last bytes, and zeros behind them, which they do not see.
    const auto seen = std::min<int64_t>(std::ssize(text), kLength);
    Tensor window = Tensor::zeros({DType::kI32, {1, kLength}});
    const auto last = std::as_bytes(std::span(text)).last(static_cast<size_t>(seen));
    std::transform(last.begin(), last.end(), window.values<int32_t>().begin(), std::to_integer<int32_t>);
    const Tensor logits = model.predict({window});  // f32[64,256]
    text += draw(logits.values<float>().subspan(static_cast<size_t>((seen - 1) * kBytes), kBytes), i);
  }
  if (context.rank() == 0) train::print_line(fmt::format("{} writes:\n{}", o.checkpoint, printable(text.substr(1))));
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Trains a small language model on the text of a folder, saves it, and has it write.");
  app.add_option("--text", o.text, "folder whose pages *.md are read");
  app.add_option("--checkpoint", o.checkpoint, "file that is saved, and then written from");
  app.add_option("--parallel_mode", o.parallel_mode, "how ranks share the training, data_parallel or auto_parallel");
  app.add_option("--epochs", o.epochs, "times through the windows; 0: no training")->check(CLI::NonNegativeNumber);
  app.add_option("--samples", o.samples, "windows of an epoch")->check(CLI::PositiveNumber);
  app.add_option("--written", o.written, "bytes to write")->check(CLI::NonNegativeNumber);
  app.add_option("--prompt", o.prompt, "what the text begins with");
  for (CLI::Option* option : app.get_options()) option->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return code_after_output(app.exit(error));  // --help
    return cluster::usage_error(argv[0], error.what());
  }
  return cluster::run(argc, argv, [&](cluster::Context& context) {
    if (o.epochs > 0) train_model(context, o);
    write_text(context, o);
  });
}
