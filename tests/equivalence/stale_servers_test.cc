// Parameter servers whose workers do not wait for each other: how far they may be apart, what they learn, what they
// save, and what is refused. What is drawn here is drawn from seeds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/nn/optimizers/ftrl.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/testing/relative_deviation.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/testing/test_folder.h"
#include "tessera/train/metrics.h"
#include "tessera/train/model.h"
#include "tessera/train/modes/stages/stale_step.h"
#include "tessera/train/modes/stages/wanted_rows.h"
#include "tests/equivalence/networks.h"

namespace tessera::equivalence {
namespace {

using testing::HasSubstr;
using train::ServerStaleness;

std::unique_ptr<nn::Optimizer> make_optimizer(const std::string& name) {
  if (name == "sgd") return std::make_unique<nn::SGD>(nn::SGDOptions{.learning_rate = 0.2});
  if (name == "adam") return std::make_unique<nn::Adam>(nn::AdamOptions{.learning_rate = 0.01});
  if (name == "lazy_adam") return std::make_unique<nn::LazyAdam>(nn::LazyAdamOptions{.learning_rate = 0.01});
  if (name == "ftrl") return std::make_unique<nn::FTRL>(nn::FTRLOptions{.learning_rate = 0.05, .l1 = 1e-3});
  check_equal(name, "momentum", "optimizer of a job");
  return std::make_unique<nn::Momentum>(nn::MomentumOptions{.learning_rate = 0.03, .momentum = 0.8});
}

train::ModelOptions options_of(int servers, const ServerStaleness& staleness) {
  return {.parallel_mode = train::ParallelMode::kDataParallel,
          .servers = servers,
          .server_staleness = staleness,
          .seed = 3,
          .session = {.kernel_choice = session::KernelChoice::kFixed},
          .metrics = {train::mean_loss()}};
}

struct Trained {
  std::map<int, std::vector<double>> losses;  // by rank
  std::map<std::string, std::vector<double>> values;
  double predicted = 0;  // a number that all of the network's results make
};

struct Job {
  std::string network = "clicks";
  std::string optimizer = "momentum";
  int servers = 1;
  int workers = 2;
  int64_t rows = 8;
  int64_t steps = 5;
  bool is_same_batch = false;  // in all steps
  RunRanksOptions run = {};
};

// What a rank does before each step.
using Delay = std::function<void(int rank, int64_t step)>;
// Looks at a worker's step that is done.
using Look = std::function<void(int rank, int64_t step, const std::vector<int64_t>& seen)>;

Trained train(const Job& job, const ServerStaleness& staleness, const Delay& delay = {}, const Look& look = {}) {
  Trained trained;
  std::mutex mutex;
  const auto train_rank = [&](cluster::Context& context) {
    const auto network = make_network(job.network, DType::kF64);
    network->set_on_servers();
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    const auto optimizer = make_optimizer(job.optimizer);
    train::Model model(context, *network, &loss, optimizer.get(), options_of(job.servers, staleness));
    std::vector<double> losses;
    for (int64_t step = 0; step < job.steps; ++step) {
      if (delay) delay(context.rank(), step);
      const auto batch = make_batch(job.network, job.rows, job.is_same_batch ? 0 : step, DType::kF64);
      losses.push_back(model.train_step({batch[0].view(), batch[1].view()}, job.rows));
      const auto* done = dynamic_cast<const train::StaleStep*>(model.train_executable());
      if (look && context.rank() >= job.servers) look(context.rank(), step, done->seen());
    }
    std::map<std::string, std::vector<double>> values;
    for (const auto& name : model.names()) values[name] = model.value(name).to_doubles();
    double predicted = 0;
    for (const double element : model.predict({make_batch(job.network, job.rows, 0, DType::kF64)[0]}).to_doubles())
      predicted += element * element;
    const std::scoped_lock lock(mutex);
    trained.losses[context.rank()] = losses;
    if (trained.values.empty()) {
      trained.values = values;
      trained.predicted = predicted;
    }
    EXPECT_EQ(values, trained.values) << "ranks are told different values";
    EXPECT_EQ(predicted, trained.predicted) << "ranks are told different predictions";
  };
  run_ranks(job.servers + job.workers, train_rank, job.run);
  return trained;
}

TEST(BoundedStaleness, IsTheLawThatItsDefinitionSays) {
  const std::vector<int64_t> applied = {4, 2, 7};
  // Its own updates are always there.
  EXPECT_TRUE(train::may_begin(applied, 0, 5, ServerStaleness::asynchronous()));
  EXPECT_FALSE(train::may_begin(applied, 0, 6, ServerStaleness::asynchronous()));
  // Step 5 needs those of the others up to step 4 - bound.
  EXPECT_FALSE(train::may_begin(applied, 0, 5, ServerStaleness::steps(1)));
  EXPECT_TRUE(train::may_begin(applied, 0, 5, ServerStaleness::steps(2)));
  EXPECT_FALSE(train::may_begin(applied, 2, 8, ServerStaleness::steps(4)));
  EXPECT_TRUE(train::may_begin(applied, 2, 8, ServerStaleness::steps(5)));
  EXPECT_TRUE(train::may_begin(applied, 1, 3, ServerStaleness::steps(0)));
}

// Workers are held up at random: whatever a worker computes with, the bound says what it has seen of the others.
TEST(BoundedStaleness, HoldsForEachStepOfWorkersThatAreHeldUpAtRandom) {
  for (const int servers : {1, 2}) {
    for (const int bound : {0, 1, 3}) {
      for (const uint64_t seed : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} servers, bound {}, seed {}", servers, bound, seed));
        const Job job{.servers = servers, .workers = 3, .rows = 7, .steps = 6};
        const auto delay = [&](int rank, int64_t step) {
          const RandomStream stream{.seed = seed, .stream = static_cast<uint64_t>(rank), .step = 0};
          const auto turns = random_below(stream, static_cast<uint64_t>(step), 100);
          for (int64_t i = 0; i < static_cast<int64_t>(turns); ++i) std::this_thread::yield();
        };
        std::atomic<int64_t> looks = 0;
        train(job, ServerStaleness::steps(bound), delay, [&](int rank, int64_t step, const auto& seen) {
          ++looks;
          ASSERT_EQ(seen.size(), 3U);
          EXPECT_GE(seen[static_cast<size_t>(rank - servers)], step) << "a worker does not see its own updates";
          for (const int64_t count : seen) EXPECT_GE(count, step - bound) << "step " << step << " of rank " << rank;
          for (const int64_t count : seen) EXPECT_LE(count, step + bound + 1);
        });
        EXPECT_EQ(looks, 3 * job.steps);
      }
    }
  }
}

// A worker is slower than the others by many times the job's deadline, which is one of a wait for somebody who does
// nothing: they wait for it where all come together, and where the bound holds them, on one host and over several.
TEST(BoundedStaleness, WaitsForASlowWorkerAsLongAsItGoesOn) {
  constexpr int64_t kTimeoutMs = 4000;
  for (const int ranks_per_host : {0, 2}) {
    for (const auto& staleness : {ServerStaleness::steps(1), ServerStaleness::asynchronous()}) {
      SCOPED_TRACE(fmt::format("{} ranks a host, staleness {}", ranks_per_host, staleness.to_string()));
      const Job job{.servers = 2,
                    .workers = 3,
                    .rows = 6,
                    .steps = 8,
                    .run = {.timeout_ms = kTimeoutMs, .ranks_per_host = ranks_per_host}};
      const auto delay = [&](int rank, int64_t step) {
        if (rank == 4 && step > 0) std::this_thread::sleep_for(std::chrono::milliseconds(kTimeoutMs / 3));
      };
      const auto found = train(job, staleness, delay);
      EXPECT_EQ(found.values.at("global_step"), std::vector<double>{3.0 * 8});
      EXPECT_EQ(found.losses.size(), 5U);
    }
  }
}

// A worker that is held up until another one is ahead: no bound is none, and a bound is reached, not only kept.
TEST(BoundedStaleness, LetsAWorkerRunAheadAsFarAsItSays) {
  constexpr int kBound = 2;
  for (const auto& staleness : {ServerStaleness::steps(kBound), ServerStaleness::asynchronous()}) {
    SCOPED_TRACE(staleness.to_string());
    const Job job{.servers = 1, .workers = 2, .steps = 6};
    // The slow one has done a step: the first is compiled by all together.
    const int64_t ahead = staleness.is_bounded() ? kBound + 2 : job.steps;
    std::atomic<int64_t> done = 0;  // by the fast worker, rank 1
    const auto delay = [&](int rank, int64_t step) {
      if (rank != 2 || step != 1) return;
      while (done < ahead) std::this_thread::yield();
    };
    train(job, staleness, delay, [&](int rank, int64_t, const auto&) {
      if (rank == 1) ++done;
    });
    EXPECT_EQ(done, job.steps);
  }
}

// One worker that sees its own updates is one that servers wait for.
TEST(BoundedStaleness, OfOneWorkerHasTheLossesOfServersThatWait) {
  for (const char* optimizer : {"momentum", "sgd", "adam", "lazy_adam", "ftrl"}) {
    for (const char* network : {"clicks", "mlp", "translator"}) {
      SCOPED_TRACE(fmt::format("{} of {}", network, optimizer));
      const Job job{.network = network, .optimizer = optimizer, .servers = 1, .workers = 1};
      const auto waiting = train(job, {});
      const auto found = train(job, ServerStaleness::steps(0));
      EXPECT_EQ(found.losses.at(1), waiting.losses.at(1));
      EXPECT_EQ(found.losses.at(0), found.losses.at(1)) << "the server knows another loss";
      EXPECT_EQ(found.values, waiting.values);
    }
  }
}

TEST(StaleServers, LearnWithEachOptimizer) {
  for (const auto& staleness : {ServerStaleness::steps(2), ServerStaleness::asynchronous()}) {
    for (const char* optimizer : {"momentum", "sgd", "adam", "lazy_adam", "ftrl"}) {
      for (const char* network : {"clicks", "mlp"}) {
        SCOPED_TRACE(fmt::format("{} of {}, staleness {}", network, optimizer, staleness.to_string()));
        const Job job{.network = network,
                      .optimizer = optimizer,
                      .servers = 2,
                      .workers = 3,
                      .rows = 10,
                      .steps = 40,
                      .is_same_batch = true};
        const auto found = train(job, staleness);
        for (const auto& [rank, losses] : found.losses) {
          EXPECT_LT(losses.back(), 0.7 * losses.front()) << "rank " << rank;
        }
        // Each worker's step is an update.
        EXPECT_EQ(found.values.at("global_step"), std::vector<double>{120});
      }
    }
  }
}

// A bias has fewer rows than there are servers, so each has all of it: they update in one order.
TEST(StaleServers, HaveEqualCopies) {
  run_ranks(5, [](cluster::Context& context) {
    nn::Dense network(4, 2);
    network.set_on_servers();
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::Adam optimizer({.learning_rate = 0.01});
    train::Model model(context, network, &loss, &optimizer, options_of(3, ServerStaleness::asynchronous()));
    const Tensor labels = Tensor::of<int32_t>({4}, {0, 1, 1, 0});
    for (int step = 0; step < 20; ++step) {
      const Tensor x = Tensor::full({DType::kF32, {4, 4}}, 0.1 * (1 + step % 3));
      model.train_step({x.view(), labels.view()}, 4);
    }
    for (const char* name : {"bias", "weight", "moment1.bias", "global_step"}) {
      const bool is_server = context.rank() < 3;
      ASSERT_TRUE(model.session().is_split(name)) << name;
      const Tensor own = is_server ? model.session().values().read(name) : Tensor();
      const Tensor first = model.value(name);
      if (!is_server) continue;
      const auto slice = mesh::slice_of(first.type().shape, model.session().layout(name)->sharding,
                                        model.session().layout(name)->mesh, context.rank());
      EXPECT_EQ(own.to_doubles(), Tensor::copy_of(mesh::piece_of(first.view(), slice)).to_doubles()) << name;
    }
  });
}

// A save is of one state of the whole job, which any job goes on from.
TEST(StaleServers, SaveWhatAllWorkersHaveDone) {
  const TestFolder folder("stale-servers-test");
  const std::string path = folder.in("stale.ckpt");
  std::mutex mutex;
  std::vector<double> steps;
  const auto go_on = [&](int servers, int workers, const ServerStaleness& staleness, bool loads) {
    run_ranks(servers + workers, [&](cluster::Context& context) {
      const auto network = make_network("clicks", DType::kF64);
      network->set_on_servers();
      nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
      nn::Adam optimizer({.learning_rate = 0.01});
      train::Model model(context, *network, &loss, &optimizer, options_of(servers, staleness));
      if (loads) model.load_checkpoint(path, {.accept_other_jobs = true});
      for (int64_t step = 0; step < 4; ++step) {
        const auto batch = make_batch("clicks", 8, step, DType::kF64);
        model.train_step({batch[0].view(), batch[1].view()}, 8);
      }
      const auto before = model.value("deep.embedding_table").to_doubles();
      model.save_checkpoint(path, {.integrated = true});
      model.load_checkpoint(path);
      EXPECT_EQ(model.value("deep.embedding_table").to_doubles(), before);
      const double done = model.value("global_step").to_doubles()[0];
      const std::scoped_lock lock(mutex);
      if (context.rank() == 0) steps.push_back(done);
    });
  };
  go_on(2, 3, ServerStaleness::asynchronous(), false);
  go_on(1, 2, ServerStaleness::steps(1), true);
  go_on(2, 2, {}, true);
  EXPECT_THAT(steps, testing::ElementsAre(12, 20, 24));
}

struct Normalized : nn::Cell {
  nn::Dense& up = child<nn::Dense>("up", 12, 10);
  nn::BatchNorm1d& norm = child<nn::BatchNorm1d>("norm", 10);
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return norm(up(x)); }
};

std::string refusal_of(const std::function<void(train::ModelOptions&)>& change, bool marks_all = true,
                       bool normalizes = false, int64_t rows = 8) {
  try {
    run_ranks(4, [&](cluster::Context& context) {
      std::unique_ptr<nn::Cell> network = make_network("mlp", DType::kF32);
      if (normalizes) network = std::make_unique<Normalized>();
      if (marks_all) {
        network->set_on_servers();
      } else {
        network->trainable_parameters().front()->on_servers = true;
      }
      nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
      const auto optimizer = make_optimizer("sgd");
      auto options = options_of(1, ServerStaleness::steps(1));
      change(options);
      train::Model model(context, *network, &loss, optimizer.get(), options);
      const auto batch = make_batch("mlp", rows, 0, DType::kF32);
      model.train_step({batch[0].view(), batch[1].view()}, rows);
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(StaleServers, RefuseWhatCannotBe) {
  const auto nothing = [](train::ModelOptions&) {};
  EXPECT_EQ(refusal_of(nothing), "nothing was thrown");
  EXPECT_THAT(refusal_of(nothing, false), HasSubstr("is not set_on_servers(): what workers train among themselves"));
  EXPECT_THAT(refusal_of(nothing, true, true), HasSubstr("the network assigns \"norm.moving_mean\""));
  EXPECT_THAT(refusal_of(nothing, true, false, 2), HasSubstr("a batch of 2 rows has none for some of the 3 workers"));
  EXPECT_THAT(refusal_of([](auto& o) { o.precision = DType::kF16; }),
              HasSubstr("server_staleness is not there with a loss scale"));
  EXPECT_THAT(refusal_of([](auto& o) { o.pipeline.micro_batches = 2; }),
              HasSubstr("not there with pipeline.micro_batches"));
  EXPECT_THAT(refusal_of([](auto& o) { o.parallel_optimizer = true; }), HasSubstr("not there with parallel_optimizer"));
  EXPECT_THAT(refusal_of([](auto& o) { o.session.device = "cuda"; }), HasSubstr("not there with another device"));
  EXPECT_THAT(refusal_of([](auto& o) { o.gradient_accumulation_steps = 2; }), HasSubstr("set pipeline.micro_batches"));
  EXPECT_THAT(refusal_of([](auto& o) {
                o.parallel_mode = train::ParallelMode::kSemiAuto;
                o.servers = 0;
              }),
              HasSubstr("server_staleness is not available in semi_auto_parallel"));
  EXPECT_THAT(refusal_of([](auto& o) {
                o.parallel_mode = train::ParallelMode::kPipeline;
                o.servers = 0;
                o.pipeline.stages = 2;
              }),
              HasSubstr("server_staleness 1 is of parameter servers, of which a pipeline has none"));
}

// One worker finds it: the job ends with its words, nobody waits.
TEST(StaleServers, EndWithTheWorkerThatFails) {
  EXPECT_THAT(
      [] {
        run_ranks(4, [](cluster::Context& context) {
          const auto network = make_network("clicks", DType::kF64);
          network->set_on_servers();
          nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
          nn::SGD optimizer;
          train::Model model(context, *network, &loss, &optimizer, options_of(2, ServerStaleness::asynchronous()));
          for (int64_t step = 0; step < 3; ++step) {
            auto batch = make_batch("clicks", 4, step, DType::kF64);
            if (context.rank() == 3 && step == 1) batch[0].values<int32_t>().back() = 1 << 20;
            model.train_step({batch[0].view(), batch[1].view()}, 4);
          }
        });
      },
      testing::ThrowsMessage<InvalidArgument>(HasSubstr("asks for row 1048576")));
}

// Ranks whose last act is a step, of so many, by rank.
void train_and_end(int servers, int workers, const std::function<int64_t(int rank)>& steps_of) {
  run_ranks(servers + workers, [&](cluster::Context& context) {
    const auto network = make_network("mlp", DType::kF64);
    network->set_on_servers();
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::SGD optimizer;
    train::Model model(context, *network, &loss, &optimizer, options_of(servers, ServerStaleness::steps(4)));
    for (int64_t step = 0; step < steps_of(context.rank()); ++step) {
      const auto batch = make_batch("mlp", 4, step, DType::kF64);
      model.train_step({batch[0].view(), batch[1].view()}, 4);
    }
  });
}

// Who ends sooner than the others is named: they would wait for ever.
TEST(StaleServers, NameTheWorkerThatTrainsForFewerSteps) {
  EXPECT_THAT([] { train_and_end(1, 2, [](int rank) { return rank == 2 ? 2 : 3; }); },
              testing::ThrowsMessage<Error>(HasSubstr("worker 1 (rank 2) has ended its training after 2 steps")));
}

TEST(StaleServers, NameTheServerThatEndsWhileWorkersTrainOn) {
  for (const int server : {0, 1}) {
    SCOPED_TRACE(server);
    EXPECT_THAT([&] { train_and_end(2, 2, [&](int rank) { return rank == server ? 2 : 6; }); },
                testing::ThrowsMessage<Error>(testing::AllOf(
                    HasSubstr(fmt::format("rank {}: parameter server {} (rank {}) has ended while worker", server,
                                          server, server)),
                    HasSubstr("trains on, after "))));
  }
}

class Fail : public train::Callback {
 public:
  explicit Fail(int rank) : rank_(rank) {}
  void step_end(train::RunContext& run) override {
    if (run.model.context().rank() == rank_ && run.step == 3) throw IoError("the server's own words");
  }

 private:
  int rank_;
};

// A server's callback throws when workers wait for it, or are ahead: the others hear its words, and not that a server
// has failed.
TEST(StaleServers, TellTheWordsOfAServerThatFails) {
  for (const int server : {0, 1}) {
    SCOPED_TRACE(server);
    std::mutex mutex;
    std::map<int, std::string> heard;
    const auto train_one = [&](cluster::Context& context) {
      const auto network = make_network("mlp", DType::kF64);
      network->set_on_servers();
      nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
      nn::SGD optimizer;
      try {
        train::Model model(context, *network, &loss, &optimizer, options_of(2, ServerStaleness::asynchronous()));
        std::vector<Tensor> batch = make_batch("mlp", 24, 0, DType::kF64);
        const auto rows = data::tensors({{"x", batch[0]}, {"label", batch[1]}}).batch(4);
        model.train(4, rows, {Fail(server)});
      } catch (const Error& error) {
        const std::scoped_lock lock(mutex);
        heard[context.rank()] = error.what();
        throw;
      }
    };
    EXPECT_THAT([&] { run_ranks(4, train_one); },
                testing::ThrowsMessage<Error>(HasSubstr(fmt::format("rank {}: the server's own words", server))));
    EXPECT_EQ(heard.size(), 4U);
    for (const auto& [rank, words] : heard) EXPECT_THAT(words, HasSubstr("the server's own words")) << rank;
  }
}

// A row that a batch looks up several times is asked for, and travels, once.
TEST(WantedRows, AreAskedForOnceEachOfTheServerThatGivesThem) {
  using Place = train::WantedRows::PlaceOfRow;
  const mesh::Range given[] = {{0, 10}, {10, 10}, {0, 0}};
  const int64_t numbers[] = {3, 19, 3, 10, 19, 3, 0};
  const auto wanted = train::wanted_rows(numbers, given);
  EXPECT_FALSE(wanted.unknown);
  ASSERT_EQ(wanted.servers.size(), 3U);
  EXPECT_THAT(wanted.servers[0].rows, testing::ElementsAre(3, 0));
  EXPECT_THAT(wanted.servers[0].places, testing::ElementsAre(Place{0, 0}, Place{2, 0}, Place{5, 0}, Place{6, 1}));
  EXPECT_THAT(wanted.servers[1].rows, testing::ElementsAre(9, 0));
  EXPECT_THAT(wanted.servers[1].places, testing::ElementsAre(Place{1, 0}, Place{3, 1}, Place{4, 0}));
  EXPECT_TRUE(wanted.servers[2].rows.empty());
}

TEST(WantedRows, SayWhichPlaceAsksForARowThatNoServerGives) {
  const mesh::Range given[] = {{0, 10}};
  for (const int64_t number : {int64_t{10}, int64_t{-1}}) {
    const int64_t numbers[] = {3, number, 3};
    EXPECT_EQ(train::wanted_rows(numbers, given).unknown, std::optional<size_t>(1));
  }
}

// What is larger than the training step can need is refused before there is room for it, with the sender's number.
TEST(ServerExchange, TakesNoMessageThatIsNoneOfTheTraining) {
  using train::ServerExchange;
  using Head = ServerExchange::Head;
  using Kind = ServerExchange::Kind;
  const auto refusal = [](const Head& head, size_t bytes) -> std::string {
    const auto exchange_once = [&](cluster::Context& context) {
      ServerExchange exchange(context, mesh::StageRanks({1, 2}));
      if (context.rank() == 0) {
        exchange.allow(0, {{.most_pulled = 128, .pushed = 64}, {.most_pulled = 128, .pushed = 64}});
        while (true) exchange.take([] { return ServerExchange::Awaited{.rank = 2, .step = 1, .words = "a message"}; });
      } else if (context.rank() == 2) {
        exchange.send(0, head, std::vector<std::byte>(bytes));
      }
    };
    try {
      run_ranks(3, exchange_once);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(refusal({.kind = Kind::kPush, .step = 1}, 128),
              HasSubstr("rank 2 has sent 128 bytes where 64 are expected"));
  EXPECT_THAT(refusal({.kind = Kind::kPush, .step = 1}, 32), HasSubstr("32 bytes where 64 are expected"));
  EXPECT_THAT(refusal({.kind = Kind::kPull, .step = 1}, 192), HasSubstr("192 bytes where at most 128 are expected"));
  EXPECT_THAT(refusal({.kind = Kind::kPull, .step = 1, .graph = 7}, 8), HasSubstr("training graph 7"));
  EXPECT_THAT(refusal({.kind = Kind::kApply, .step = 1}, 0), HasSubstr("a message of kind 3"));
  EXPECT_THAT(refusal({.kind = static_cast<Kind>(99)}, 0), HasSubstr("a message of kind 99"));
  EXPECT_THAT(refusal({.kind = Kind::kStop}, 8), HasSubstr("8 bytes in a message of kind 4, which has none"));
}

// One rank evaluates where the others train on: no rank waits until the deadline.
TEST(StaleServers, NameTheWorkerThatMakesAnotherCall) {
  const auto train_one = [](cluster::Context& context) {
    const auto network = make_network("mlp", DType::kF64);
    network->set_on_servers();
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::SGD optimizer;
    train::Model model(context, *network, &loss, &optimizer, options_of(1, ServerStaleness::asynchronous()));
    for (int64_t step = 0; step < 6; ++step) {
      const auto batch = make_batch("mlp", 4, step, DType::kF64);
      model.train_step({batch[0].view(), batch[1].view()}, 4);
      if (context.rank() == 2 && step == 3) model.value("global_step");
    }
  };
  EXPECT_THAT([&] { run_ranks(3, train_one, {.timeout_ms = 600'000}); },
              testing::ThrowsMessage<Error>(testing::AllOf(
                  HasSubstr("worker 1 (rank 2) waits in an evaluation, a prediction, a save or the end of a training"),
                  HasSubstr("after 4 steps, parameter servers wait for step 5"))));
}

// Stops the training of one rank, or of all, after so many steps of a call of train().
class Stop : public train::Callback {
 public:
  explicit Stop(int rank, int64_t after = 1) : rank_(rank), after_(after) {}
  void step_end(train::RunContext& run) override {
    const bool is_meant = rank_ < 0 || run.model.context().rank() == rank_;
    if (is_meant && run.step_in_epoch == after_) run.request_stop();
  }

 private:
  int rank_;
  int64_t after_;
};

// Two trainings, in the second of which a callback stops one rank, or all.
void train_and_stop(int rank_that_stops) {
  const auto train_twice = [&](cluster::Context& context) {
    const auto network = make_network("mlp", DType::kF64);
    network->set_on_servers();
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::SGD optimizer;
    train::Model model(context, *network, &loss, &optimizer, options_of(2, ServerStaleness::asynchronous()));
    std::vector<Tensor> batch = make_batch("mlp", 24, 0, DType::kF64);
    const auto rows = data::tensors({{"x", batch[0]}, {"label", batch[1]}}).batch(4);
    model.train(1, rows, {Stop(-1, 3)});
    model.train(1, rows, {Stop(rank_that_stops, 2)});
  };
  run_ranks(4, train_twice, {.timeout_ms = 600'000});
}

TEST(StaleServers, NameTheWorkerWhoseTrainingACallbackStops) {
  EXPECT_THAT([] { train_and_stop(3); },
              testing::ThrowsMessage<Error>(testing::AllOf(
                  HasSubstr("worker 1 (rank 3) has ended its training after 5 steps"),
                  HasSubstr("a callback that stops a training, by request_stop(), must do so on all ranks"))));
}

// What was stopped in one training is forgotten in the next.
TEST(StaleServers, GoOnAfterATrainingThatAllHaveStopped) {
  for (int i = 0; i < 20; ++i) EXPECT_NO_THROW(train_and_stop(-1));
}

// Once a worker's part is done it may end while servers wait for others.
TEST(StaleServers, LetWorkersEndOneByOne) {
  for (int i = 0; i < 40; ++i) train_and_end(2, 3, [](int) { return 1; });
}

}  // namespace
}  // namespace tessera::equivalence
