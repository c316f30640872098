// What passes between parameter servers and workers of the rows of a table: between hosts each row once for a worker,
// however often its part of a batch names it, and losses and values to the bit those of one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/mesh/mesh.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/testing/wrapped_context.h"
#include "tessera/train/model.h"

namespace tessera::equivalence {
namespace {

// The bytes of messages from a rank to another one, by their numbers.
class Traffic {
 public:
  void add(int from, int to, int64_t bytes) {
    const std::scoped_lock lock(mutex_);
    bytes_[{from, to}] += bytes;
  }
  const std::map<std::pair<int, int>, int64_t>& bytes() const { return bytes_; }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, int>, int64_t> bytes_;
};

// Counts what is sent, and passes all calls on.
class CountingCommunicator final : public comm::Communicator {
 public:
  CountingCommunicator(comm::Communicator& inner, Traffic& traffic)
      : Communicator(inner.name(), inner.rank(), inner.ranks()), inner_(inner), traffic_(traffic) {}

  void all_reduce(void* data, int64_t count, DType dtype, ReduceOp op, std::string_view who) override {
    inner_.all_reduce(data, count, dtype, op, who);
  }
  void all_gather(const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                  std::string_view who) override {
    inner_.all_gather(in, out, counts, dtype, who);
  }
  void reduce_scatter(const void* in, void* out, std::span<const int64_t> counts, DType dtype, ReduceOp op,
                      std::string_view who) override {
    inner_.reduce_scatter(in, out, counts, dtype, op, who);
  }
  void broadcast(void* data, int64_t count, DType dtype, int root, std::string_view who) override {
    inner_.broadcast(data, count, dtype, root, who);
  }
  void all_to_all(const void* in, std::span<const int64_t> in_counts, void* out, std::span<const int64_t> out_counts,
                  DType dtype, std::string_view who) override {
    inner_.all_to_all(in, in_counts, out, out_counts, dtype, who);
  }
  void send(const void* data, int64_t count, DType dtype, int to, std::string_view who) override {
    traffic_.add(ranks()[static_cast<size_t>(rank())], ranks()[static_cast<size_t>(to)],
                 count * static_cast<int64_t>(size_bytes(dtype)));
    inner_.send(data, count, dtype, to, who);
  }
  void receive(void* data, int64_t count, DType dtype, int from, std::string_view who) override {
    inner_.receive(data, count, dtype, from, who);
  }
  void barrier(std::string_view who) override { inner_.barrier(who); }
  void share_core() override { inner_.share_core(); }
  int64_t wait_without_deadline() override { return inner_.wait_without_deadline(); }
  int64_t deadline_ms() const override { return inner_.deadline_ms(); }
  comm::JobState* job() override { return inner_.job(); }
  void set_driver(Driver driver) override { inner_.set_driver(driver); }

 private:
  comm::Communicator& inner_;
  Traffic& traffic_;
};

class CountingContext final : public WrappedContext {
 public:
  CountingContext(cluster::Context& inner, Traffic& traffic) : WrappedContext(inner), traffic_(traffic) {}

  comm::Communicator* create_group(const std::string& name, const std::vector<int>& ranks) override {
    comm::Communicator* inner = WrappedContext::create_group(name, ranks);
    if (inner == nullptr) return nullptr;
    return (counting_[name] = std::make_unique<CountingCommunicator>(*inner, traffic_)).get();
  }
  void destroy_group(const std::string& name) override {
    counting_.erase(name);
    WrappedContext::destroy_group(name);
  }

 private:
  Traffic& traffic_;
  std::map<std::string, std::unique_ptr<CountingCommunicator>> counting_;
};

constexpr int64_t kRows = 40;  // of the table
constexpr int64_t kIds = 32;   // of a batch
constexpr int64_t kSteps = 4;

// Its numbers and those of its gradients are fractions of a power of two, with fewer bits than float64 has in a few
// steps: nothing is rounded, so that sums are the same in any order.
struct MeansOfRows : nn::Cell {
  explicit MeansOfRows(int64_t size)
      : table(child<nn::Embedding>("table", kRows, size, nn::EmbeddingOptions{.embedding_table = "zeros"})) {}
  nn::Embedding& table;
  using Cell::construct;
  ir::Value construct(ir::Value ids) override { return ops::reduce_mean(table(ids), {1}); }
};

// How the ids of a batch repeat.
enum class Repeats { kNone, kAll, kNeighbours, kAcrossWorkers };

int32_t id_at(Repeats repeats, int64_t step, int64_t place) {
  if (repeats == Repeats::kAll) return 7;
  int64_t id = place;
  if (repeats == Repeats::kNeighbours) id = place / 3;
  if (repeats == Repeats::kAcrossWorkers) id = place % 5;
  return static_cast<int32_t>((id + 3 * step) % kRows);
}

Tensor ids_of(Repeats repeats, int64_t step) {
  Tensor ids(DType::kI32, {kIds});
  const auto values = ids.values<int32_t>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = id_at(repeats, step, static_cast<int64_t>(i));
  return ids;
}

struct Job {
  int servers = 0;  // 0: one device
  int workers = 1;
  int64_t size = 32;  // of a row, of which each element has 8 bytes
  Repeats repeats = Repeats::kNone;
  int ranks_per_host = 1;  // 0: all are on one
  int64_t memory_limit = 0;
  bool parallel_optimizer = false;
  bool debug = false;
};

struct Outcome {
  std::vector<double> losses;
  std::vector<double> table;
  std::map<std::pair<int, int>, int64_t> bytes;  // from a rank to another one, of all steps
};

Outcome train(const Job& job) {
  Outcome outcome;
  Traffic traffic;
  std::mutex mutex;
  const auto serve = [&](cluster::Context& inner) {
    CountingContext context(inner, traffic);
    MeansOfRows network(job.size);
    nn::set_parameter_dtype(network, DType::kF64);
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 2.0 * static_cast<double>(job.size)});
    train::ModelOptions options{.session = {.debug = job.debug, .kernel_choice = session::KernelChoice::kFixed}};
    if (job.servers > 0) {
      network.table.set_on_servers();
      options.parallel_mode = train::ParallelMode::kDataParallel;
      options.servers = job.servers;
      options.server_memory_limit_bytes = job.memory_limit;
      options.parallel_optimizer = job.parallel_optimizer;
      options.parallel_optimizer_threshold = 0;
    }
    train::Model model(context, network, &loss, &optimizer, options);
    std::vector<double> losses;
    for (int64_t step = 0; step < kSteps; ++step) {
      const Tensor ids = ids_of(job.repeats, step);
      Tensor labels(DType::kF64, {kIds});
      for (size_t i = 0; i < labels.values<double>().size(); ++i)
        labels.values<double>()[i] = static_cast<double>(i % 4);
      losses.push_back(model.train_step({ids.view(), labels.view()}, kIds));
    }
    const auto table = model.value("table.embedding_table").to_doubles();
    const std::scoped_lock lock(mutex);
    if (outcome.losses.empty()) outcome = {losses, table, {}};
    EXPECT_EQ(losses, outcome.losses) << "ranks are told different losses";
    EXPECT_EQ(table, outcome.table) << "ranks have different values";
  };
  run_ranks(job.servers + job.workers, serve, {.ranks_per_host = job.ranks_per_host});
  outcome.bytes = traffic.bytes();
  return outcome;
}

TEST(ServersTraffic, OfRepeatedIdsHasTheBitsOfOneDevice) {
  using enum Repeats;
  for (const Repeats repeats : {kNone, kAll, kNeighbours, kAcrossWorkers}) {
    const Outcome alone = train({.repeats = repeats});
    EXPECT_NE(alone.losses.front(), alone.losses.back());
    for (const auto& [servers, workers] : {std::pair{1, 1}, {1, 2}, {1, 4}, {2, 1}, {2, 4}, {3, 2}}) {
      SCOPED_TRACE(fmt::format("repeats {}, {} servers, {} workers", static_cast<int>(repeats), servers, workers));
      const Outcome found = train({.servers = servers, .workers = workers, .repeats = repeats});
      EXPECT_EQ(found.losses, alone.losses);
      EXPECT_EQ(found.table, alone.table);
    }
  }
  // On one host, where rows are read for each place, and where they are long.
  for (const int64_t size : {32, 128}) {
    const Outcome alone = train({.size = size, .repeats = kAcrossWorkers});
    for (const auto& [servers, workers] : {std::pair{1, 2}, {2, 1}}) {
      SCOPED_TRACE(fmt::format("rows of {}, {} servers, {} workers on one host", size, servers, workers));
      const Outcome found =
          train({.servers = servers, .workers = workers, .size = size, .repeats = kAcrossWorkers, .ranks_per_host = 0});
      EXPECT_EQ(found.losses, alone.losses);
      EXPECT_EQ(found.table, alone.table);
    }
  }
}

// The rows that the workers' parts of the batches name, by worker and step: at how many places, and how many of them
// there are.
struct Named {
  int64_t places = 0;
  int64_t rows = 0;
};

std::vector<Named> named_by_workers(const Job& job) {
  std::vector<Named> named;
  int64_t first = 0;
  for (const int64_t size : mesh::balanced_sizes(kIds, job.workers)) {
    Named& own = named.emplace_back();
    for (int64_t step = 0; step < kSteps; ++step) {
      std::set<int32_t> rows;
      for (int64_t place = first; place < first + size; ++place) rows.insert(id_at(job.repeats, step, place));
      own.places += size;
      own.rows += std::ssize(rows);
    }
    first += size;
  }
  return named;
}

TEST(ServersTraffic, HasEachRowOnceForAWorkerBothWays) {
  using enum Repeats;
  for (const Repeats repeats : {kNone, kAll, kNeighbours, kAcrossWorkers}) {
    for (const int workers : {1, 2, 3}) {
      const Job job{.servers = 1, .workers = workers, .repeats = repeats};
      SCOPED_TRACE(fmt::format("repeats {}, {} workers", static_cast<int>(repeats), workers));
      const Outcome found = train(job);
      const auto named = named_by_workers(job);
      for (int worker = 0; worker < workers; ++worker) {
        const auto& [places, rows] = named[static_cast<size_t>(worker)];
        // There a list of places goes before the rows, and back their numbers: 4 bytes of each place.
        EXPECT_EQ(found.bytes.at({0, 1 + worker}), 4 * places + 8 * job.size * rows) << "to worker " << worker;
        EXPECT_EQ(found.bytes.at({1 + worker, 0}), 4 * places + 8 * job.size * rows) << "from worker " << worker;
      }
    }
  }
}

// Rows of 512 bytes or less are looked up and read for each place, longer ones where the table lies: where that is, is
// said of each place in 8 bytes. Gradients of both come back once.
TEST(ServersTraffic, HasLongRowsWhereTheTableLiesWithinAHost) {
  for (const auto& [size, is_in_place] : {std::pair{64, false}, {128, true}}) {
    const Job job{.servers = 1, .workers = 2, .size = size, .repeats = Repeats::kAcrossWorkers, .ranks_per_host = 0};
    const Outcome found = train(job);
    const auto named = named_by_workers(job);
    for (int worker = 0; worker < 2; ++worker) {
      const auto& [places, rows] = named[static_cast<size_t>(worker)];
      const int64_t once = 4 * places + 8 * size * rows;
      const int64_t to_worker = is_in_place ? 8 * places + kSteps * 8 * size * kRows : 8 * size * places;
      EXPECT_EQ(found.bytes.at({0, 1 + worker}), to_worker) << "to worker " << worker;
      EXPECT_EQ(found.bytes.at({1 + worker, 0}), once) << "from worker " << worker;
    }
  }
}

// Whatever else is asked of the servers of long rows on one host.
TEST(ServersTraffic, HasLongRowsWhereverTheTableLies) {
  const Job plain{.workers = 2, .size = 128, .repeats = Repeats::kAcrossWorkers, .ranks_per_host = 0};
  Job spilling = plain;
  spilling.memory_limit = 2000;
  Job sharding = plain;
  sharding.parallel_optimizer = true;
  Job debugging = plain;
  debugging.debug = true;
  const Outcome alone = train({.size = 128, .repeats = Repeats::kAcrossWorkers});
  const auto named = named_by_workers(plain);
  for (const int servers : {1, 2}) {
    for (Job job : {spilling, sharding, debugging}) {
      job.servers = servers;
      SCOPED_TRACE(fmt::format("{} servers, limit {}, parallel optimizer {}, debug {}", servers, job.memory_limit,
                               job.parallel_optimizer, job.debug));
      const Outcome found = train(job);
      EXPECT_EQ(found.losses, alone.losses);
      EXPECT_EQ(found.table, alone.table);
      if (servers > 1) continue;
      const bool is_in_place = job.memory_limit == 0;
      for (int worker = 0; worker < 2; ++worker) {
        const auto& [places, rows] = named[static_cast<size_t>(worker)];
        const int64_t to_worker =
            is_in_place ? 8 * places + kSteps * 8 * job.size * kRows : 4 * places + 8 * job.size * rows;
        EXPECT_EQ(found.bytes.at({0, 1 + worker}), to_worker) << "to worker " << worker;
      }
    }
  }
}

// What is longer to find than to send.
TEST(ServersTraffic, HasARowOf64BytesAtEachPlace) {
  const Job job{.servers = 1, .workers = 2, .size = 8, .repeats = Repeats::kAll};
  const Outcome found = train(job);
  EXPECT_EQ(found.losses, train({.size = 8, .repeats = Repeats::kAll}).losses);
  for (int worker = 1; worker <= 2; ++worker) {
    EXPECT_EQ(found.bytes.at({0, worker}), kSteps * kIds / 2 * 64);
    EXPECT_EQ(found.bytes.at({worker, 0}), kSteps * kIds / 2 * 64);
  }
}

}  // namespace
}  // namespace tessera::equivalence
