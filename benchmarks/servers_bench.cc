// Rows of a table that parameter servers keep, for benchmarks/run servers: pulled, or pulled, their gradients pushed
// and the rows updated. Processes of one thread each.
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstring>
#include <vector>

#include "benchmarks/protocol.h"
#include "benchmarks/rank_processes.h"
#include "tessera/base/strings.h"
#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::benchmarks {
namespace {

struct Options {
  int64_t mib = 32;
  int64_t dim = 64;
  int64_t ids = 4096;
  int servers = 1;
  int workers = 1;
  bool pull_only = false;
  bool all_different = false;  // no row comes twice in a batch
  bool on_hosts = false;       // ranks pretend to be on a host each
  bool only_memory = false;    // rows are copied by one process, and nothing else is done
  bool only_socket = false;    // rows are copied by one process, and carried to another and back by a socket
  int64_t limit_mib = 0;       // of a server's rows; beyond it they lie in a file
  std::string optimizer = "sgd";

  int64_t rows() const { return std::max<int64_t>(1, (mib << 20) / (dim * 4)); }
  int num_ranks() const { return servers + workers; }
};

constexpr int kWarmupSteps = 3;
constexpr uint64_t kBatches = 16;  // that take turns

struct Table : nn::Cell {
  explicit Table(const Options& o) : embedding(child<nn::Embedding>("embedding", o.rows(), o.dim)) {}
  nn::Embedding& embedding;
  using nn::Cell::construct;
  nn::Value construct(nn::Value ids) override { return ops::reduce_mean(embedding(ids), {1}); }
};

// By Zipf's law: the row of rank r comes with a probability like 1/r. Neighbours by rank lie apart, and no two ranks
// have one row.
Tensor draw_ids(const Options& o, uint64_t batch) {
  Tensor ids(DType::kI32, {o.ids});
  const auto values = ids.values<int32_t>();
  const auto rows = static_cast<uint64_t>(o.rows());
  const auto draw_rank = [&](size_t i) {
    const double uniform = random_open_uniform({.seed = 1, .stream = batch}, i);
    return static_cast<uint64_t>(std::exp(uniform * std::log(static_cast<double>(rows))));
  };
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t rank = o.all_different ? (batch * values.size() + i) % rows : draw_rank(i);
    values[i] = static_cast<int32_t>(rank * 2654435761U % rows);
  }
  return ids;
}

std::unique_ptr<nn::Optimizer> make_optimizer(const std::string& name) {
  if (name == "lazy_adam") return std::make_unique<nn::LazyAdam>(nn::LazyAdamOptions{.learning_rate = 1e-3});
  return std::make_unique<nn::SGD>(nn::SGDOptions{.learning_rate = 1});
}

class Training {
 public:
  Training(cluster::Context& context, const Options& options)
      : options_(options), network_(options), optimizer_(make_optimizer(options.optimizer)) {
    network_.embedding.set_on_servers();
    model_ = std::make_unique<train::Model>(
        context, network_, &loss_, optimizer_.get(),
        train::ModelOptions{.parallel_mode = train::ParallelMode::kDataParallel,
                            .servers = options.servers,
                            .server_memory_limit_bytes = options.limit_mib << 20,
                            .session = {.num_threads = 1, .arena_capacity_bytes = int64_t{16} << 30}});
    for (uint64_t batch = 0; batch < kBatches; ++batch) batches_.push_back(draw_ids(options, batch));
    labels_ = Tensor::full({DType::kF32, {options.ids}}, 1);
    if (context.rank() == 0 && (options.limit_mib > 0) != (spilled_bytes() > 0)) {
      throw Error(
          fmt::format("{} lie in a file, with a limit of {} MiB", format_bytes(spilled_bytes()), options.limit_mib));
    }
    first_loss_ = step();
  }

  double seconds_of_steps(int count) {
    const int64_t begin = Clock::system().monotonic_ns();
    for (int i = 0; i < count; ++i) {
      if (options_.pull_only) {
        pull();
      } else {
        step();
      }
    }
    return static_cast<double>(Clock::system().monotonic_ns() - begin) / 1e9 / count;
  }

  int64_t spilled_bytes() const { return model_->session().values().spilled_bytes(); }

  // Rows that come often have learnt by now.
  void require_right() {
    const double loss = step();
    if (!options_.pull_only && !(loss < first_loss_)) {
      throw Error(fmt::format("the loss is {}, not below the first one, {}", loss, first_loss_));
    }
    const Tensor pulled = model_->predict({batches_[0]});
    for (const double mean : pulled.to_doubles()) {
      if (!std::isfinite(mean)) throw Error("a row is not finite");
    }
  }

 private:
  const Tensor& next() { return batches_[number_++ % batches_.size()]; }
  double step() { return model_->train_step({next().view(), labels_.view()}, options_.ids); }
  void pull() { model_->predict({next()}); }

  const Options& options_;
  Table network_;
  nn::MSELoss loss_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::unique_ptr<train::Model> model_;
  std::vector<Tensor> batches_;
  Tensor labels_;
  size_t number_ = 0;
  double first_loss_ = 0;
};

// What memory allows one thread at most: a step's rows are copied out of the table, and back where they are updated.
int copy_rows(const Options& options) {
  const auto dim = static_cast<size_t>(options.dim);
  std::vector<float> table(static_cast<size_t>(options.rows()) * dim, 1);
  std::vector<float> rows(static_cast<size_t>(options.ids) * dim);
  std::vector<Tensor> batches;
  for (uint64_t batch = 0; batch < kBatches; ++batch) batches.push_back(draw_ids(options, batch));
  size_t number = 0;
  const auto step = [&] {
    const int64_t begin = Clock::system().monotonic_ns();
    const auto ids = batches[number++ % batches.size()].values<int32_t>();
    for (size_t i = 0; i < ids.size(); ++i) {
      std::memcpy(&rows[i * dim], &table[static_cast<size_t>(ids[i]) * dim], dim * sizeof(float));
    }
    for (size_t i = 0; !options.pull_only && i < ids.size(); ++i) {
      std::memcpy(&table[static_cast<size_t>(ids[i]) * dim], &rows[i * dim], dim * sizeof(float));
    }
    return static_cast<double>(Clock::system().monotonic_ns() - begin) / 1e9;
  };
  seconds_of_step_in_round(step);
  for (const float element : rows) {
    if (element != 1) throw Error("a row has not been copied");
  }
  const auto about = fmt::format("{} rows, copied in memory{}", options.rows(), options.pull_only ? "" : ", and back");
  serve_rounds("rows/s", about, [&] { return static_cast<double>(options.ids) / seconds_of_step_in_round(step); });
  return 0;
}

// What a socket of the host allows two processes of a thread each at most: numbers go there, rows come back, and go
// there again where they are updated.
int carry_rows(const Options& options) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw IoError("no socket: {}", std::strerror(errno));
  const auto dim = static_cast<size_t>(options.dim);
  const auto num_ids = static_cast<size_t>(options.ids);
  const size_t row_bytes = dim * sizeof(float);
  std::vector<float> rows(num_ids * dim);
  const auto all_of = [](auto call, int end, auto* data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
      const ssize_t n = call(end, reinterpret_cast<std::byte*>(data) + done, bytes - done);
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    return true;
  };
  const pid_t child = fork();
  if (child < 0) throw IoError("cannot start a process: {}", std::strerror(errno));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    std::vector<float> table(static_cast<size_t>(options.rows()) * dim, 1);
    std::vector<int32_t> ids(num_ids);
    const auto row_of = [&](size_t i) { return &table[static_cast<size_t>(ids[i]) * dim]; };
    while (all_of(read, ends[1], ids.data(), num_ids * sizeof(int32_t))) {
      for (size_t i = 0; i < num_ids; ++i) std::memcpy(&rows[i * dim], row_of(i), row_bytes);
      if (!all_of(write, ends[1], rows.data(), num_ids * row_bytes)) break;
      if (options.pull_only) continue;
      if (!all_of(read, ends[1], rows.data(), num_ids * row_bytes)) break;
      for (size_t i = 0; i < num_ids; ++i) std::memcpy(row_of(i), &rows[i * dim], row_bytes);
    }
    _exit(0);
  }
  close(ends[1]);
  std::vector<Tensor> batches;
  for (uint64_t batch = 0; batch < kBatches; ++batch) batches.push_back(draw_ids(options, batch));
  size_t number = 0;
  const auto step = [&] {
    const int64_t begin = Clock::system().monotonic_ns();
    const auto ids = batches[number++ % batches.size()].values<int32_t>();
    if (!all_of(write, ends[0], ids.data(), num_ids * sizeof(int32_t)) ||
        !all_of(read, ends[0], rows.data(), num_ids * row_bytes) ||
        (!options.pull_only && !all_of(write, ends[0], rows.data(), num_ids * row_bytes))) {
      throw IoError("the process that has the rows has ended");
    }
    return static_cast<double>(Clock::system().monotonic_ns() - begin) / 1e9;
  };
  seconds_of_step_in_round(step);
  for (const float element : rows) {
    if (element != 1) throw Error("a row has not been carried");
  }
  const auto about =
      fmt::format("{} rows, carried by a socket{}", options.rows(), options.pull_only ? "" : ", and back");
  serve_rounds("rows/s", about, [&] { return static_cast<double>(options.ids) / seconds_of_step_in_round(step); });
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return 0;
}

void serve_process(const Options& options, int rank) {
  cluster::JobOptions place = job_of_processes(rank, options.num_ranks());
  if (options.on_hosts) place.host_id = fmt::format("host {}", rank);
  const auto job = cluster::join_job(place);
  Training training(*job, options);
  // Rank 0 brings 1 for a round, 0 at the end. Who waits sleeps.
  const auto largest = [&](double value) {
    job->world().all_reduce(&value, 1, DType::kF64, comm::ReduceOp::kMax, "largest");
    return value;
  };
  training.seconds_of_steps(kWarmupSteps);
  const int steps = static_cast<int>(std::ceil(kRoundSeconds / largest(training.seconds_of_steps(kWarmupSteps))));
  training.seconds_of_steps(steps);
  training.require_right();
  // The first step after an idle spell is not counted.
  const auto round = [&] {
    training.seconds_of_steps(1);
    return largest(training.seconds_of_steps(steps));
  };
  if (rank > 0) {
    while (largest(0) > 0) round();
  } else {
    const double bytes = static_cast<double>(options.ids * options.dim) * 4 * (options.pull_only ? 1 : 2);
    const auto about = fmt::format(
        "{} server(s), {} worker(s), {}, {}, {} rows, {} in a file; a million rows/s are {:.3g} GB/s", options.servers,
        options.workers, job->transport(), options.pull_only ? "pull" : options.optimizer, options.rows(),
        format_bytes(training.spilled_bytes()), bytes / static_cast<double>(options.ids) * 1e6 / 1e9);
    serve_rounds("rows/s", about, [&] {
      largest(1);
      return static_cast<double>(options.ids) / round();
    });
    largest(0);
  }
  job->finish();
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Rows of a table that parameter servers keep; see benchmarks/README.md");
  app.add_option("--mib", options.mib, "of the table")->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app.add_option("--dim", options.dim, "elements of a row")->check(CLI::Range(1, 1 << 16));
  app.add_option("--ids", options.ids, "rows that a step looks up")->check(CLI::Range(1, 1 << 24));
  app.add_option("--servers", options.servers)->check(CLI::Range(1, 64));
  app.add_option("--workers", options.workers)->check(CLI::Range(1, 64));
  app.add_option("--optimizer", options.optimizer)->check(CLI::IsMember({"sgd", "lazy_adam"}));
  app.add_option("--limit_mib", options.limit_mib, "of the memory for a server's rows: beyond it they lie in a file")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
  app.add_flag("--pull_only", options.pull_only, "look rows up, update nothing");
  app.add_flag("--all_different", options.all_different, "look no row up twice in a step, in place of Zipf's law");
  app.add_flag("--on_hosts", options.on_hosts, "ranks pretend to be on a host each, and talk by this one's loopback");
  app.add_flag("--only_memory", options.only_memory, "copy the rows in one process's memory, which is the limit");
  app.add_flag("--only_socket", options.only_socket,
               "carry rows from process to process, which is the limit of a socket");
  CLI11_PARSE(app, argc, argv);
  if (options.all_different && options.ids > options.rows()) throw Error("a step looks up more rows than there are");
  if (options.only_memory) return copy_rows(options);
  if (options.only_socket) return carry_rows(options);
  return run_processes(options.num_ranks(), [&](int rank) { serve_process(options, rank); });
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::benchmarks::run); }
