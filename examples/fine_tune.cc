// Fine-tuning: a network that was trained elsewhere learns another task from few samples. Its parameters come in a file
// of safetensors under the names of another framework; the head is a new one; the first layer stays as it is, and the
// others have learning rates of their own:
//     fine_tune                        makes pretrained.safetensors by itself, and compares with a start from nothing
//     tessera run -n 2 fine_tune       the same on two ranks
#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace {

using namespace tessera;  // NOLINT: an example reads better without prefixes

constexpr int64_t kFeatures = 16;

struct Backbone : nn::Cell {
  nn::Dense& up = child<nn::Dense>("up", kFeatures, 64, nn::DenseOptions{.weight_init = "he_uniform"});
  nn::Dense& down = child<nn::Dense>("down", 64, 32, nn::DenseOptions{.weight_init = "he_uniform"});
  using nn::Cell::construct;
  nn::Value construct(nn::Value x) override { return ops::relu(down(ops::relu(up(x)))); }
};

struct Classifier : nn::Cell {
  explicit Classifier(int64_t classes) : head(child<nn::Dense>("head", 32, classes)) {}
  Backbone& backbone = child<Backbone>("backbone");
  nn::Dense& head;
  using nn::Cell::construct;
  nn::Value construct(nn::Value x) override { return head(backbone(x)); }
};

// What the file calls the layers of the backbone.
constexpr std::pair<const char*, const char*> kLayers[] = {{"encoder.0", "backbone.up"},
                                                           {"encoder.2", "backbone.down"}};

// Three directions cut the space into eight parts: the classes of the first task. The second one asks, of fewer
// samples, whether a row lies on the same side of two of them.
data::Dataset rows(int64_t size, uint64_t seed, bool second_task) {
  const auto write = [=](int64_t index, std::span<const TensorView> outputs) {
    double sums[3] = {0, 0, 0};
    for (int64_t f = 0; f < kFeatures; ++f) {
      const double x = random_normal({.seed = seed, .stream = static_cast<uint64_t>(index)}, static_cast<uint64_t>(f));
      outputs[0].as<float>()[f] = static_cast<float>(x);
      for (uint64_t s = 0; s < 3; ++s) sums[s] += x * random_normal({.seed = 1, .stream = s}, static_cast<uint64_t>(f));
    }
    const int all_sides = (sums[0] > 0) + 2 * (sums[1] > 0) + 4 * (sums[2] > 0);
    *outputs[1].as<int32_t>() = second_task ? (sums[0] > 0) == (sums[1] > 0) : all_sides;
  };
  return data::generator({{"x", {DType::kF32, {kFeatures}}}, {"label", {DType::kI32, {}}}}, size, write,
                         {.shuffle = true, .seed = seed})
      .batch(32);
}

train::ModelOptions options() {
  return {.parallel_mode = train::ParallelMode::kDataParallel, .seed = 1, .metrics = {train::make_metric("accuracy")}};
}

// Learns the first task, and writes its parameters as another framework would name them.
void pretrain(cluster::Context& context, const std::string& path) {
  Classifier network(8);
  nn::CrossEntropy loss;
  nn::Adam optimizer({.learning_rate = 3e-3});
  train::Model model(context, network, &loss, &optimizer, options());
  model.train(8, rows(4096, 2, false), {train::EpochSummary()});
  std::vector<checkpoint::Entry> entries;
  const auto add = [&](const std::string& there, const std::string& here) {
    for (const auto* name : {".weight", ".bias"}) entries.emplace_back(there + name, model.value(here + name));
  };
  for (const auto& [there, here] : kLayers) add(there, here);
  add("classifier", "head");
  if (context.rank() == 0) checkpoint::save_safetensors(context.file_system(), path, entries);
}

// The accuracy on the second task, learned from 64 samples; `path`: what it begins with, "": nothing.
double fine_tune(cluster::Context& context, const std::string& path) {
  Classifier network(2);
  nn::CrossEntropy loss;
  if (!path.empty()) nn::freeze(network, "backbone.up");
  nn::Adam optimizer({.learning_rate = 1e-2,  // of the head, which no pattern matches
                      .groups = nn::group_parameters(network, {{"backbone.down", path.empty() ? 1e-2 : 1e-3}})});
  train::Model model(context, network, &loss, &optimizer, options());
  if (!path.empty()) {
    const auto rename = [](const std::string& name) -> std::string {
      const auto dot = name.rfind('.');
      for (const auto& [there, here] : kLayers) {
        if (name.substr(0, dot) == there) return here + name.substr(dot);
      }
      return "";
    };
    // Not strict: the file has no head of two classes. That it has both layers is asked for.
    const auto report =
        model.load_parameters(path, {.strict = false, .rename = rename, .renamed = {"encoder.0", "encoder.2"}});
    if (context.rank() == 0) {
      train::print_line(fmt::format("loaded {}; new {}; left out {}", fmt::join(report.loaded, " "),
                                    fmt::join(report.missing, " "), fmt::join(report.left_out, " ")));
    }
  }
  model.train(30, rows(64, 3, true));
  return model.eval(rows(1024, 4, true)).at("accuracy");
}

void run(cluster::Context& context, std::string pretrained) {
  if (pretrained.empty()) pretrain(context, pretrained = "pretrained.safetensors");
  // A model loads checkpoints: rank 0 makes one of the file, the others wait for it.
  const std::string path = "pretrained.ckpt";
  if (context.rank() == 0) checkpoint::import_safetensors(context.file_system(), pretrained, path);
  context.world().barrier("pretrained");
  const double tuned = fine_tune(context, path);
  const double fresh = fine_tune(context, "");
  if (context.rank() == 0) train::print_line(fmt::format("accuracy {:.3f}, from nothing {:.3f}", tuned, fresh));
}

}  // namespace

int main(int argc, char** argv) {
  std::string pretrained;
  CLI::App app("Fine-tunes a network whose parameters come in a file of safetensors.");
  app.add_option("--pretrained", pretrained, "file with encoder.0 and encoder.2, else one is made");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return code_after_output(app.exit(error));  // --help
    return cluster::usage_error(argv[0], error.what());
  }
  return cluster::run(argc, argv, [&](cluster::Context& context) { run(context, pretrained); });
}
