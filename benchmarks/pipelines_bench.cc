// Steps of pipelines, for benchmarks/run pipelines. Simulated: what the best schedule that is found takes, the best
// that has a name, and the proven bound. Measured: a Transformer in two stages of a core each, in data parallel on the
// same cores, on one of them, and what is predicted of the first.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "benchmarks/one_core.h"
#include "benchmarks/protocol.h"
#include "benchmarks/rank_processes.h"
#include "tessera/compiler/pipelines/choose_stages.h"
#include "tessera/engine.h"
#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/pipeline/search/find_schedule.h"
#include "tessera/pipeline/search/named.h"
#include "tessera/pipeline/test_problems.h"
#include "tessera/pipeline/verify_schedule.h"
#include "tessera/session/pipelined_step.h"
#include "tessera/tessera.h"

namespace tessera::benchmarks {
namespace {

constexpr int kRanks = 2;
constexpr int kWarmupSteps = 3;

struct Options {
  std::string mode = "searched";
  int stages = kRanks;
  int micro_batches = 16;
  bool unequal = false;
  bool limited = false;  // the memory of 1f1b
  std::string schedule = "1f1b";
  std::string profile;
  // The measured Transformer.
  int64_t batch_size = 32;
  int64_t num_tokens = 32;
  int64_t vocabulary = 2000;
  int64_t hidden_size = 256;
  int64_t layers = 3;  // that read, and as many that write
};

// Simulated steps. Of unequal stages the mean of so many pipelines, each drawn anew.
constexpr uint64_t kDrawn = 5;
// A unit of the problems' times, in seconds: phases of about 10 ms.
constexpr double kUnit = 1e-4;

std::vector<pipeline::PipelineProblem> problems(const Options& options) {
  const pipeline::Equal equal{.stages = options.stages,
                              .micro_batches = options.micro_batches,
                              .forward = 100,
                              .backward = 100,
                              .weight_gradient = 100,
                              .split = true};
  std::vector<pipeline::PipelineProblem> all;
  for (uint64_t seed = 1; seed <= (options.unequal ? kDrawn : 1); ++seed) {
    all.push_back(options.unequal ? pipeline::unequal_problem(equal, seed) : pipeline::equal_problem(equal));
    if (options.limited) limit_memory(all.back(), options.stages);
  }
  return all;
}

// The fastest of those that have a name, and fit.
pipeline::PipelineSchedule best_named(const pipeline::PipelineProblem& problem, std::string& name) {
  std::optional<pipeline::PipelineSchedule> best;
  for (const auto& each : pipeline::schedule_names()) {
    if (!misfit(problem, each).empty()) continue;
    try {
      auto schedule = named_schedule(problem, each);
      if (best && best->makespan_ns() <= schedule.makespan_ns()) continue;
      best = std::move(schedule);
      name = each;
    } catch (const InvalidArgument&) {
      // It does not fit into the memory.
    }
  }
  if (!best) throw Error("no schedule that has a name fits");
  return std::move(*best);
}

int64_t makespan(const pipeline::PipelineProblem& problem, const pipeline::PipelineSchedule& schedule) {
  const auto faults = verify(problem, schedule);
  if (!faults.empty()) throw Error(faults[0]);
  return schedule.makespan_ns();
}

void serve_simulated(const Options& options) {
  const auto all = problems(options);
  std::string about;
  const auto round = [&] {
    about.clear();
    int64_t sum = 0;
    for (const auto& problem : all) {
      std::string name;
      if (options.mode == "bound") {
        const auto bound = lower_bound(problem);
        sum += bound.ns;
        name = bound.reason;
      } else if (options.mode == "named") {
        sum += makespan(problem, best_named(problem, name));
      } else {
        const auto found = find_schedule(problem);
        sum += makespan(problem, found.schedule);
        name = found.origin;
      }
      if (about.find(name) == std::string::npos) about += (about.empty() ? "" : "; ") + name;
    }
    return kUnit * static_cast<double>(sum) / static_cast<double>(all.size());
  };
  const double first = round();
  serve_rounds("s", about, [&] {
    if (round() != first) throw Error("equal problems have different schedules");
    return first;
  });
}

// Token numbers, drawn evenly.
Tensor tokens(const Options& options, uint64_t seed) {
  Tensor tensor(DType::kI32, {options.batch_size, options.num_tokens});
  const auto values = tensor.values<int32_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<int32_t>(random_below({.seed = seed}, i, options.vocabulary));
  }
  return tensor;
}

// What is trained.
struct Transformer {
  explicit Transformer(const Options& options) {
    nn::TranslatorOptions made{.source_vocabulary = options.vocabulary,
                               .target_vocabulary = options.vocabulary,
                               .max_length = options.num_tokens};
    made.transformer = {.hidden_size = options.hidden_size,
                        .ffn_hidden_size = 4 * options.hidden_size,
                        .encoder_layers = options.layers,
                        .decoder_layers = options.layers,
                        .num_heads = 8,
                        .attention_dropout_rate = 0,
                        .hidden_dropout_rate = 0};
    network = nn::translator(made);
  }
  std::unique_ptr<nn::Cell> network;
  nn::CrossEntropyLoss loss;
  nn::AdamW optimizer{nn::AdamWOptions{.learning_rate = 1e-4}};
};

compiler::MachineProfile profile_of(const Options& options) {
  return compiler::parse_profile(FileSystem::local().read_text(options.profile), options.profile);
}

// The pipeline as training cuts it, before anything is computed.
compiler::PlannedStages planned_stages(const Options& options) {
  Transformer trained(options);
  const auto graphs_of = [&](int micro_batches) {
    const Type words{DType::kI32, {options.batch_size / micro_batches, options.num_tokens}};
    const std::vector<session::InputSpec> inputs = {{"source", words}, {"target", words}, {"label", words}};
    compiler::StepGraphs graphs;
    graphs.micro = session::trace_train_step(
        *trained.network, &trained.loss, trained.optimizer, inputs, {.training = true},
        {.sens = 1.0 / micro_batches, .part = session::StepPart::kAccumulate, .guards_micro_batches = false});
    graphs.update = session::trace_update(*trained.network, &trained.loss, trained.optimizer, {.training = true});
    const auto trainable = trained.network->trainable_parameters();
    const auto accumulators = nn::gradient_accumulators(trainable);
    for (size_t i = 0; i < trainable.size(); ++i) {
      graphs.stages.accumulators[accumulators[i].full_name()] = trainable[i]->full_name();
    }
    return graphs;
  };
  const auto profile = profile_of(options);
  // Whose kernels are those of the training.
  const auto alone = cluster::single_context(1);
  const session::Session compiling(*alone, {.num_threads = 1});
  const compiler::StageSearchOptions search{.schedule = options.schedule,
                                            .searches_inside = false,
                                            .kernels = &compiling.kernels(),
                                            .compile = compiling.compile_options()};
  const ir::Graph whole;
  compiler::StagePlanner planner(whole, options.batch_size, graphs_of, kRanks, profile, search);
  return planner.plan(kRanks, options.micro_batches);
}

// "stage 0 123 bytes, stage 1 45 bytes": to be compared digit by digit.
std::string memory_text(const std::vector<int64_t>& bytes) {
  std::string text;
  for (size_t stage = 0; stage < bytes.size(); ++stage) {
    text += fmt::format("{}stage {} {} bytes", stage == 0 ? "" : ", ", stage, bytes[stage]);
  }
  return text;
}

void serve_predicted(const Options& options) {
  const auto planned = planned_stages(options);
  std::vector<int64_t> bytes;
  for (const auto& stage : planned.simulated.stages) bytes.push_back(stage.memory_bytes());
  serve_rounds("s",
               fmt::format("{}, idle {:.1f} % of the time, {}", options.schedule, 100 * planned.simulated.found.bubble,
                           memory_text(bytes)),
               [&] { return planned.step_seconds(); });
}

class Training {
 public:
  Training(cluster::Context& context, const Options& options)
      : rows_(options.batch_size),
        trained_(options),
        batch_{tokens(options, 1), tokens(options, 2), tokens(options, 3)} {
    train::ModelOptions model{.session = {.num_threads = 1}};
    if (options.mode == "stages") {
      model.parallel_mode = train::ParallelMode::kAutomatic;
      model.pipeline = {.stages = kRanks,
                        .micro_batches = options.micro_batches,
                        .schedule = options.schedule,
                        .profile = profile_of(options)};
    } else if (options.mode == "data parallel") {
      model.parallel_mode = train::ParallelMode::kDataParallel;
      // A rank takes its rows.
      const int64_t rows = rows_ / context.size();
      for (Tensor& whole : batch_) {
        const std::vector<mesh::Range> own = {{context.rank() * rows, rows}, {0, options.num_tokens}};
        whole = Tensor::copy_of(mesh::piece_of(whole.view(), own));
      }
    }
    model_ = std::make_unique<train::Model>(context, *trained_.network, &trained_.loss, &trained_.optimizer, model);
  }

  double seconds_of_step() {
    const int64_t begin = Clock::system().monotonic_ns();
    const double loss = model_->train_step({batch_[0].view(), batch_[1].view(), batch_[2].view()}, rows_);
    if (!std::isfinite(loss)) throw Error(fmt::format("the loss is {}", loss));
    return static_cast<double>(Clock::system().monotonic_ns() - begin) / 1e9;
  }
  double seconds_of_steps(int count) {
    double sum = 0;
    for (int i = 0; i < count; ++i) sum += seconds_of_step();
    return sum / count;
  }
  // Of a stage what its step takes; else the arena.
  int64_t memory_bytes() const {
    const auto* stage = dynamic_cast<const session::PipelinedStep*>(model_->train_executable());
    return stage != nullptr ? stage->memory().memory_bytes() : model_->session().arena_bytes();
  }

 private:
  int64_t rows_;
  Transformer trained_;
  std::vector<Tensor> batch_;
  std::unique_ptr<train::Model> model_;
};

// The ranks' common steps; seconds as the slowest rank sees them.
void serve_rank(const Options& options, int rank, int num_ranks) {
  stay_on_core(rank);
  const auto job = num_ranks > 1 ? cluster::join_job(job_of_processes(rank, num_ranks)) : cluster::single_context(1);
  Training training(*job, options);
  // Rank 0 brings 1 for a round, 0 at the end. Who waits sleeps.
  const auto largest = [&](double value) {
    job->world().all_reduce(&value, 1, DType::kF64, comm::ReduceOp::kMax, "largest");
    return value;
  };
  training.seconds_of_steps(kWarmupSteps);
  const int steps = static_cast<int>(std::ceil(kRoundSeconds / largest(training.seconds_of_step())));
  std::vector<double> memory(static_cast<size_t>(num_ranks));  // exact: below 2^53
  memory[static_cast<size_t>(rank)] = static_cast<double>(training.memory_bytes());
  job->world().all_reduce(memory.data(), num_ranks, DType::kF64, comm::ReduceOp::kSum, "memory");
  // The first step after an idle spell is not counted.
  const auto round = [&] {
    training.seconds_of_step();
    return largest(training.seconds_of_steps(steps));
  };
  if (rank > 0) {
    while (largest(0) > 0) round();
  } else {
    const bool has_stages = options.mode == "stages";
    std::string about = has_stages ? options.schedule + ", " + memory_text({memory.begin(), memory.end()}) : "";
    for (size_t i = 0; i < memory.size() && !has_stages; ++i) {
      about += (i == 0 ? "" : " and ") + format_bytes(static_cast<int64_t>(memory[i]));
    }
    serve_rounds("s", about, [&] {
      largest(1);
      return round();
    });
    largest(0);
  }
  job->finish();
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Steps of pipelines; see benchmarks/README.md");
  app.add_option("--mode", options.mode,
                 "searched, named, bound: a simulated step; stages, data parallel, one rank: a measured one, and "
                 "predicted")
      ->check(CLI::IsMember({"searched", "named", "bound", "stages", "data parallel", "one rank", "predicted"}));
  app.add_option("--stages", options.stages, "of a simulated pipeline")->check(CLI::Range(2, 64));
  app.add_option("--micro_batches", options.micro_batches)->check(CLI::Range(1, 4096));
  app.add_flag("--unequal", options.unequal, "stages that take unequally long");
  app.add_flag("--limited", options.limited, "in the memory that 1f1b needs");
  app.add_option("--schedule", options.schedule, "of the measured pipeline");
  app.add_option("--profile", options.profile, "of this machine: modes stages and predicted");
  app.add_option("--batch_size", options.batch_size)->check(CLI::Range(1, 4096));
  app.add_option("--hidden_size", options.hidden_size)->check(CLI::Range(8, 65536));
  app.add_option("--layers", options.layers)->check(CLI::Range(1, 256));
  CLI11_PARSE(app, argc, argv);
  if (options.mode == "searched" || options.mode == "named" || options.mode == "bound") {
    serve_simulated(options);
    return 0;
  }
  if (options.mode == "predicted") {
    serve_predicted(options);
    return 0;
  }
  const int num_ranks = options.mode == "one rank" ? 1 : kRanks;
  return run_processes(num_ranks, [&](int rank) { serve_rank(options, rank, num_ranks); });
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::benchmarks::run); }
