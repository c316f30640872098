// A job with parameter servers has the losses and values of one device, whatever the servers keep.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/adagrad.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/nn/optimizers/ftrl.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/testing/relative_deviation.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/testing/test_folder.h"
#include "tessera/train/model.h"
#include "tests/equivalence/networks.h"

namespace tessera::equivalence {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Job {
  std::string name;
  std::string network;
  int servers = 1;  // 0: one device
  int workers = 2;
  std::string kept = "";  // the cells whose parameters servers keep: those whose path begins so
  std::string optimizer = "momentum";
  int64_t rows = 8;
  int64_t micro_batches = 1;
  int64_t memory_limit = 0;  // of a server's values
};

std::ostream& operator<<(std::ostream& out, const Job& job) { return out << job.name; }

// Rows [first, first + count) of a column.
TensorView rows_of(const Tensor& column, int64_t first, int64_t count) {
  std::vector<mesh::Range> box = {{first, count}};
  for (int dim = 1; dim < column.type().shape.ndim(); ++dim) box.push_back({0, column.type().shape[dim]});
  return mesh::piece_of(column.view(), box);
}

std::unique_ptr<nn::Optimizer> make_optimizer(const std::string& name) {
  if (name == "sgd") return std::make_unique<nn::SGD>(nn::SGDOptions{.learning_rate = 0.05});
  if (name == "adam") return std::make_unique<nn::Adam>(nn::AdamOptions{.learning_rate = 0.01});
  if (name == "adagrad") return std::make_unique<nn::Adagrad>(nn::AdagradOptions{.learning_rate = 0.05});
  if (name == "lazy_adam") return std::make_unique<nn::LazyAdam>(nn::LazyAdamOptions{.learning_rate = 0.01});
  if (name == "ftrl") return std::make_unique<nn::FTRL>(nn::FTRLOptions{.learning_rate = 0.01, .l1 = 1e-3});
  check_equal(name, "momentum", "optimizer of a job");
  return std::make_unique<nn::Momentum>(
      nn::MomentumOptions{.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 1e-4});
}

void keep(nn::Cell& cell, const std::string& path) {
  if (cell.path().starts_with(path)) {
    cell.set_on_servers();
    return;
  }
  for (const auto& [name, child] : cell.children()) keep(*child, path);
}

struct Outcome {
  std::vector<double> losses;
  double evaluated = 0;
  std::map<std::string, std::vector<double>> values;
};

struct Files {
  std::string load = {};
  std::string save = {};
  train::SaveCheckpointOptions how = {.integrated = true};
};

Outcome train(const Job& job, int64_t first_step, int64_t steps, const Files& files = {}) {
  Outcome outcome;
  std::mutex mutex;
  run_ranks(job.servers == 0 ? 1 : job.servers + job.workers, [&](cluster::Context& context) {
    const auto network = make_network(job.network, DType::kF64);
    if (job.servers > 0) keep(*network, job.kept);
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    const auto optimizer = make_optimizer(job.optimizer);
    train::ModelOptions options{.gradient_accumulation_steps = job.servers == 0 ? job.micro_batches : 1,
                                .seed = 3,
                                .session = {.kernel_choice = session::KernelChoice::kFixed}};
    if (job.servers > 0) {
      options.parallel_mode = train::ParallelMode::kDataParallel;
      options.servers = job.servers;
      options.server_memory_limit_bytes = job.memory_limit;
      options.pipeline.micro_batches = job.micro_batches == 1 ? 0 : job.micro_batches;
    }
    train::Model model(context, *network, &loss, optimizer.get(), options);
    const bool spills = job.memory_limit > 0 && context.rank() < job.servers;
    EXPECT_EQ(model.session().values().spilled_bytes() > 0, spills) << "rank " << context.rank();
    if (!files.load.empty()) model.load_checkpoint(files.load, {.accept_other_jobs = true});
    std::vector<double> losses;
    for (int64_t step = first_step; step < first_step + steps; ++step) {
      const auto batch = make_batch(job.network, job.rows, step, DType::kF64);
      const int64_t parts = options.gradient_accumulation_steps;
      const int64_t rows = job.rows / parts;
      for (int64_t part = 0; part < parts; ++part) {
        const double value =
            model.train_step({rows_of(batch[0], part * rows, rows), rows_of(batch[1], part * rows, rows)}, rows);
        if (part == parts - 1) losses.push_back(value);
      }
    }
    if (!files.save.empty()) {
      model.save_checkpoint(files.save, files.how);
      model.finish_saves();
      model.load_checkpoint(files.save);  // to where the values lie already
    }
    std::map<std::string, std::vector<double>> values;
    for (const auto& name : model.names()) {
      // They are zero between steps, and a job with servers has none.
      if (!nn::is_accumulation_state(name)) values[name] = model.value(name).to_doubles();
    }
    const std::scoped_lock lock(mutex);
    if (outcome.losses.empty()) {
      outcome.losses = losses;
      outcome.values = values;
      return;
    }
    EXPECT_EQ(losses, outcome.losses) << "ranks are told different losses";
    EXPECT_EQ(values, outcome.values) << "ranks have different values";
  });
  return outcome;
}

void expect_equal(const Outcome& found, const Outcome& expected, double tolerance) {
  EXPECT_LE(relative_deviation(found.losses, expected.losses), tolerance);
  ASSERT_EQ(found.values.size(), expected.values.size());
  for (const auto& [name, value] : expected.values) {
    ASSERT_TRUE(found.values.contains(name)) << name;
    EXPECT_LE(relative_deviation(found.values.at(name), value), tolerance) << name;
  }
}

std::vector<Job> jobs() {
  std::vector<Job> all;
  for (const int servers : {1, 2, 3}) {
    for (const int workers : {1, 2, 4}) {
      const auto name = [&](const std::string& text) {
        return fmt::format("{}_{}_servers_{}_workers", text, servers, workers);
      };
      // Layers, tables beside layers, and tables on servers beside layers that workers train among themselves.
      for (const char* optimizer : {"momentum", "sgd", "adam", "lazy_adam", "ftrl"}) {
        const auto add = [&](const char* text, const char* network, const char* kept) {
          all.push_back({.name = name(fmt::format("{}_{}", text, optimizer)),
                         .network = network,
                         .servers = servers,
                         .workers = workers,
                         .kept = kept,
                         .optimizer = optimizer});
        };
        add("dense", "mlp", "");
        add("sparse", "clicks", "");
        add("beside", "clicks", "deep");
      }
      all.push_back({.name = name("tables"),
                     .network = "transformer",
                     .servers = servers,
                     .workers = workers,
                     .kept = "embedding",
                     .optimizer = "adam"});
    }
  }
  for (const char* optimizer : {"momentum", "sgd", "adam", "ftrl"}) {
    all.push_back({.name = fmt::format("mixed_{}", optimizer),
                   .network = "transformer",
                   .servers = 2,
                   .workers = 3,
                   .optimizer = optimizer,
                   .rows = 7});
  }
  // Of tables, of which servers update the rows that were looked up, by one micro-batch or several.
  for (const char* optimizer : {"sgd", "adagrad", "ftrl", "lazy_adam", "momentum"}) {
    for (const auto& [servers, workers] : {std::pair{1, 2}, {2, 2}, {2, 3}, {3, 1}}) {
      all.push_back({.name = fmt::format("rows_{}_{}_servers_{}_workers", optimizer, servers, workers),
                     .network = "clicks",
                     .servers = servers,
                     .workers = workers,
                     .kept = servers == 3 ? "deep" : "",
                     .optimizer = optimizer});
      all.push_back(all.back());
      all.back().name += "_micro_batches";
      all.back().micro_batches = 4;
    }
  }
  all.push_back({.name = "statistics", .network = "resnet", .servers = 2, .workers = 2});
  all.push_back({.name = "dropout", .network = "translator", .servers = 2, .workers = 3});
  all.push_back({.name = "tied_words", .network = "gpt", .servers = 3, .workers = 2, .optimizer = "adam"});
  all.push_back({.name = "micro_batches", .network = "mlp", .servers = 2, .workers = 2, .micro_batches = 4});
  return all;
}

class Servers : public testing::TestWithParam<Job> {};

TEST_P(Servers, GiveLossesAndValuesOfOneDevice) {
  const Job& job = GetParam();
  Job alone = job;
  alone.servers = 0;
  expect_equal(train(job, 0, 5), train(alone, 0, 5), 1e-10);
}

// Where a server's values lie changes no bit: of whatever optimizer, of rows and of whole parameters, of which workers
// have copies.
TEST(ServersThatSpill, GiveTheBitsOfThoseThatDoNot) {
  for (const char* optimizer : {"sgd", "adagrad", "ftrl", "lazy_adam", "momentum", "adam"}) {
    for (const auto& [servers, workers] : {std::pair{1, 2}, {2, 2}, {3, 1}}) {
      for (const int64_t micro_batches : {1, 4}) {
        SCOPED_TRACE(
            fmt::format("{}, {} servers, {} workers, {} micro-batches", optimizer, servers, workers, micro_batches));
        const Job job{.name = "",
                      .network = "clicks",
                      .servers = servers,
                      .workers = workers,
                      .kept = servers == 3 ? "deep" : "",
                      .optimizer = optimizer,
                      .micro_batches = micro_batches};
        Job spilling = job;
        spilling.memory_limit = 1000;
        const auto expected = train(job, 0, 4);
        const auto found = train(spilling, 0, 4);
        EXPECT_EQ(found.losses, expected.losses);
        EXPECT_EQ(found.values, expected.values);
      }
    }
  }
}

TEST(ServersThatSpill, SaveAndLoadAsOthersDo) {
  Job job{.name = "", .network = "clicks", .servers = 2, .workers = 2, .optimizer = "lazy_adam"};
  const auto straight = train(job, 0, 6);
  Job spilling = job;
  spilling.memory_limit = 1000;
  const TestFolder folder("servers-test");
  int number = 0;
  for (const bool integrated : {true, false}) {
    for (const bool async : {false, true}) {
      SCOPED_TRACE(fmt::format("integrated {}, async {}", integrated, async));
      const auto path = folder.in(fmt::format("spilled_{}/table.ckpt", ++number));
      train(spilling, 0, 3, {.save = path, .how = {.integrated = integrated, .async = async}});
      const auto other = train(job, 3, 3, {.load = path});
      EXPECT_EQ(other.losses, std::vector(straight.losses.begin() + 3, straight.losses.end()));
      EXPECT_EQ(other.values, straight.values);
      const auto same = train(spilling, 3, 3, {.load = path});
      EXPECT_EQ(same.losses, other.losses);
      EXPECT_EQ(same.values, straight.values);
    }
  }
}

// A checkpoint is of the job: any number of servers and workers goes on from it, and so does one device.
TEST(ServersCheckpoints, GoOnWithOthers) {
  const TestFolder folder("servers-test");
  const std::string path = folder.in("servers.ckpt");
  Job job{.name = "", .network = "transformer", .servers = 2, .workers = 2, .kept = "embedding", .optimizer = "adam"};
  Job alone = job;
  alone.servers = 0;
  const auto straight = train(alone, 0, 6);
  train(job, 0, 3, {.save = path});
  for (const auto& [servers, workers] : {std::pair{0, 1}, {3, 1}, {1, 3}}) {
    Job other = job;
    other.servers = servers;
    other.workers = workers;
    const auto found = train(other, 3, 3, {.load = path});
    const std::vector<double> expected(straight.losses.begin() + 3, straight.losses.end());
    EXPECT_LE(relative_deviation(found.losses, expected), 1e-10) << servers << " servers";
    expect_equal({.losses = expected, .values = found.values}, {.losses = expected, .values = straight.values}, 1e-10);
  }
  train(alone, 0, 3, {.save = path});
  expect_equal({.losses = straight.losses, .values = train(job, 3, 3, {.load = path}).values}, straight, 1e-10);
}

// Servers share rows of what they keep, and of the optimizer's states; workers have none of a table.
TEST(ServersLayouts, ShareRows) {
  const TestFolder folder("servers-test");
  std::mutex mutex;
  std::map<int, std::vector<std::string>> kept;
  run_ranks(5, [&](cluster::Context& context) {
    const auto network = make_network("transformer", DType::kF64);
    keep(*network, "embedding");
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    const auto optimizer = make_optimizer("adam");
    const std::string path = folder.in(context.rank() < 3 ? "of_servers.ckpt" : "of_workers.ckpt");
    train::Model model(
        context, *network, &loss, optimizer.get(),
        {.parallel_mode = train::ParallelMode::kDataParallel, .strategy_ckpt_save_file = path, .servers = 3});
    const auto batch = make_batch("transformer", 8, 0, DType::kF64);
    model.train_step({batch[0].view(), batch[1].view()}, 8);
    int64_t written = 0;  // once all have come here
    context.world().broadcast(&written, 1, DType::kI64, 0, "the files are written");
    std::vector<std::string> own;
    for (const auto& layout : checkpoint::read_strategy_file(context.file_system(), path).layouts) {
      if (!layout.name.ends_with("embedding_table")) continue;
      int64_t parts = layout.num_optimizer_shards();
      for (const int64_t axis : layout.tensor_map[0]) {
        parts *= layout.device_matrix[layout.device_matrix.size() - 1 - static_cast<size_t>(axis)];
      }
      EXPECT_EQ(parts, 3) << layout.name;
      own.push_back(layout.name);
    }
    const std::scoped_lock lock(mutex);
    kept[context.rank()] = own;
  });
  // The table and both moments.
  for (const auto& [rank, own] : kept) EXPECT_EQ(own.size(), rank < 3 ? 3U : 0U) << rank;
}

// Rows that a batch looks up few of.
struct Rows : nn::Cell {
  static constexpr int64_t kNumbers = 20000;
  nn::Embedding& table = child<nn::Embedding>("table", kNumbers, 8);
  nn::Dense& head = child<nn::Dense>("head", 8, 10);
  using Cell::construct;
  // By indices of two shapes: a strategy file could not hold both.
  ir::Value construct(ir::Value ids) override {
    const int64_t rows = ids.shape()[0];
    return head(table(ids) + ops::reshape(table(ops::reshape(ids, {rows, 1})), {rows, 8}));
  }
};

struct RowsBatch {
  Tensor ids = Tensor::of<int32_t>({6}, {3, 19999, 7, 3, 10000, 0});
  Tensor labels = Tensor::of<int32_t>({6}, {1, 2, 3, 4, 5, 6});
};

struct RowsOutcome {
  std::vector<double> predicted;  // before the first step
  std::vector<double> losses;
  std::vector<double> table;
};

// What a rank has is looked at by `look`, after each thing that a model is asked for.
RowsOutcome train_rows(int servers, const std::function<void(int rank, session::Session&, const char* when)>& look,
                       int workers = 1, int64_t memory_limit = 0) {
  RowsOutcome outcome;
  const TestFolder folder("servers-test");
  std::mutex mutex;
  run_ranks(servers + workers, [&](cluster::Context& context) {
    Rows network;
    if (servers > 0) network.table.set_on_servers();
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::LazyAdam optimizer({.learning_rate = 0.01});
    train::ModelOptions options{.seed = 3, .session = {.kernel_choice = session::KernelChoice::kFixed}};
    if (servers > 0) options.parallel_mode = train::ParallelMode::kDataParallel;
    options.servers = servers;
    options.server_memory_limit_bytes = memory_limit;
    options.session.memory_limit_bytes = 12 * memory_limit;  // which counts nothing that lies in a file
    train::Model model(context, network, &loss, &optimizer, options);
    const auto look_now = [&](const char* when) { look(context.rank(), model.session(), when); };
    look_now("when the model is made");
    const RowsBatch batch;
    RowsOutcome own;
    own.predicted = model.predict({batch.ids}).to_doubles();
    look_now("after a prediction");
    for (int step = 0; step < 3; ++step)
      own.losses.push_back(model.train_step({batch.ids.view(), batch.labels.view()}, 6));
    look_now("after training");
    const std::string path = folder.in(fmt::format("rows_{}_{}_{}", servers, workers, memory_limit));
    model.save_checkpoint(path + "/slices.ckpt", {.integrated = false});
    look_now("after a save");
    model.load_checkpoint(path + "/slices.ckpt");
    look_now("after loading");
    own.losses.push_back(model.train_step({batch.ids.view(), batch.labels.view()}, 6));
    own.table = model.value("table.embedding_table").to_doubles();
    const std::scoped_lock lock(mutex);
    if (context.rank() == 0) outcome = own;
  });
  return outcome;
}

TEST(ServersMemory, WorkersHaveNothingOfTablesAndServersNoWholeGradients) {
  const auto expected = train_rows(0, [](int, session::Session&, const char*) {});
  const int64_t table_bytes = Rows::kNumbers * 8 * 4;
  for (const auto& [num_servers, workers] : {std::pair{1, 1}, {2, 1}, {2, 2}, {2, 3}}) {
    const int servers = num_servers;
    const auto look = [&](int rank, session::Session& session, const char* when) {
      const int64_t rows = Rows::kNumbers / servers;
      for (const char* name :
           {"table.embedding_table", "moment1.table.embedding_table", "moment2.table.embedding_table"}) {
        const Shape& held = session.values().type(name).shape;
        EXPECT_EQ(held, (rank < servers ? Shape{rows, 8} : Shape{0})) << name << " " << when << ", rank " << rank;
      }
      const int64_t own = rank < servers ? 3 * table_bytes / servers : 0;
      // Nobody ever has room for a table, or for a server's part of one, beside it: not when it is drawn, nor when rows
      // are looked up or updated.
      EXPECT_LT(session.arena_bytes(), own + table_bytes / 4) << when << ", rank " << rank;
    };
    const auto found = train_rows(servers, look, workers);
    EXPECT_LE(relative_deviation(found.predicted, expected.predicted), 1e-5);
    EXPECT_LE(relative_deviation(found.losses, expected.losses), 1e-5);
    EXPECT_LE(relative_deviation(found.table, expected.table), 1e-5);
  }
}

// Rows that are long enough for workers to add them up. Numbers of two dims, of two that the network makes one, and of
// one, in tables of their own and in one.
struct Fields : nn::Cell {
  static constexpr int64_t kNumbers = 40;
  nn::Embedding& fields = child<nn::Embedding>("fields", kNumbers, 10);
  nn::Embedding& first = child<nn::Embedding>("first", kNumbers, 10);
  nn::Embedding& both = child<nn::Embedding>("both", kNumbers, 10);
  nn::Embedding& flat = child<nn::Embedding>("flat", kNumbers, 10);
  nn::Dense& head = child<nn::Dense>("head", 10, 10);
  using Cell::construct;
  ir::Value construct(ir::Value ids) override {
    const int64_t rows = ids.shape()[0];
    const ir::Value one = ops::reshape(ops::slice(ids, {0, 0}, {ops::kToEnd, 1}), {rows});
    const ir::Value of_two = both(one) * both(ops::reshape(ops::slice(ids, {0, 1}, {ops::kToEnd, 2}), {rows}));
    const ir::Value of_flat = ops::reshape(flat(ops::reshape(ids, {rows * 3})), {rows, 3, 10});
    return head(ops::reduce_sum(ops::tanh(fields(ids)) + ops::tanh(of_flat), {1}) + ops::tanh(first(one)) + of_two);
  }
};

// How the numbers of a batch repeat.
enum class Repeats { kNone, kAll, kWithinRows, kAcrossWorkers };

Tensor make_fields(int64_t rows, int64_t step, Repeats repeats) {
  Tensor ids(DType::kI32, {rows, 3});
  const auto values = ids.values<int32_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    int64_t id = at + step;
    if (repeats == Repeats::kAll) id = step;
    if (repeats == Repeats::kWithinRows) id = at / 3 + step;
    if (repeats == Repeats::kAcrossWorkers) id = at % 4 + step;
    values[i] = static_cast<int32_t>(id % Fields::kNumbers);
  }
  return ids;
}

struct FieldsJob {
  int servers = 0;  // 0: one device
  int workers = 1;
  int64_t rows = 8;
  int64_t micro_batches = 1;
  std::string optimizer = "sgd";
  Repeats repeats = Repeats::kNone;
  std::optional<nn::LossScale> loss_scale = std::nullopt;
};

std::map<std::string, std::vector<double>> train_fields(const FieldsJob& job) {
  std::map<std::string, std::vector<double>> found;
  std::mutex mutex;
  const auto train_rank = [&](cluster::Context& context) {
    Fields network;
    nn::set_parameter_dtype(network, DType::kF64);
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    const auto optimizer = make_optimizer(job.optimizer);
    train::ModelOptions options{
        .loss_scale = job.loss_scale, .seed = 3, .session = {.kernel_choice = session::KernelChoice::kFixed}};
    if (job.servers > 0) {
      for (nn::Embedding* table : {&network.fields, &network.first, &network.both, &network.flat})
        table->set_on_servers();
      options.parallel_mode = train::ParallelMode::kDataParallel;
      options.servers = job.servers;
      options.pipeline.micro_batches = job.micro_batches == 1 ? 0 : job.micro_batches;
    }
    train::Model model(context, network, &loss, optimizer.get(), options);
    std::map<std::string, std::vector<double>> own;
    for (int64_t step = 0; step < 3; ++step) {
      const Tensor ids = make_fields(job.rows, step, job.repeats);
      Tensor labels(DType::kI32, {job.rows});
      for (size_t i = 0; i < labels.values<int32_t>().size(); ++i)
        labels.values<int32_t>()[i] = static_cast<int32_t>(i % 10);
      own["losses"].push_back(model.train_step({ids.view(), labels.view()}, job.rows));
    }
    for (const char* table : {"fields", "first", "both", "flat"}) {
      own[table] = model.value(fmt::format("{}.embedding_table", table)).to_doubles();
    }
    const std::scoped_lock lock(mutex);
    if (found.empty()) found = own;
    EXPECT_EQ(own, found) << "ranks are told different losses, or have different values";
  };
  run_ranks(job.servers + job.workers, train_rank, {.ranks_per_host = 1});
  return found;
}

void expect_fields_of_one_device(const FieldsJob& job) {
  SCOPED_TRACE(fmt::format("{}, repeats {}, {} servers, {} workers, {} rows in {} micro-batches", job.optimizer,
                           static_cast<int>(job.repeats), job.servers, job.workers, job.rows, job.micro_batches));
  FieldsJob alone = job;
  alone.servers = 0;
  alone.workers = 1;
  const auto expected = train_fields(alone);
  const auto found = train_fields(job);
  for (const auto& [name, values] : expected) EXPECT_LE(relative_deviation(found.at(name), values), 1e-10) << name;
  // What is added up, and in which order, does not depend on who is faster.
  EXPECT_EQ(train_fields(job), found);
}

// Of a batch of two rows the third worker has none.
TEST(ServersLookups, AreAddedUpByWorkersAsOnOneDevice) {
  using enum Repeats;
  for (const char* optimizer : {"sgd", "lazy_adam"}) {
    for (const Repeats repeats : {kNone, kAll, kWithinRows, kAcrossWorkers}) {
      for (const auto& [servers, workers] : {std::pair{1, 1}, {1, 2}, {2, 3}}) {
        for (const auto& [rows, micro_batches] : {std::pair{8, 1}, {8, 2}, {2, 1}}) {
          expect_fields_of_one_device({.servers = servers,
                                       .workers = workers,
                                       .rows = rows,
                                       .micro_batches = micro_batches,
                                       .optimizer = optimizer,
                                       .repeats = repeats});
        }
      }
    }
  }
}

// Nothing is computed of rows that would round.
struct Negated : nn::Cell {
  static constexpr int64_t kNumbers = 30;
  explicit Negated(int64_t row) : table(child<nn::Embedding>("table", kNumbers, row)) {}
  nn::Embedding& table;
  using Cell::construct;
  ir::Value construct(ir::Value ids) override { return ops::neg(table(ids)); }
};

struct LookedUp {
  int servers = 1;
  int workers = 1;
  int64_t rows = 8;
  int64_t row = 40;  // longer than a worker has rows
  DType dtype = DType::kF32;
  DType ids = DType::kI32;
  Repeats repeats = Repeats::kNone;
  int ranks_per_host = 1;  // 0: all are on one
};

// A worker gets each row once, and has it at all places: of what is predicted no bit differs from the table's, which
// servers share as rows.
void expect_rows_of_the_table(const LookedUp& job) {
  SCOPED_TRACE(fmt::format("{} servers, {} workers, {} rows of {} {} elements, repeats {}", job.servers, job.workers,
                           job.rows, job.row, to_string(job.dtype), static_cast<int>(job.repeats)));
  const auto look_up = [&](cluster::Context& context) {
    Negated network(job.row);
    network.table.set_on_servers();
    nn::set_parameter_dtype(network, job.dtype);
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.1});
    train::Model model(context, network, &loss, &optimizer,
                       {.parallel_mode = train::ParallelMode::kDataParallel, .servers = job.servers, .seed = 3});
    const Tensor ids = make_fields(job.rows, 3, job.repeats).cast(job.ids);
    const auto found = model.predict({ids}).to_doubles();
    const auto table = model.value("table.embedding_table").to_doubles();
    std::vector<double> expected;
    for (const double id : ids.to_doubles()) {
      const auto row = static_cast<int64_t>(id) * job.row;
      for (int64_t i = 0; i < job.row; ++i) expected.push_back(-table[static_cast<size_t>(row + i)]);
    }
    EXPECT_EQ(found, expected);
  };
  run_ranks(job.servers + job.workers, look_up, {.ranks_per_host = job.ranks_per_host});
}

TEST(ServersLookups, GiveTheBitsOfTheTable) {
  using enum Repeats;
  for (const Repeats repeats : {kNone, kAll, kWithinRows, kAcrossWorkers}) {
    for (const auto& [servers, workers] : {std::pair{1, 1}, {1, 2}, {1, 3}, {2, 1}, {2, 3}, {3, 2}}) {
      // Of a batch of two rows the third worker has none.
      for (const int64_t rows : {8, 2}) {
        expect_rows_of_the_table({.servers = servers, .workers = workers, .rows = rows, .repeats = repeats});
      }
    }
  }
  for (const DType dtype : {DType::kF64, DType::kBF16, DType::kF16}) {
    for (const DType ids : {DType::kI32, DType::kI64}) {
      expect_rows_of_the_table({.servers = 2, .workers = 2, .dtype = dtype, .ids = ids, .repeats = kAcrossWorkers});
    }
  }
  // Several servers share the places of a worker that has more rows than a row has elements, not the elements.
  for (const auto& [servers, workers] : {std::pair{2, 1}, {3, 2}}) {
    expect_rows_of_the_table(
        {.servers = servers, .workers = workers, .rows = 50, .row = 20, .repeats = kAcrossWorkers});
  }
  // Rows that go as they come.
  expect_rows_of_the_table({.servers = 2, .workers = 2, .row = 16, .repeats = kAcrossWorkers});
  // On one host, where longer rows do.
  for (const int64_t row : {40, 200}) {
    expect_rows_of_the_table({.servers = 2, .workers = 2, .row = row, .repeats = kAcrossWorkers, .ranks_per_host = 0});
  }
}

TEST(ServersLookups, RefuseAnIndexOfNoRow) {
  for (const auto& [servers, workers] : {std::pair{1, 1}, {2, 2}}) {
    for (const int32_t wrong : {-1, 30}) {
      std::string refused;
      try {
        const auto look_up = [&](cluster::Context& context) {
          Negated network(40);
          network.table.set_on_servers();
          nn::MSELoss loss;
          nn::SGD optimizer;
          train::Model model(context, network, &loss, &optimizer,
                             {.parallel_mode = train::ParallelMode::kDataParallel, .servers = servers});
          model.predict({Tensor::of<int32_t>({4, 2}, {0, 5, 5, 29, 7, wrong, wrong, 1})});
        };
        run_ranks(servers + workers, look_up, {.ranks_per_host = 1});
      } catch (const Error& error) {
        refused = error.what();
      }
      EXPECT_THAT(refused, HasSubstr(fmt::format("row 2 holds {} at [2, 1]; an index of gather \"table\" must be from "
                                                 "0 to 29",
                                                 wrong)));
    }
  }
}

// Whether gradients are finite is looked at where they come to, also behind the last that has come.
TEST(ServersLookups, AreFiniteBehindTheLast) {
  const auto scaled = [](int64_t micro_batches) {
    return FieldsJob{.servers = 2,
                     .workers = 2,
                     .micro_batches = micro_batches,
                     .repeats = Repeats::kAll,
                     .loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 1024})};
  };
  for (const int64_t micro_batches : {1, 2}) expect_fields_of_one_device(scaled(micro_batches));
}

// Nothing is computed of rows but their means.
struct MeansOfRows : nn::Cell {
  nn::Embedding& table = child<nn::Embedding>("table", 2000, 256);
  using Cell::construct;
  ir::Value construct(ir::Value ids) override { return ops::reduce_mean(table(ids), {1}); }
};

// A server has room for the rows that it sends, and for their gradients where they come to: there it updates from.
TEST(ServersMemory, AServerHasNoCopyOfTheGradientsOfTheOnlyMicroBatch) {
  constexpr int64_t kIds = 1600;
  run_ranks(2, [&](cluster::Context& context) {
    MeansOfRows network;
    network.table.set_on_servers();
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.1});
    train::Model model(context, network, &loss, &optimizer,
                       {.parallel_mode = train::ParallelMode::kDataParallel,
                        .servers = 1,
                        .session = {.num_threads = 1, .kernel_choice = session::KernelChoice::kFixed}});
    Tensor ids(DType::kI32, {kIds});
    for (size_t i = 0; i < static_cast<size_t>(kIds); ++i) ids.values<int32_t>()[i] = static_cast<int32_t>(i / 2);
    const Tensor labels = Tensor::full({DType::kF32, {kIds}}, 1);
    const double first = model.train_step({ids.view(), labels.view()}, kIds);
    EXPECT_LT(model.train_step({ids.view(), labels.view()}, kIds), first);
    if (context.rank() > 0) return;
    const int64_t rows_bytes = kIds * 256 * 4;
    EXPECT_LT(model.session().arena_bytes() - model.session().values().layout().bytes, 2 * rows_bytes + rows_bytes / 2);
  });
}

// The table is four times what a server may have of it, and its moments are two more tables.
TEST(ServersMemory, IsNoMoreThanTheLimitOfValues) {
  const int64_t table_bytes = Rows::kNumbers * 8 * 4;
  const auto expected = train_rows(
      2, [](int, session::Session&, const char*) {}, 2);
  const auto look = [&](int rank, session::Session& session, const char* when) {
    const int64_t spilled = session.values().spilled_bytes();
    EXPECT_GE(spilled, rank < 2 ? 3 * table_bytes / 2 : 0) << when << ", rank " << rank;
    EXPECT_EQ(spilled > 0, rank < 2) << when << ", rank " << rank;
    EXPECT_LT(session.arena_bytes() - spilled, table_bytes / 4) << when << ", rank " << rank;
  };
  const auto found = train_rows(2, look, 2, table_bytes / 8);
  EXPECT_EQ(found.predicted, expected.predicted);
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.table, expected.table);
}

// All that there is lies on servers: workers have no parameter of their own.
struct TableAlone : nn::Cell {
  nn::Embedding& table = child<nn::Embedding>("table", 20, 10);
  using Cell::construct;
  ir::Value construct(ir::Value ids) override { return ops::tanh(table(ids)); }
};

// Workers compute nothing of a prediction.
struct Lookup : nn::Cell {
  nn::Embedding& table = child<nn::Embedding>("table", 20, 10);
  using Cell::construct;
  ir::Value construct(ir::Value ids) override { return table(ids); }
};

// A model of such a network, whose table servers keep, and the one batch that it has.
class ModelOfTable {
 public:
  explicit ModelOfTable(train::Model& model) : model_(model) {}
  double train() { return model_.train_step({ids_.view(), labels_.view()}, 6); }
  std::vector<double> predict() { return model_.predict({ids_}).to_doubles(); }

 private:
  train::Model& model_;
  Tensor ids_ = Tensor::of<int32_t>({6}, {3, 19, 7, 3, 11, 0});
  Tensor labels_ = Tensor::of<int32_t>({6}, {1, 2, 3, 4, 5, 6});
};

// What `use` returns is on every rank what one device gives.
template <typename Network>
void expect_as_on_one_device(const std::function<std::vector<double>(ModelOfTable)>& use) {
  const auto outcomes = [&](int servers, int workers) {
    std::vector<std::vector<double>> of_ranks(static_cast<size_t>(servers + workers));
    run_ranks(servers + workers, [&](cluster::Context& context) {
      Network network;
      if (servers > 0) network.table.set_on_servers();
      nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
      nn::LazyAdam optimizer({.learning_rate = 0.01});
      train::ModelOptions options{.seed = 3, .session = {.kernel_choice = session::KernelChoice::kFixed}};
      options.servers = servers;
      if (servers > 0) options.parallel_mode = train::ParallelMode::kDataParallel;
      train::Model model(context, network, &loss, &optimizer, options);
      of_ranks[static_cast<size_t>(context.rank())] = use(ModelOfTable(model));
    });
    return of_ranks;
  };
  const auto expected = outcomes(0, 1)[0];
  for (const auto& [servers, workers] : {std::pair{1, 1}, {2, 1}, {2, 3}}) {
    SCOPED_TRACE(fmt::format("{} servers, {} workers", servers, workers));
    for (const auto& outcome : outcomes(servers, workers)) {
      ASSERT_EQ(outcome.size(), expected.size());
      EXPECT_LE(relative_deviation(outcome, expected), 1e-5);
    }
  }
}

TEST(ServersOfTablesAlone, TrainAsOneDeviceDoes) {
  expect_as_on_one_device<TableAlone>([](ModelOfTable model) {
    std::vector<double> seen;
    for (int step = 0; step < 3; ++step) seen.push_back(model.train());
    for (const double value : model.predict()) seen.push_back(value);
    return seen;
  });
}

TEST(ServersOfTablesAlone, PredictWhatTheyLookUp) {
  expect_as_on_one_device<Lookup>([](ModelOfTable model) {
    std::vector<double> seen = model.predict();
    EXPECT_EQ(seen.size(), 60U);
    model.train();
    for (const double value : model.predict()) seen.push_back(value);
    return seen;
  });
}

// All ranks take rank 0's table, where the script has made one on each.
TEST(ServersInitialValues, AreThoseOfRankZero) {
  run_ranks(3, [&](cluster::Context& context) {
    Rows network;
    network.table.set_on_servers();
    for (nn::Parameter* parameter : network.parameters()) {
      if (parameter->on_servers) parameter->data = Tensor::full(parameter->type, context.rank() + 0.5);
    }
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::SGD optimizer;
    train::Model model(context, network, &loss, &optimizer,
                       {.parallel_mode = train::ParallelMode::kDataParallel, .servers = 2});
    for (const double element : model.value("table.embedding_table").to_doubles()) ASSERT_EQ(element, 0.5);
  });
}

TEST(ServersThatSpill, RefuseADirectoryThatIsNotThere) {
  std::string refused;
  try {
    run_ranks(2, [&](cluster::Context& context) {
      Rows network;
      network.table.set_on_servers();
      nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
      nn::SGD optimizer;
      train::Model model(context, network, &loss, &optimizer,
                         {.parallel_mode = train::ParallelMode::kDataParallel,
                          .servers = 1,
                          .server_memory_limit_bytes = 20000,
                          .spill_directory = "/nowhere at all"});
    });
  } catch (const Error& error) {
    refused = error.what();
  }
  EXPECT_THAT(refused,
              HasSubstr("the tables that rank 0 keeps need a file in \"/nowhere at all\", which cannot be made"));
  EXPECT_THAT(refused, HasSubstr("name a directory of a larger disk, spill_directory, or raise server_memory_limit"));
}

std::string refusal_of(int ranks, const train::ModelOptions& options, bool marks) {
  try {
    run_ranks(ranks, [&](cluster::Context& context) {
      const auto network = make_network("mlp", DType::kF64);
      if (marks) keep(*network, "");
      nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
      const auto optimizer = make_optimizer("sgd");
      train::Model model(context, *network, &loss, optimizer.get(), options);
      const auto batch = make_batch("mlp", 8, 0, DType::kF64);
      model.train_step({batch[0].view(), batch[1].view()}, 8);
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(ServersRefuse, WhatCannotBe) {
  using enum train::ParallelMode;
  EXPECT_THAT(refusal_of(2, {.parallel_mode = kDataParallel, .servers = 2}, true),
              HasSubstr("servers: 2 of 2 ranks are to keep parameters, which leaves none to train"));
  EXPECT_THAT(refusal_of(2, {.parallel_mode = kDataParallel, .servers = 1}, false),
              HasSubstr("but no parameter is set_on_servers(): call it on a cell that has some"));
  EXPECT_THAT(refusal_of(2, {.parallel_mode = kSemiAuto, .servers = 1}, true),
              HasSubstr("servers is not available in"));
  EXPECT_THAT(refusal_of(3, {.parallel_mode = kPipeline, .pipeline = {.stages = 3}, .servers = 1}, true),
              HasSubstr("servers are there in data_parallel, got pipeline_parallel"));
}

INSTANTIATE_TEST_SUITE_P(Matrix, Servers, testing::ValuesIn(jobs()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera::equivalence
