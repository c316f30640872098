// A small training job for the tests of real processes: prints each loss with all its bits, and at the end a checksum
// of all parameters and states, so that two runs can be compared bit by bit.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <optional>

#include "tessera/base/clock.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/tessera.h"
#include "tessera/testing/devices/faulty_kernels.h"

namespace {

using namespace tessera;  // NOLINT

struct Options {
  std::string data_path;
  std::string network = "small";
  int64_t epochs = 1;
  int64_t steps = 10;
  int64_t batch_size = 16;
  double learning_rate = 0.05;
  std::string batch_norm = "global";
  bool reference = false;
  bool f64 = false;
  bool debug = false;
  bool sink = false;
  bool broadcast = false;
  uint64_t seed = 3;
  bool draws_seed = false;
  std::string checkpoint_dir;
  int64_t save_steps = 0;
  bool shards = false;
  bool slices = false;
  bool async_save = false;
  std::string resume;
  int kill_rank = -1;
  int64_t kill_step = 0;
  std::string kill_once;
  int kill_signal = SIGKILL;
  bool throws = false;
  bool hangs = false;
  bool says_begin = false;
  int slow_rank = -1;
  int64_t slow_ms = 0;
  int64_t anew_ms = 0;
  int64_t stop_after = 0;
  std::string stop_file;
  bool automatic = false;
  int stages = 0;
  std::vector<int> stage_ranks;
  int64_t micro_batches = 4;
  int64_t server_memory_limit = 0;
  std::string fault;
  int64_t fault_call = 0;
  int fault_rank = -1;
};

// Convolution, batch normalisation, dropout and a dense layer: everything that has state or draws random numbers.
struct SmallNet : nn::Cell {
  nn::Conv2d& conv = child<nn::Conv2d>("conv", 3, 8, nn::Conv2dOptions{.kernel = 3, .stride = 2});
  nn::BatchNorm2d& norm = child<nn::BatchNorm2d>("norm", 8);
  nn::Dropout& dropout = child<nn::Dropout>("dropout", 0.8);
  nn::Dense& fc = child<nn::Dense>("fc", 8 * 16 * 16, 10);
  using nn::Cell::construct;
  nn::Value construct(nn::Value x) override {
    x = ops::relu(norm(conv(x)));
    return fc(dropout(ops::reshape(x, {x.shape()[0], -1})));
  }
};

// 50 MiB of parameters, and as much of the optimizer's.
struct WideNet : nn::Cell {
  nn::Dense& up = child<nn::Dense>("up", 3 * 32 * 32, 4256);
  nn::Dense& down = child<nn::Dense>("down", 4256, 10);
  using nn::Cell::construct;
  nn::Value construct(nn::Value x) override { return down(ops::relu(up(ops::reshape(x, {x.shape()[0], -1})))); }
};

// Looks up a row for each of eight pixels of an image, long ones, which servers keep.
struct LookupNet : nn::Cell {
  static constexpr int64_t kRows = 64;
  static constexpr int64_t kPixels = 8;
  static constexpr int64_t kSize = 160;
  nn::Embedding& table = child<nn::Embedding>("table", kRows, kSize);
  nn::Dense& fc = child<nn::Dense>("fc", kSize, 10);
  using nn::Cell::construct;
  nn::Value construct(nn::Value x) override {
    const int64_t rows = x.shape()[0];
    const nn::Value pixels = ops::slice(ops::reshape(x, {rows, -1}), {0, 0}, {rows, kPixels});
    const nn::Value ids = ops::cast(ops::minimum(ops::abs(pixels) * 20, kRows - 1), DType::kI32);
    return fc(ops::reduce_mean(table(ids), {1}));
  }
};

std::unique_ptr<nn::Cell> make_network(const std::string& name) {
  if (name == "small") return std::make_unique<SmallNet>();
  if (name == "wide") return std::make_unique<WideNet>();
  if (name == "small_on_servers") {
    auto network = std::make_unique<SmallNet>();
    network->set_on_servers();
    return network;
  }
  if (name == "lookup_on_servers") {
    auto network = std::make_unique<LookupNet>();
    network->table.set_on_servers();
    return network;
  }
  if (name == "small_in_stages") {
    auto network = std::make_unique<SmallNet>();
    network->conv.set_stage(0);
    network->norm.set_stage(0);
    network->dropout.set_stage(1);
    network->fc.set_stage(1);
    return network;
  }
  if (name == "resnet50") return nn::resnet50(10, {.initial_values = nn::InitialValues::kUsual});
  return nn::make_model(name, 10);
}

// Prints on rank 0, kills this rank, or asks to stop, as told.
class Watch : public train::Callback {
 public:
  explicit Watch(const Options& options) : options_(options) {}
  void step_begin(train::RunContext& run) override {
    if (run.model.context().rank() == options_.kill_rank && run.step + 1 == options_.kill_step && is_to_be_killed()) {
      if (options_.throws) throw InvalidArgument("the step was told to fail");
      for (volatile bool goes_on = options_.hangs; goes_on;) {
      }
      ::kill(::getpid(), options_.kill_signal);
    }
    if (run.model.context().rank() == options_.slow_rank) Clock::system().sleep_ms(options_.slow_ms);
    if (options_.says_begin) say_begin(run);
  }
  void step_end(train::RunContext& run) override {
    if (run.model.context().rank() == 0) train::print_line(fmt::format("loss {} {:a}", run.step, run.loss));
    if (options_.stop_after > 0 && run.step >= options_.stop_after) run.request_stop();
    if (options_.stop_file.empty()) return;
    auto& context = run.model.context();
    int64_t stops = context.rank() == 0 && context.file_system().exists(options_.stop_file) ? 1 : 0;
    context.world().broadcast(&stops, 1, DType::kI64, 0, "whether to stop");
    if (stops != 0) run.request_stop();
  }

 private:
  // The batch that waits is taken then, and the first operator of the step follows.
  static void say_begin(const train::RunContext& run) {
    auto& context = run.model.context();
    const uint64_t generation = context.recovery() != nullptr ? context.recovery()->generation() : 1;
    train::print_line(fmt::format("begins {}: rank {} of {} in generation {}", run.step + 1, context.rank(),
                                  context.size(), generation));
  }
  // Once where a file is named, which says so to the process that is started again.
  bool is_to_be_killed() const {
    FileSystem& files = FileSystem::local();
    if (options_.kill_once.empty()) return true;
    if (files.exists(options_.kill_once)) return false;
    files.write_atomically(options_.kill_once, "killed");
    return true;
  }

  Options options_;
};

int run(cluster::Context& context, const Options& o) {
  std::optional<FaultyKernels> faulty;
  if (!o.fault.empty()) faulty.emplace(o.fault, context.rank() == o.fault_rank ? o.fault_call : 0);
  const DType dtype = o.f64 ? DType::kF64 : DType::kF32;
  auto dataset = data::cifar10(o.data_path, {.usage = "train", .seed = 1})
                     .map("label", {data::type_cast(DType::kI32)})
                     .map("image", {data::random_crop(32, {4, 4, 4, 4}), data::rescale(1 / 255.0, 0), data::hwc2chw(),
                                    data::type_cast(dtype)})
                     .batch(o.batch_size, {.drop_remainder = true});
  if (o.steps > 0) dataset = dataset.take(o.steps);
  const auto network = make_network(o.network);
  for (nn::Parameter* p : network->parameters()) p->type.dtype = dtype;
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  nn::Momentum optimizer({.learning_rate = o.learning_rate, .momentum = 0.9, .weight_decay = 1e-4});
  const bool is_pipeline = o.stages > 0 || !o.stage_ranks.empty();
  train::Model model(context, *network, &loss, &optimizer,
                     {.parallel_mode = o.automatic          ? train::ParallelMode::kAutomatic
                                       : is_pipeline        ? train::ParallelMode::kPipeline
                                       : context.size() > 1 ? train::ParallelMode::kDataParallel
                                                            : train::ParallelMode::kStandAlone,
                      .automatic = {.profile = o.automatic ? std::optional(compiler::example_profile()) : std::nullopt},
                      .pipeline = {.stages = o.stages,
                                   .ranks = o.stage_ranks,
                                   .micro_batches = is_pipeline ? o.micro_batches : 0,
                                   .schedule = "1f1b",
                                   .profile = compiler::example_profile()},
                      .server_memory_limit_bytes = o.server_memory_limit,
                      .parallel_optimizer = o.shards,
                      .parallel_optimizer_threshold = 0,
                      .parameter_broadcast = o.broadcast,
                      .batch_norm_statistics = o.batch_norm == "local" ? train::BatchNormStatistics::kLocal
                                                                       : train::BatchNormStatistics::kGlobal,
                      .seed = o.seed,
                      .session = {.reference_kernels = o.reference,
                                  .backend = faulty ? &faulty->backend() : nullptr,
                                  .debug = o.debug,
                                  .num_threads = 1}});
  const bool begins_anew = context.recovery() != nullptr && context.recovery()->generation() > 1;
  if (begins_anew) Clock::system().sleep_ms(o.anew_ms);
  model.build(dataset);
  if (!o.resume.empty()) model.load_checkpoint(o.resume);
  train::Callbacks callbacks{Watch(o)};
  if (!o.checkpoint_dir.empty()) {
    callbacks.emplace_back(train::ModelCheckpoint("job", o.checkpoint_dir,
                                                  {.save_checkpoint_steps = o.save_steps > 0 ? o.save_steps : 1000000,
                                                   .keep_checkpoint_max = 1,
                                                   .integrated_save = !o.slices,
                                                   .async_save = o.async_save}));
  }
  model.train(o.epochs, dataset, callbacks, {.dataset_sink_mode = o.sink, .num_workers = 1});
  uint32_t crc = 0;
  for (const auto& name : model.names()) crc = crc32c(model.value(name).bytes(), crc);
  train::print_line(fmt::format("rank {} crc {:08x} after step {}", context.rank(), crc, model.step()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("A training job for tests.");
  app.add_option("--data_path", o.data_path)->required();
  app.add_option("--network", o.network);
  app.add_option("--epochs", o.epochs);
  app.add_option("--steps", o.steps);
  app.add_option("--batch_size", o.batch_size);
  app.add_option("--learning_rate", o.learning_rate);
  app.add_option("--batch_norm", o.batch_norm);
  app.add_flag("--reference", o.reference);
  app.add_flag("--f64", o.f64);
  app.add_flag("--debug", o.debug);
  app.add_flag("--sink", o.sink);
  app.add_flag("--broadcast", o.broadcast);
  app.add_option("--seed", o.seed);
  app.add_flag("--draws_seed", o.draws_seed);  // as a script may that is another each time
  app.add_option("--checkpoint_dir", o.checkpoint_dir);
  app.add_option("--save_steps", o.save_steps);
  app.add_flag("--shards", o.shards);
  app.add_flag("--slices", o.slices);
  app.add_flag("--async_save", o.async_save);
  app.add_option("--resume", o.resume);
  app.add_option("--kill_rank", o.kill_rank);
  app.add_option("--kill_step", o.kill_step);
  app.add_option("--kill_once", o.kill_once);
  app.add_option("--kill_signal", o.kill_signal);
  app.add_flag("--throws", o.throws);          // instead of being killed
  app.add_flag("--hangs", o.hangs);            // for ever, instead of being killed
  app.add_flag("--says_begin", o.says_begin);  // of each step, on every rank
  app.add_option("--slow_rank", o.slow_rank);
  app.add_option("--slow_ms", o.slow_ms);  // in each step
  app.add_option("--anew_ms", o.anew_ms);  // before it trains, where it has begun anew
  app.add_option("--stop_after", o.stop_after);
  app.add_option("--stop_file", o.stop_file);  // once there is one
  app.add_flag("--automatic", o.automatic);    // by a profile that is always the same
  app.add_option("--stages", o.stages);
  app.add_option("--stage_ranks", o.stage_ranks)->delimiter(',');
  app.add_option("--micro_batches", o.micro_batches);
  app.add_option("--server_memory_limit", o.server_memory_limit);
  app.add_option("--fault", o.fault);  // this operator's kernels are plain loops, of which one is wrong once:
  app.add_option("--fault_call", o.fault_call);
  app.add_option("--fault_rank", o.fault_rank);
  CLI11_PARSE(app, argc, argv);
  if (o.draws_seed) o.seed = static_cast<uint64_t>(getpid());
  if (o.draws_seed) train::print_line(fmt::format("seed {}", o.seed));
  return cluster::run(argc, argv, [&](cluster::Context& context) { return run(context, o); });
}
