// A data set of your own: a class that says what a sample is and reads sample i. All else is there for it: each rank
// reads its rows of a batch and no others, the order is drawn anew in each epoch, and a training that has stopped in
// the middle of an epoch goes on with the sample that would have come next:
//     custom_data_set                          one rank
//     tessera run -n 2 custom_data_set         the same losses; each rank reads half of the samples
#include <CLI/CLI.hpp>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace {

using namespace tessera;  // NOLINT: an example reads better without prefixes

constexpr int64_t kHours = 24;
constexpr size_t kBytes = sizeof(float);

// A file of readings, one float for each hour. Sample i are the readings of a day from hour i on, and the next one.
class Readings : public data::Source {
 public:
  Readings(FileSystem& files, const std::string& path) : file_(files.open(path)) {
    size_ = static_cast<int64_t>(file_->bytes().size() / kBytes) - kHours;  // the file is mapped: nothing is read here
    if (size_ < 1) throw InvalidArgument("{} must have readings of more than a day", path);
  }
  const std::vector<data::Column>& columns() const override { return columns_; }
  int64_t size() const override { return size_; }
  // Several threads call it at once, for any samples in any order.
  void read(const data::SampleRef& sample, std::span<const TensorView> outputs) const override {
    const auto* from = file_->bytes().data() + sample.index * static_cast<int64_t>(kBytes);
    std::memcpy(outputs[0].data, from, kHours * kBytes);
    std::memcpy(outputs[1].data, from + kHours * kBytes, kBytes);
    ++num_reads_;
  }
  // A checkpoint keeps it beside the place in the data: another data set is refused there.
  std::string to_string() const override { return fmt::format("readings of {} days", size_ / kHours); }
  int64_t num_reads() const { return num_reads_; }

 private:
  std::unique_ptr<ReadableFile> file_;
  int64_t size_ = 0;
  std::vector<data::Column> columns_ = {{"day", {DType::kF32, {kHours}}}, {"next", {DType::kF32, {1}}}};
  mutable std::atomic<int64_t> num_reads_ = 0;
};

// Warm days and cold nights, warmer and colder weeks, and chance.
void write_readings(FileSystem& files, const std::string& path) {
  std::vector<float> readings;
  for (int hour = 0; hour < 2072; ++hour) {
    const double chance = 0.1 * random_normal({.seed = 1}, static_cast<uint64_t>(hour));
    readings.push_back(static_cast<float>(std::sin(hour * 0.2618) + 0.5 * std::sin(hour * 0.0374) + chance));
  }
  const auto bytes = std::as_bytes(std::span(readings));
  files.write_atomically(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

struct Forecast : nn::Cell {
  nn::Dense& hidden = child<nn::Dense>("hidden", kHours, 32, nn::DenseOptions{.weight_init = "he_uniform"});
  nn::Dense& output = child<nn::Dense>("output", 32, 1);
  using nn::Cell::construct;
  nn::Value construct(nn::Value day) override { return output(ops::relu(hidden(day))); }
};

// Ends the training after a step, as a machine that is taken away would; keeps the latest loss.
struct StopAfter : train::Callback {
  int64_t step = -1;  // that is the last one; -1: none is
  double loss = 0;
  void step_end(train::RunContext& run) override {
    loss = run.loss;
    if (run.step == step) run.request_stop();
  }
};

// Trains until step `last`, -1: to the end; from a checkpoint, "": from the beginning. Returns the last loss.
double train_model(cluster::Context& context, const data::Dataset& dataset, int64_t last, const std::string& from,
                   train::Callbacks callbacks) {
  Forecast network;
  nn::MSELoss loss;
  nn::Adam optimizer({.learning_rate = 3e-3});
  train::Model model(context, network, &loss, &optimizer,
                     {.parallel_mode = train::ParallelMode::kDataParallel, .seed = 1});
  if (!from.empty()) model.load_checkpoint(from);
  if (context.rank() == 0) train::print_line(fmt::format("training from {}", model.position().to_string()));
  const auto stop = std::make_shared<StopAfter>();
  stop->step = last;
  callbacks.emplace_back(stop);
  model.train(4, dataset, callbacks);
  return stop->loss;
}

void run(cluster::Context& context, const std::string& folder) {
  const auto path = join_path(folder, "readings.bin");
  if (context.rank() == 0) {
    context.file_system().create_directories(folder);
    write_readings(context.file_system(), path);
  }
  context.world().barrier("readings");
  const auto readings = std::make_shared<Readings>(context.file_system(), path);
  const auto dataset = data::Dataset(readings, {.shuffle = true, .seed = 1}).batch(64);
  const double whole = train_model(context, dataset, -1, "", {train::EpochSummary({.row_name = "days"})});
  train::print_line(fmt::format("rank {} has read {} samples", context.rank(), readings->num_reads()));
  // Once more, in two parts: the first one ends in the middle of the second epoch, and saves where it ends.
  const auto saver = std::make_shared<train::ModelCheckpoint>(
      "forecast", folder, checkpoint::CheckpointConfig{.save_checkpoint_steps = 10, .keep_checkpoint_max = 2});
  train_model(context, dataset, dataset.get_dataset_size() + 15, "", {saver});
  const double resumed = train_model(context, dataset, -1, saver->latest(), {});
  if (context.rank() == 0) train::print_line(fmt::format("last loss {:.6f}; with a stop {:.6f}", whole, resumed));
  if (whole != resumed) throw Error("the training that was resumed has another loss");
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder = "custom_data_set";
  CLI::App app("Trains on a data set that this program defines, stops in the middle of an epoch, and goes on.");
  app.add_option("--folder", folder, "where the readings and the checkpoints are written")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return code_after_output(app.exit(error));  // --help
    return cluster::usage_error(argv[0], error.what());
  }
  return cluster::run(argc, argv, [&](cluster::Context& context) { run(context, folder); });
}
