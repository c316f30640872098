// ResNet-50 on CIFAR-10, the tutorials' job, on as many ranks as it is started with:
//   resnet50_cifar10 --data_path cifar-10-batches-bin                        one rank
//   tessera run -n 4 resnet50_cifar10 --data_path ...                        four processes
//   tessera run --threads 4 resnet50_cifar10 --data_path ...                 four threads of one process
//   mpirun -n 4 resnet50_cifar10 --data_path ...                             four of MPI's
// The batch size is that of the global batch: the losses do not depend on the number of ranks.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace {

using namespace tessera;  // NOLINT: an example reads better without prefixes

struct Options {
  std::string data_path;
  std::string make_data;
  int64_t train_records = 2000;
  int64_t test_records = 500;
  int64_t epochs = 5;
  int64_t batch_size = 64;
  int64_t image_size = 32;
  int64_t steps = 0;
  double learning_rate = 0.02;
  double momentum = 0.9;
  double weight_decay = 1e-4;
  double batch_norm_momentum = 0.9;
  std::string initial_values = "usual";
  std::string loss = "expand";
  std::string parallel_mode;
  std::string plan_save_file;
  std::string plan_load_file;
  std::string strategy_ckpt_save_file;
  std::string strategy_ckpt_load_file;
  bool parallel_optimizer = false;
  std::string batch_norm = "global";
  std::string precision;
  std::string amp_level = "O0";
  double loss_scale = 0;
  bool parameter_broadcast = false;
  bool dataset_sink_mode = false;
  int64_t sink_size = -1;
  bool augment = true;
  int64_t print_loss = 0;
  bool print_time = false;
  bool progress = true;
  std::string log_format = "text";
  std::string log_dir;
  uint64_t seed = 1;
  int num_workers = 1;
  int num_threads = 0;
  std::string device;
  std::string kernels = "measured";
  std::string kernel_cache = cluster::cache_directory_from_environment();
  bool debug = false;
  std::string memory_limit;
  std::string checkpoint_dir;
  std::string prefix = "resnet50";
  int64_t save_checkpoint_steps = 0;
  int64_t keep_checkpoint_max = 5;
  std::string resume;
  std::string evaluate;
  double min_accuracy = 0;
  std::string save_graph;
  bool profile = false;
};

// What a number must be.
const CLI::Range kCount(int64_t{1}, int64_t{1} << 30);
const CLI::Range kCountOrNone(int64_t{0}, int64_t{1} << 30);
const CLI::Range kShare(0.0, 1.0);

// What does not fit is a command line that is wrong: exit code 2, before anything is begun. An option that has no
// effect without another one asks for that one.
void add_options(CLI::App& app, Options& o) {
  app.add_option("--data_path", o.data_path, "folder with CIFAR-10's binary files (data_batch_*.bin, test_batch.bin)");
  auto* make_data = app.add_option("--make_data", o.make_data,
                                   "write a small made-up data set in that form into this folder, and end");
  app.add_option("--train_records", o.train_records, "images of --make_data to train on")
      ->check(kCount)
      ->needs(make_data)
      ->capture_default_str();
  app.add_option("--test_records", o.test_records, "images of --make_data that are held out")
      ->check(kCountOrNone)
      ->needs(make_data)
      ->capture_default_str();
  app.add_option("--epochs", o.epochs, "times through the training images")->check(kCount)->capture_default_str();
  app.add_option("--batch_size", o.batch_size, "images per step, over all ranks")->check(kCount)->capture_default_str();
  app.add_option("--image_size", o.image_size, "side that images are resized to; the tutorials use 224")
      ->check(kCount)
      ->capture_default_str();
  app.add_option("--steps", o.steps, "steps per epoch at most; 0: all")->check(kCountOrNone)->capture_default_str();
  app.add_option(
         "--learning_rate", o.learning_rate,
         "peak of the learning rate's schedule (warm-up, then cosine); with --initial_values reference a fixed rate")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--momentum", o.momentum, "how much of its last update a parameter keeps (optimizer Momentum)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--weight_decay", o.weight_decay, "factor of the L2 penalty on weights; beta and gamma have none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--batch_norm_momentum", o.batch_norm_momentum,
                 "how much of their old value the moving statistics keep")
      ->check(kShare)
      ->capture_default_str();
  app.add_option("--initial_values", o.initial_values,
                 "usual; or reference: those of the tutorials, which make the first loss ln 10")
      ->check(CLI::IsMember({"usual", "reference"}))
      ->capture_default_str();
  app.add_option("--loss", o.loss, "expand: made of small operators, as in the tutorials; fused: one operator")
      ->check(CLI::IsMember({"expand", "fused"}))
      ->capture_default_str();
  app.add_option("--parallel_mode", o.parallel_mode,
                 "stand_alone, data_parallel, semi_auto_parallel or auto_parallel; default: by the number of ranks")
      ->check(CLI::IsMember({"stand_alone", "data_parallel", "semi_auto_parallel", "auto_parallel"}));
  app.add_option("--plan_save_file", o.plan_save_file, "write the plan that auto_parallel has found into this file");
  app.add_option("--plan_load_file", o.plan_load_file, "take the plan of this file in place of a search");
  app.add_option("--strategy_ckpt_save_file", o.strategy_ckpt_save_file,
                 "write how semi_auto_parallel splits operators and parameters into this file");
  app.add_option("--strategy_ckpt_load_file", o.strategy_ckpt_load_file, "split them as this file says");
  app.add_flag("--parallel_optimizer", o.parallel_optimizer, "ranks share the optimizer's states and work");
  app.add_option("--batch_norm", o.batch_norm,
                 "global: a rank normalises with the statistics of the global batch; local: with those of its own rows")
      ->check(CLI::IsMember({"global", "local"}))
      ->capture_default_str();
  auto* precision =
      app.add_option(
             "--precision", o.precision,
             "what the network computes in: float32 (the default), bfloat16, or float16 with a dynamic loss scale")
          ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  app.add_option("--amp_level", o.amp_level, "instead of --precision: O0, O2, O3 or auto, as the tutorials have it")
      ->check(CLI::IsMember({"O0", "O2", "O3", "auto"}))
      ->excludes(precision)
      ->capture_default_str();
  app.add_option("--loss_scale", o.loss_scale, "a fixed loss scale instead of a dynamic one")
      ->check(CLI::PositiveNumber);
  app.add_flag("--parameter_broadcast", o.parameter_broadcast, "start all ranks from rank 0's values");
  auto* sinks = app.add_flag("--dataset_sink_mode,!--no_dataset_sink_mode", o.dataset_sink_mode,
                             "callbacks once per --sink_size steps");
  app.add_option("--sink_size", o.sink_size, "steps of a sink loop; -1: an epoch")
      ->check([](const std::string& text) { return text == "-1" ? std::string() : kCount(text); })
      ->needs(sinks)
      ->capture_default_str();
  app.add_flag("--augment,!--no_augment", o.augment, "random crops and flips (on by default)");
  app.add_option("--print_loss", o.print_loss, "print a line `epoch: 1 step: N, loss is ...` every so many steps")
      ->check(kCountOrNone);
  app.add_flag("--print_time", o.print_time, "print the time of an epoch and of its steps");
  app.add_flag("--progress,!--no_progress", o.progress,
               "progress bar on rank 0 (on by default); a line for each epoch is always printed");
  app.add_option("--log_format", o.log_format, "text; or json: each line on standard output is a JSON object")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--log_dir", o.log_dir,
                 "write the training there while it goes on: log.csv, log.jsonl and an event file for TensorBoard");
  app.add_option("--seed", o.seed, "seed of the initial values, the order of the images and their augmentation")
      ->capture_default_str();
  app.add_option("--num_workers", o.num_workers, "threads per rank that prepare batches")
      ->check(kCount)
      ->capture_default_str();
  app.add_option("--device", o.device,
                 "cpu, or a GPU: cuda:0, cuda:1, ..., or cuda, the one with this rank's number on its host")
      ->type_name("TEXT");
  app.add_option("--num_threads", o.num_threads, "compute threads per rank; 0: cores / ranks")->check(kCountOrNone);
  app.add_option(
         "--kernels", o.kernels,
         "measured: of several ways to compute a convolution or matmul the fastest here, found at the first start; or "
         "fixed")
      ->check(CLI::IsMember({"fixed", "measured"}))
      ->capture_default_str();
  app.add_option("--kernel_cache", o.kernel_cache, "where measured kernels are remembered; empty: nowhere")
      ->capture_default_str();
  app.add_option(
         "--memory_limit", o.memory_limit,
         "the most that a rank's arena may take, as 2GiB: what does not fit is computed again for its gradients")
      ->check([](const std::string& text) {
        try {
          parse_bytes(text, "the value");
          return std::string();
        } catch (const InvalidArgument& error) {
          return std::string(error.what());
        }
      });
  app.add_flag("--debug", o.debug, "every value in memory of its own, nothing fused");
  auto* directory = app.add_option("--checkpoint_dir", o.checkpoint_dir, "save checkpoints here");
  app.add_option("--prefix", o.prefix, "what the names of checkpoints begin with")
      ->needs(directory)
      ->capture_default_str();
  app.add_option("--save_checkpoint_steps", o.save_checkpoint_steps, "steps between checkpoints; 0: one per epoch")
      ->check(kCountOrNone)
      ->needs(directory);
  app.add_option("--keep_checkpoint_max", o.keep_checkpoint_max, "older ones are removed")
      ->check(kCount)
      ->needs(directory)
      ->capture_default_str();
  app.add_option("--resume", o.resume,
                 "checkpoint to go on from, or `newest`: the newest whole one of --checkpoint_dir");
  app.add_option("--evaluate", o.evaluate, "only evaluate this checkpoint on the test images");
  app.add_option("--min_accuracy", o.min_accuracy,
                 "fail when the accuracy on the test images, after training or of --evaluate, is below this")
      ->check(kShare);
  app.add_option("--save_graph", o.save_graph, "write the training step's logical graph as text, and end");
  app.add_flag("--profile", o.profile, "print memory and the time of each kernel at the end");
}

// The most memory that this process has had resident so far, in bytes.
int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

data::Dataset images(const Options& o, const std::string& usage, bool augment) {
  const bool training = usage == "train";
  std::vector<data::Transform> transforms;
  if (augment) {
    transforms.push_back(data::random_crop(32, {4, 4, 4, 4}));
    transforms.push_back(data::random_horizontal_flip());
  }
  if (o.image_size != 32) transforms.push_back(data::resize(o.image_size));
  transforms.push_back(data::rescale(1.0 / 255.0, 0.0));
  transforms.push_back(data::normalize({0.4465, 0.4822, 0.4914}, {0.2010, 0.1994, 0.2023}));
  transforms.push_back(data::hwc2chw());
  auto dataset = data::cifar10(o.data_path, {.usage = usage, .shuffle = training, .seed = o.seed})
                     .map("label", {data::type_cast(DType::kI32)})
                     .map("image", transforms)
                     .batch(o.batch_size, {.drop_remainder = training});
  return training && o.steps > 0 ? dataset.take(o.steps) : dataset;
}

void require_accuracy(double accuracy, double least) {
  if (accuracy < least)
    throw Error(fmt::format("accuracy {:.4f} is below the {:.4f} that was asked for", accuracy, least));
}

// Prints lines as --log_format says: JSON on rank 0 only.
train::PrintLine printer(cluster::Context& context, const Options& o) {
  if (o.log_format == "text") return train::print_line;
  return [&context](const std::string& line) {
    if (context.rank() == 0) train::print_line(train::json_message(context.clock().wall_ms(), line));
  };
}

train::Callbacks callbacks(cluster::Context& context, const Options& o, int64_t steps_per_epoch) {
  train::Callbacks list;
  const auto print = printer(context, o);
  const bool is_json = o.log_format == "json";
  if (o.print_loss > 0) list.emplace_back(train::LossMonitor(o.print_loss, print));
  if (o.print_time) list.emplace_back(train::TimeMonitor(0, print));
  if (o.progress || is_json) {
    list.emplace_back(train::ProgressBar({.rows_per_step = o.batch_size,
                                          .row_name = "images",
                                          .steps = o.progress,
                                          .format = train::parse_log_format(o.log_format)}));
  }
  if (!is_json) list.emplace_back(train::EpochSummary({.row_name = "images"}));
  if (!o.log_dir.empty()) {
    list.emplace_back(train::CsvLog(join_path(o.log_dir, "log.csv")));
    list.emplace_back(train::JsonLog(join_path(o.log_dir, "log.jsonl")));
    list.emplace_back(
        train::TensorBoard(o.log_dir, {.hyper_parameters = {{"batch_size", static_cast<double>(o.batch_size)},
                                                            {"learning_rate", o.learning_rate},
                                                            {"momentum", o.momentum},
                                                            {"weight_decay", o.weight_decay}}}));
  }
  if (!o.checkpoint_dir.empty()) {
    checkpoint::CheckpointConfig config{
        .save_checkpoint_steps = o.save_checkpoint_steps > 0 ? o.save_checkpoint_steps : steps_per_epoch,
        .keep_checkpoint_max = o.keep_checkpoint_max};
    list.emplace_back(train::ModelCheckpoint(o.prefix, o.checkpoint_dir, config));
  }
  return list;
}

std::unique_ptr<nn::Loss> loss_of(const Options& o) {
  if (o.loss == "expand") {
    return std::make_unique<nn::SoftmaxCrossEntropyExpand>(nn::SoftmaxCrossEntropyExpandOptions{.sparse = true});
  }
  return std::make_unique<nn::SoftmaxCrossEntropyWithLogits>(
      nn::SoftmaxCrossEntropyWithLogitsOptions{.sparse = true, .reduction = "mean"});
}

// The tutorials' rate is fixed; the usual initial values want a warm-up.
nn::LearningRate learning_rate(const Options& o, int64_t steps_per_epoch) {
  if (o.initial_values != "usual") return o.learning_rate;
  const int64_t total_steps = o.epochs * steps_per_epoch;
  return nn::with_warmup(nn::cosine_decay_lr({.max_lr = o.learning_rate,
                                              .total_steps = total_steps,
                                              .steps_per_epoch = steps_per_epoch,
                                              .decay_epochs = o.epochs}),
                         std::max<int64_t>(total_steps / 10, 1));
}

train::ModelOptions model_options(const Options& o, const std::string& mode) {
  const bool measures = o.kernels == "measured" && !o.debug;
  train::ModelOptions options{
      .parallel_mode = train::parse_parallel_mode(mode),
      .strategy_ckpt_save_file = o.strategy_ckpt_save_file,
      .strategy_ckpt_load_file = o.strategy_ckpt_load_file,
      .automatic = {.load_file = o.plan_load_file, .save_file = o.plan_save_file},
      .parallel_optimizer = o.parallel_optimizer,
      .parameter_broadcast = o.parameter_broadcast,
      .batch_norm_statistics =
          o.batch_norm == "global" ? train::BatchNormStatistics::kGlobal : train::BatchNormStatistics::kLocal,
      .precision = o.precision.empty() ? std::nullopt : std::optional(parse_dtype(o.precision)),
      .amp_level = o.amp_level,
      .seed = o.seed,
      .session = {.device = o.device,
                  .debug = o.debug,
                  .num_threads = o.num_threads,
                  .kernel_choice = measures ? session::KernelChoice::kMeasured : session::KernelChoice::kFixed,
                  .kernel_cache = measures ? o.kernel_cache : std::string()},
      .metrics = {train::accuracy(), train::mean_loss()}};
  if (o.loss_scale > 0) options.loss_scale = nn::fixed_loss_scale(o.loss_scale);
  if (!o.memory_limit.empty()) options.session.memory_limit_bytes = parse_bytes(o.memory_limit, "--memory_limit");
  return options;
}

using Say = std::function<void(const std::string&)>;

void evaluate(train::Model& model, const data::Dataset& dataset, const Options& o, const Say& say) {
  model.load_parameters(o.evaluate);
  const auto results = model.eval(dataset, {.num_workers = o.num_workers});
  say(fmt::format("{}: accuracy {:.4f}, loss {:.4f}{}", o.evaluate, results.at("accuracy"), results.at("loss"),
                  o.min_accuracy > 0 ? fmt::format(" (accuracy must be at least {:.2f})", o.min_accuracy) : ""));
  require_accuracy(results.at("accuracy"), o.min_accuracy);
}

void save_graph(cluster::Context& context, train::Model& model, const data::Dataset& dataset, const Options& o) {
  std::vector<session::InputSpec> inputs;
  for (const auto& column : dataset.columns()) inputs.push_back({column.name, column.type});
  if (context.rank() == 0) {
    context.file_system().write_atomically(o.save_graph, ir::print(model.trace_train(inputs)));
  }
}

void resume(cluster::Context& context, train::Model& model, const Options& o, const Say& say) {
  auto path = o.resume;
  if (path == "newest") {
    const auto choice = checkpoint::find_newest(context.file_system(), o.checkpoint_dir, o.prefix);
    choice.require_usable();
    for (const auto& skip : choice.skipped) say("passed over " + skip.reason);
    if (!choice.found()) throw InvalidArgument("--resume newest: no checkpoint in \"{}\"", o.checkpoint_dir);
    path = choice.path;
  }
  const auto info = model.load_checkpoint(path);
  say(fmt::format("going on from {}: epoch {}, step {}", path, info.epoch, info.step_in_epoch));
}

void print_profile(train::Model& model, const Say& say) {
  const auto memory = model.session().arena_memory();
  say(fmt::format("arena {} of which persistent {}; resident {}, {} in huge pages; peak of the process {}",
                  format_bytes(model.session().arena_bytes()),
                  format_bytes(model.train_executable()->executor().schedule().persistent_bytes),
                  format_bytes(memory.resident_bytes), format_bytes(memory.huge_page_bytes),
                  format_bytes(peak_resident_bytes())));
  if (memory.free_bytes) say(fmt::format("{} of the device's memory are free", format_bytes(*memory.free_bytes)));
  say(executor::profile_table(model.train_executable()->executor(), model.step()));
}

int run(cluster::Context& context, const Options& o) {
  const Say say = [&, print = printer(context, o)](const std::string& line) {
    if (context.rank() == 0) print(line);
  };
  if (!o.make_data.empty()) {
    if (context.rank() == 0) {
      data::write_synthetic_cifar10(context.file_system(), o.make_data,
                                    {.train_records = o.train_records, .test_records = o.test_records, .seed = o.seed});
    }
    say(fmt::format("wrote {} training and {} test images to {}", o.train_records, o.test_records, o.make_data));
    return 0;
  }
  const auto mode = o.parallel_mode.empty() ? (context.size() > 1 ? "data_parallel" : "stand_alone") : o.parallel_mode;
  const bool evaluating = !o.evaluate.empty();
  const auto dataset = images(o, evaluating ? "test" : "train", o.augment && !evaluating);
  const int64_t steps_per_epoch = dataset.get_dataset_size();
  if (steps_per_epoch < 1) {
    throw InvalidArgument("{} has fewer than {} images: no whole batch; use a smaller --batch_size", o.data_path,
                          o.batch_size);
  }

  const auto network = nn::resnet50(
      10, {.initial_values = o.initial_values == "usual" ? nn::InitialValues::kUsual : nn::InitialValues::kReference,
           .batch_norm_momentum = o.batch_norm_momentum,
           .zero_last_gamma = o.initial_values == "usual"});
  const auto loss = loss_of(o);
  nn::Momentum optimizer(
      {.learning_rate = learning_rate(o, steps_per_epoch), .momentum = o.momentum, .weight_decay = o.weight_decay});
  train::Model model(context, *network, loss.get(), evaluating ? nullptr : &optimizer, model_options(o, mode));

  if (evaluating) {
    evaluate(model, dataset, o, say);
    return 0;
  }
  if (!o.save_graph.empty()) {
    save_graph(context, model, dataset, o);
    say("wrote " + o.save_graph);
    return 0;
  }
  if (!o.resume.empty()) resume(context, model, o, say);
  say(fmt::format("ResNet-50, {} images of {}x{} a step, {} steps an epoch; {} rank{} ({}), {}", o.batch_size,
                  o.image_size, o.image_size, steps_per_epoch, context.size(), context.size() == 1 ? "" : "s",
                  context.transport(), mode));

  const train::TrainOptions train_options{
      .dataset_sink_mode = o.dataset_sink_mode, .sink_size = o.sink_size, .num_workers = o.num_workers};
  if (o.profile) {
    model.build(dataset);
    model.enable_profiling();
  }
  model.train(o.epochs, dataset, callbacks(context, o, steps_per_epoch), train_options);
  if (o.profile && context.rank() == 0) print_profile(model, say);
  const auto results = model.eval(images(o, "test", false), {.num_workers = o.num_workers});
  say(fmt::format("test images: accuracy {:.4f}, loss {:.4f}", results.at("accuracy"), results.at("loss")));
  require_accuracy(results.at("accuracy"), o.min_accuracy);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains ResNet-50 on CIFAR-10, on one rank or spread over many.");
  add_options(app, options);
  try {
    app.parse(argc, argv);
    if (options.data_path.empty() && options.make_data.empty()) {
      throw CLI::RequiredError("--data_path (a folder with CIFAR-10's binary files; --make_data writes a small one)");
    }
  } catch (const CLI::ExtrasError&) {
    std::vector<std::string> options;
    for (const CLI::Option* option : app.get_options()) options.push_back(option->get_name());
    return cluster::usage_error(argv[0], cluster::describe_unknown_words(app.remaining(), options));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return code_after_output(app.exit(error));  // --help
    return cluster::usage_error(argv[0], error.what());
  }
  set_log_level(LogLevel::kInfo);
  return cluster::run(argc, argv, [&](cluster::Context& context) { return run(context, options); });
}
