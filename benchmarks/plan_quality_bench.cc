// Predicted against measured step times of many plans of a small network on two ranks of a core each, for
// benchmarks/run plan_quality: data parallel, the plan that was chosen, optimizer shards, products split in one way,
// and plans that a search finds where its costs are multiplied by random factors.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "benchmarks/one_core.h"
#include "benchmarks/protocol.h"
#include "tessera/compiler/rank_classes.h"
#include "tessera/compiler/search/choices.h"
#include "tessera/compiler/simulate.h"
#include "tessera/engine.h"
#include "tessera/solver/elimination.h"
#include "tessera/tessera.h"
#include "tests/equivalence/networks.h"

namespace tessera::benchmarks {
namespace {

constexpr int kRanks = 2;

struct Options {
  std::string network = "mlp";
  int64_t scale = 32;
  int64_t rows = 256;
  int num_plans = 64;
  std::string profile;
  std::string out;
  std::vector<int> explained;  // instead: where the time of these plans goes
  int steps = 2;               // that are timed, of a round
};

// A plan with what was said of it and what it took.
struct Candidate {
  std::string origin;
  compiler::PlanRecord record;
  double predicted_seconds = 0;
  double added_seconds = 0;      // what the search adds up
  std::vector<double> measured;  // seconds of a step, of each round
  double median_seconds = 0;
};

struct Quality {
  double tau = 0;
  double added_tau = 0;
  double own_tau = 0;  // of every other round's medians with those of the rest: what noise leaves
  double median_error = 0;
  double p95_error = 0;
  int rank = 0;              // of the chosen plan, from 1
  double over_best = 0;      // its time over that of the fastest
  double over_parallel = 0;  // and over that of data parallel
};

class Plans {
 public:
  Plans(const ir::Graph& graph, const compiler::MachineProfile& profile) : graph_(graph), profile_(profile) {
    ranks_.resize(kRanks);
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }

  std::vector<Candidate> make(int count) {
    add("data parallel", compiler::data_parallel_choices(graph_, ranks_, {}, false));
    const auto chosen = compiler::choose_plan(graph_, ranks_, profile_, {});
    add("chosen", compiler::choices_for(graph_, chosen.record));
    add("searched", chosen.search.choices);
    add("optimizer shards", optimizer_shards());
    for (const char* factor : {"m", "n", "k"}) add(std::string("products by ") + factor, products_by(factor));
    // Elimination finds them quickly; most seeds find another one.
    for (uint64_t seed = 1; static_cast<int>(plans_.size()) < count && seed < 20 * static_cast<uint64_t>(count);
         ++seed) {
      if (auto choices = search_randomly(seed)) add(fmt::format("seed {}", seed), *choices);
    }
    return std::move(plans_);
  }

 private:
  void add(const std::string& origin, const compiler::PlanChoices& choices) {
    Candidate plan{origin, compiler::record_plan(graph_, choices)};
    // The chosen plan may be data parallel: it is measured once more then.
    if (!known_.insert(compiler::to_json(plan.record)).second && origin != "chosen") return;
    plan.predicted_seconds = compiler::predict(graph_, choices, profile_).step_seconds;
    plan.added_seconds = compiler::cost_of_plan(graph_, compiler::plan_of(graph_, choices), profile_).seconds();
    plans_.push_back(std::move(plan));
  }

  mesh::Mesh mesh() const { return mesh::Mesh({{"x", kRanks}}, ranks_); }

  compiler::ShardingHints split_rows() const {
    compiler::ShardingHints hints;
    for (const auto& input : graph_.inputs()) {
      if (input.kind != ir::InputKind::kInput) continue;
      auto sharding = mesh::Sharding::replicated(graph_.type(input.value).shape.ndim());
      sharding.dims[0] = {0};
      hints[input.name] = {mesh(), sharding};
    }
    return hints;
  }

  compiler::PlanChoices optimizer_shards() const {
    compiler::PlanOptions options{.strategies = false};
    for (const auto& input : graph_.inputs()) {
      if (input.kind == ir::InputKind::kParameter) options.optimizer_shards.insert(input.name);
    }
    return compiler::choices_of(graph_, compiler::propagate(graph_, mesh(), split_rows(), options));
  }

  // Forward products split along one factor, everything else as it follows from them.
  compiler::PlanChoices products_by(const std::string& factor) const {
    compiler::PlanOptions options{.strategies = false};
    for (ir::NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (graph_.node(n).forward != ir::kNone) continue;
      if (graph_.node(n).op != "matmul" && graph_.node(n).op != "conv2d") continue;
      for (const auto& choice : compiler::possible_choices(graph_, n, mesh())) {
        if (choice.factors.size() == 1 && choice.factors.contains(factor)) options.fixed[n] = choice;
      }
    }
    return compiler::choices_of(graph_, compiler::propagate(graph_, mesh(), split_rows(), options));
  }

  // What is best where each cost is multiplied by 1 to 30, at random; the more, the later the seed.
  std::optional<compiler::PlanChoices> search_randomly(uint64_t seed) const {
    compiler::CostModel costs(mesh(), profile_);
    const compiler::SearchProblemOptions options;
    const compiler::SearchProblem made(graph_, costs, options);
    solver::Problem problem = made.problem();
    const double largest = std::pow(30.0, static_cast<double>(seed % 8 + 1) / 8);
    uint64_t drawn = 0;
    const auto vary = [&](std::vector<double>& values) {
      for (double& value : values) value *= std::pow(largest, random_uniform({.seed = seed}, drawn++));
    };
    for (auto& node : problem.nodes) vary(node.costs);
    for (auto& edge : problem.edges) vary(edge.costs.own());
    const auto found = solver::solve_by_elimination(problem);
    if (found.choices.empty()) return std::nullopt;
    return made.choices_of(found.choices);
  }

  const ir::Graph& graph_;
  const compiler::MachineProfile& profile_;
  std::vector<int> ranks_;
  std::set<std::string> known_;
  std::vector<Candidate> plans_;
};

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

// A rank's models, one for each plan, in turn.
class Rank {
 public:
  Rank(cluster::Context& context, const Options& options, const compiler::MachineProfile& profile,
       std::vector<Candidate>& plans)
      : context_(context), options_(options), profile_(profile), plans_(plans) {
    batch_ = equivalence::make_batch(options.network, options.rows, 0, DType::kF32, options.scale);
    // The first model brings the graph that all plans are of.
    add_model([&](const ir::Graph& step) {
      graph_ = step;
      return compiler::record_plan(step, compiler::data_parallel_choices(step, {0, 1}, {}, false));
    });
    models_.clear();
    if (context.rank() == 0) plans_ = Plans(graph_, profile_).make(options_.num_plans);
    context_.world().barrier("plans");
    for (size_t i = 0; i < plans_.size(); ++i) {
      const bool is_wanted = options.explained.empty() ||
                             std::count(options.explained.begin(), options.explained.end(), static_cast<int>(i)) > 0;
      if (is_wanted) {
        add_model([&](const ir::Graph&) { return plans_[i].record; });
      } else {
        models_.emplace_back();
      }
    }
  }

  // Where the time of a plan goes: what rank 0 takes for each step of its schedule, most of the time, and what is
  // predicted of it. A wait takes as long as others need to come to it, too.
  void explain(size_t plan) {
    constexpr int kSteps = 100;
    constexpr double kUndisturbed = 0.25;  // the quantile of many times that are often disturbed
    train::Model& model = *models_[plan].model;
    model.enable_profiling();
    std::vector<std::vector<double>> measured;
    std::vector<double> before;
    std::vector<double> whole;
    for (int i = 0; i <= kSteps; ++i) {
      context_.world().barrier("explain");
      const int64_t begin = Clock::system().monotonic_ns();
      step(model);
      if (i > 0) whole.push_back(static_cast<double>(Clock::system().monotonic_ns() - begin) / 1e3);
      const auto profile = model.train_executable()->executor().profile();
      measured.resize(profile.size());
      before.resize(profile.size());
      for (size_t k = 0; k < profile.size(); ++k) {
        if (i > 0) measured[k].push_back(profile[k].microseconds - before[k]);
        before[k] = profile[k].microseconds;
      }
    }
    if (context_.rank() > 0) return;
    const ir::Schedule& schedule = model.train_executable()->executor().schedule();
    const compiler::RankClass alone{.ranks = {0, 1}, .schedule = schedule};
    const auto simulation = compiler::simulate({&alone, 1}, profile_);
    std::vector<double> predicted(schedule.steps.size());
    for (const auto& timed : simulation.classes[0].timeline) {
      predicted[static_cast<size_t>(timed.step)] = 1e6 * (timed.end_seconds - timed.begin_seconds);
    }
    fmt::print("{}: predicted {:.0f} us, measured {:.0f} us\n  measured  predicted  step\n", plans_[plan].origin,
               1e6 * plans_[plan].predicted_seconds, quantile(whole, kUndisturbed));
    double sum = 0;
    for (size_t k = 0; k < schedule.steps.size(); ++k) {
      const ir::Step& now = schedule.steps[k];
      std::string types;
      for (const int v : now.inputs) types += " " + schedule.values[static_cast<size_t>(v)].type.to_string();
      types += " ->";
      for (const int v : now.outputs) types += " " + schedule.values[static_cast<size_t>(v)].type.to_string();
      const double took = quantile(measured[k], kUndisturbed);
      sum += took;
      const char* what = now.kind == ir::StepKind::kStart ? "start " : now.kind == ir::StepKind::kWait ? "wait " : "";
      fmt::print("{:8.1f} {:8.1f}    {}{} {}{}\n", took, predicted[k], what, now.kernel.empty() ? now.op : now.kernel,
                 now.source, types);
    }
    fmt::print("{:8.1f} {:8.1f}    all\n", sum, 1e6 * simulation.step_seconds);
  }

  // Seconds of a step of each plan, as the slower rank sees it.
  void round(bool counts) {
    for (size_t i = 0; i < models_.size(); ++i) {
      step(*models_[i].model);
      context_.world().barrier("round");
      const int64_t begin = Clock::system().monotonic_ns();
      for (int repeat = 0; repeat < options_.steps; ++repeat) step(*models_[i].model);
      double seconds = static_cast<double>(Clock::system().monotonic_ns() - begin) / 1e9 / options_.steps;
      context_.world().all_reduce(&seconds, 1, DType::kF64, comm::ReduceOp::kMax, "round");
      if (counts && context_.rank() == 0) plans_[i].measured.push_back(seconds);
    }
  }

 private:
  struct Training {
    std::unique_ptr<nn::Cell> network;
    std::unique_ptr<nn::Cell> loss;
    std::unique_ptr<nn::Optimizer> optimizer;
    std::unique_ptr<train::Model> model;
  };

  void add_model(std::function<compiler::PlanRecord(const ir::Graph&)> planner) {
    Training made;
    made.network = equivalence::make_network(options_.network, DType::kF32, std::nullopt, options_.scale);
    made.loss = std::make_unique<nn::SoftmaxCrossEntropyWithLogits>(
        nn::SoftmaxCrossEntropyWithLogitsOptions{.sparse = true, .reduction = "mean"});
    made.optimizer = std::make_unique<nn::Momentum>(nn::MomentumOptions{.learning_rate = 0.001, .momentum = 0.9});
    train::ModelOptions model{.parallel_mode = train::ParallelMode::kAutomatic,
                              .automatic = {.planner = std::move(planner)},
                              .session = {.num_threads = 1}};
    made.model = std::make_unique<train::Model>(context_, *made.network, made.loss.get(), made.optimizer.get(), model);
    step(*made.model);
    models_.push_back(std::move(made));
  }

  void step(train::Model& model) {
    const double loss = model.train_step({batch_[0].view(), batch_[1].view()}, options_.rows);
    if (!std::isfinite(loss)) throw Error(fmt::format("the loss is {}", loss));
  }

  cluster::Context& context_;
  const Options& options_;
  const compiler::MachineProfile& profile_;
  std::vector<Candidate>& plans_;
  std::vector<Tensor> batch_;
  std::vector<Training> models_;
  ir::Graph graph_;  // rank 0: of the training step
};

// Kendall's tau-b: pairs in the same order less pairs in the other one, over those that differ.
double kendall_tau(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  double pairs_a = 0;
  double pairs_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const int order_a = (a[i] > a[j]) - (a[i] < a[j]);
      const int order_b = (b[i] > b[j]) - (b[i] < b[j]);
      sum += order_a * order_b;
      pairs_a += order_a != 0 ? 1 : 0;
      pairs_b += order_b != 0 ? 1 : 0;
    }
  }
  return sum / std::sqrt(std::max(pairs_a * pairs_b, 1.0));
}

// Medians of every other round, from `first` on.
std::vector<double> medians_of_half(const std::vector<Candidate>& plans, size_t first) {
  std::vector<double> medians;
  for (const auto& plan : plans) {
    std::vector<double> half;
    for (size_t i = first; i < plan.measured.size(); i += 2) half.push_back(plan.measured[i]);
    if (half.empty()) return {};
    medians.push_back(quantile(half, 0.5));
  }
  return medians;
}

Quality judge(std::vector<Candidate>& plans) {
  std::vector<double> measured;
  std::vector<double> predicted;
  std::vector<double> added;
  std::vector<double> errors;
  double chosen = 0;
  for (auto& plan : plans) {
    plan.median_seconds = quantile(plan.measured, 0.5);
    measured.push_back(plan.median_seconds);
    predicted.push_back(plan.predicted_seconds);
    added.push_back(plan.added_seconds);
    errors.push_back(std::abs(plan.predicted_seconds / plan.median_seconds - 1));
    if (plan.origin == "chosen") chosen = plan.median_seconds;
  }
  const auto second_half = medians_of_half(plans, 1);  // empty after one round
  Quality quality{.tau = kendall_tau(predicted, measured),
                  .added_tau = kendall_tau(added, measured),
                  .own_tau = second_half.empty() ? 1 : kendall_tau(medians_of_half(plans, 0), second_half),
                  .median_error = quantile(errors, 0.5),
                  .p95_error = quantile(errors, 0.95)};
  for (const double seconds : measured) quality.rank += seconds <= chosen ? 1 : 0;
  quality.over_best = chosen / *std::min_element(measured.begin(), measured.end());
  quality.over_parallel = chosen / measured[0];
  return quality;
}

void write(const Options& options, const std::vector<Candidate>& plans, const Quality& quality) {
  nlohmann::json json{{"network", options.network},
                      {"rounds", plans[0].measured.size()},
                      {"kendall_tau", quality.tau},
                      {"kendall_tau_added", quality.added_tau},
                      {"kendall_tau_measured_twice", quality.own_tau},
                      {"median_error", quality.median_error},
                      {"p95_error", quality.p95_error},
                      {"chosen_rank", quality.rank},
                      {"chosen_over_best", quality.over_best},
                      {"chosen_over_data_parallel", quality.over_parallel}};
  for (const auto& plan : plans) {
    json["plans"].push_back({{"origin", plan.origin},
                             {"predicted_s", plan.predicted_seconds},
                             {"added_s", plan.added_seconds},
                             {"measured_s", plan.median_seconds},
                             {"fastest_s", *std::min_element(plan.measured.begin(), plan.measured.end())}});
  }
  FileSystem::local().write_atomically(options.out, json.dump(1) + "\n");
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Predicted against measured times of plans; see benchmarks/README.md");
  app.add_option("--network", options.network)->check(CLI::IsMember({"mlp", "resnet", "transformer"}));
  app.add_option("--scale", options.scale)->check(CLI::Range(1, 1024));
  app.add_option("--rows", options.rows)->check(CLI::Range(2, 1 << 20));
  app.add_option("--plans", options.num_plans)->check(CLI::Range(8, 1000));
  app.add_option("--profile", options.profile, "of tessera calibrate")->required();
  app.add_option("--explain", options.explained, "instead: where the time of the plans of these numbers goes, from 0");
  app.add_option("--out", options.out, "all plans as JSON");
  CLI11_PARSE(app, argc, argv);
  const auto profile = compiler::parse_profile(FileSystem::local().read_text(options.profile), options.profile);

  std::vector<Candidate> plans;
  const auto result =
      cluster::run_threads(kRanks, {.timeout_ms = 3'600'000, .num_compute_threads = 1}, [&](cluster::Context& context) {
        stay_on_core(context.rank());
        Rank rank(context, options, profile, plans);
        // Rank 0 brings 1 for a round, 0 at the end.
        const auto goes_on = [&](double value) {
          context.world().all_reduce(&value, 1, DType::kF64, comm::ReduceOp::kMax, "round");
          return value > 0;
        };
        for (const int plan : options.explained) {
          if (static_cast<size_t>(plan) >= plans.size()) throw InvalidArgument("there are {} plans", plans.size());
          rank.explain(static_cast<size_t>(plan));
        }
        if (!options.explained.empty()) return 0;
        rank.round(false);
        if (context.rank() > 0) {
          while (goes_on(0)) rank.round(true);
          return 0;
        }
        serve_rounds("Kendall's tau", fmt::format("{} plans", plans.size()), [&] {
          goes_on(1);
          rank.round(true);
          const auto quality = judge(plans);
          if (!options.out.empty()) write(options, plans, quality);
          fmt::print(stderr,
                     "{}: {} plans, tau {:.2f} (added up: {:.2f}; measured twice: {:.2f}), error {:.0f} % (95 % of the "
                     "plans: {:.0f} %); the "
                     "chosen plan is number {}, {:.2f} of the fastest, {:.2f} of data parallel\n",
                     options.network, plans.size(), quality.tau, quality.added_tau, quality.own_tau,
                     100 * quality.median_error, 100 * quality.p95_error, quality.rank, quality.over_best,
                     quality.over_parallel);
          return quality.tau;
        });
        goes_on(0);
        return 0;
      });
  for (const auto& error : result.errors) {
    if (error) std::rethrow_exception(error);
  }
  return 0;
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) {
  try {
    return tessera::benchmarks::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "plan_quality_bench: {}\n", error.what());
    return 1;
  }
}
