// Wide & Deep (Cheng et al., "Wide & deep learning for recommender systems", 2016) on a made-up log of clicks: how
// likely is a user to click on an item at some hour? Its tables may be kept by parameter servers:
//   wide_deep                                    one rank
//   tessera run -n 3 --servers 2 wide_deep       three ranks train, two keep the tables
// The losses are the same. How good a prediction can be is known, because the log is drawn from probabilities: no
// ranking of the held-out rows has a larger AUC, but for chance, than the one by these.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tessera/tessera.h"

namespace {

using namespace tessera;  // NOLINT: an example reads better without prefixes

constexpr int64_t kUsers = 30;
constexpr int64_t kItems = 20;
constexpr int64_t kHours = 24;
constexpr int64_t kFields = 3;
// A row of the tables for each user, item and hour, in this order.
constexpr int64_t kRows = kUsers + kItems + kHours;

struct Clicks {
  Tensor ids;                         // i32[n,3]: user, item, hour
  Tensor clicked;                     // f32[n,1]
  std::vector<double> probabilities;  // of a click, which no model knows
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// What users like, items are liked, and hours bring: six kinds of users see four kinds of items in their own ways.
double probability(int64_t user, int64_t item, int64_t hour) {
  const auto normal = [](uint64_t what, int64_t i) {
    return random_normal({.seed = 1, .stream = what}, static_cast<uint64_t>(i));
  };
  const double taste = 1.5 * normal(1, user % 6 * 4 + item % 4);
  return sigmoid(taste + 0.7 * normal(2, item) + 0.4 * normal(3, hour) - 0.5);
}

// Rows `first` to `first` + `count` of the log. Few users and items have most of it.
Clicks draw(int64_t first, int64_t count) {
  Clicks log{Tensor(DType::kI32, {count, kFields}), Tensor(DType::kF32, {count, 1}), {}};
  const auto ids = log.ids.values<int32_t>();
  const auto clicked = log.clicked.values<float>();
  for (int64_t row = 0; row < count; ++row) {
    const auto uniform = [&](uint64_t what) {
      return random_uniform({.seed = 2, .stream = what}, static_cast<uint64_t>(first + row));
    };
    const auto often_small = [&](uint64_t what, int64_t size) {
      return static_cast<int64_t>(static_cast<double>(size) * std::pow(uniform(what), 2.0));
    };
    const int64_t user = often_small(1, kUsers);
    const int64_t item = often_small(2, kItems);
    const auto hour = static_cast<int64_t>(uniform(3) * static_cast<double>(kHours));
    log.probabilities.push_back(probability(user, item, hour));
    const auto at = static_cast<size_t>(row * kFields);
    ids[at] = static_cast<int32_t>(user);
    ids[at + 1] = static_cast<int32_t>(kUsers + item);
    ids[at + 2] = static_cast<int32_t>(kUsers + kItems + hour);
    clicked[static_cast<size_t>(row)] = uniform(4) < log.probabilities.back() ? 1.0F : 0.0F;
  }
  return log;
}

// The share of all pairs of a clicked and another row in which the clicked one has the higher score; equal ones count
// half.
double auc(const std::vector<double>& scores, const Tensor& clicked) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
  double pairs = 0;
  double others = 0;  // rows that were not clicked, of a lower score
  double clicks = 0;
  for (size_t begin = 0; begin < order.size();) {
    double here[2] = {0, 0};
    size_t end = begin;
    for (; end < order.size() && scores[order[end]] == scores[order[begin]]; ++end) {
      ++here[clicked.values<float>()[order[end]] > 0 ? 1 : 0];
    }
    pairs += here[1] * (others + here[0] / 2);
    others += here[0];
    clicks += here[1];
    begin = end;
  }
  return pairs / (clicks * others);
}

// The wide part adds up a weight for each number; the deep part makes a number of their rows in a second table.
struct WideDeep : nn::Cell {
  const nn::DenseOptions relu{.weight_init = "he_uniform", .activation = "relu"};
  nn::Embedding& wide = child<nn::Embedding>("wide", kRows, 1);
  nn::Embedding& deep = child<nn::Embedding>("deep", kRows, 8, nn::EmbeddingOptions{nn::normal(0.1)});
  nn::Dense& hidden1 = child<nn::Dense>("hidden1", kFields * 8, 32, relu);
  nn::Dense& hidden2 = child<nn::Dense>("hidden2", 32, 16, relu);
  nn::Dense& output = child<nn::Dense>("output", 16, 1, nn::DenseOptions{.weight_init = "xavier_uniform"});
  using nn::Cell::construct;
  nn::Value construct(nn::Value ids) override {
    const auto rows = ops::reshape(deep(ids), {ids.shape()[0], kFields * 8});
    return ops::reduce_sum(wide(ids), {1}) + output(hidden2(hidden1(rows)));
  }
};

// The cross entropy of a click, of its logit: log(1 + exp(-|z|)) + max(z, 0) - z * clicked.
struct ClickLoss : nn::Loss {
  using nn::Cell::construct;
  nn::Value construct(nn::Value logits, nn::Value clicked) override {
    const auto softplus = ops::log1p(ops::exp(ops::neg(ops::abs(logits)))) + ops::maximum(logits, 0.0);
    return ops::reduce_mean(softplus - logits * clicked);
  }
};

struct Options {
  int64_t epochs = 3;
  int64_t rows = 24000;
  int64_t batch_size = 240;
  double max_distance = 1;
};

int run(cluster::Context& context, const Options& o) {
  const auto train_log = draw(0, o.rows);
  const auto test_log = draw(o.rows, 6000);
  WideDeep network;
  if (context.num_servers() > 0) {
    network.wide.set_on_servers();
    network.deep.set_on_servers();
  }
  ClickLoss loss;
  // Rows of users and items that a batch has nothing of stay as they are.
  nn::LazyAdam optimizer({.learning_rate = 0.01});
  train::Model model(
      context, network, &loss, &optimizer,
      {.parallel_mode = context.size() > 1 ? train::ParallelMode::kDataParallel : train::ParallelMode::kStandAlone,
       .seed = 1});
  const auto dataset =
      data::tensors({{"ids", train_log.ids}, {"clicked", train_log.clicked}}, {.shuffle = true, .seed = 1})
          .batch(o.batch_size, {.drop_remainder = true});
  model.train(o.epochs, dataset, {train::LossMonitor(10)});

  const double reached = auc(model.predict({test_log.ids}).to_doubles(), test_log.clicked);
  const double reachable = auc(test_log.probabilities, test_log.clicked);
  if (context.rank() == 0) {
    train::print_line(fmt::format("auc {:.4f}, of {:.4f} that can be reached", reached, reachable));
  }
  if (reachable - reached <= o.max_distance) return 0;
  throw Error(fmt::format("auc {:.4f} is more than {} below {:.4f}", reached, o.max_distance, reachable));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains Wide & Deep on a made-up log of clicks, on one rank, or with parameter servers.");
  const CLI::Range count(int64_t{1}, int64_t{1} << 30);
  app.add_option("--epochs", options.epochs, "times through the log")->check(count)->capture_default_str();
  app.add_option("--rows", options.rows, "of the log that is trained on")->check(count)->capture_default_str();
  app.add_option("--batch_size", options.batch_size, "rows of a step")->check(count)->capture_default_str();
  app.add_option("--max_distance", options.max_distance, "fail when the AUC stays further below what can be reached")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    std::vector<std::string> options;
    for (const CLI::Option* option : app.get_options()) options.push_back(option->get_name());
    return cluster::usage_error(argv[0], cluster::describe_unknown_words(app.remaining(), options));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return code_after_output(app.exit(error));  // --help
    return cluster::usage_error(argv[0], error.what());
  }
  return cluster::run(argc, argv, [&](cluster::Context& context) { return run(context, options); });
}
