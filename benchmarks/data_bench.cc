// How many images per second the data pipeline alone delivers: the tutorials' augmentation of CIFAR-10 pictures, at the
// size of the pictures or enlarged. The limit is the rate at which as many threads could fill the same memory.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <vector>

#include "benchmarks/protocol.h"
#include "tessera/base/clock.h"
#include "tessera/data/batch_iterator.h"
#include "tessera/data/sets/cifar10.h"
#include "tessera/data/sets/synthetic_cifar10.h"

namespace tessera::data {
namespace {

struct Case {
  int64_t side;
  int64_t batch_size;
};

Dataset augmented(FileSystem& files, const Case& c) {
  std::vector<Transform> transforms{random_crop(32, {4, 4, 4, 4}), random_horizontal_flip()};
  if (c.side != 32) transforms.push_back(resize(c.side));
  transforms.push_back(rescale(1 / 255.0, 0));
  transforms.push_back(normalize({0.4465, 0.4822, 0.4914}, {0.2010, 0.1994, 0.2023}));
  transforms.push_back(hwc2chw());
  return cifar10(files, "data", {.usage = "train"})
      .map("image", transforms)
      .map("label", {type_cast(DType::kI32)})
      .batch(c.batch_size, {.drop_remainder = true});
}

// A batch must be the same however it is made.
void check_answer(const Dataset& dataset, const IterateOptions& options) {
  IterateOptions inline_options = options;
  inline_options.num_workers = 0;
  inline_options.channels_last = false;
  auto threaded = dataset.batches(options);
  auto plain = dataset.batches(inline_options);
  for (int i = 0; i < 2; ++i) {
    const auto a = threaded.next();
    const auto b = plain.next();
    check(bit_equal((*a)[0], (*b)[0]) && bit_equal((*a)[1], (*b)[1]), "a batch depends on the workers");
  }
}

double seconds_since(int64_t begin_ns) { return static_cast<double>(Clock::system().monotonic_ns() - begin_ns) * 1e-9; }

// Calls `make_batches(n)` with an n that takes about `round_s`, found once; returns batches per second.
class RoundOfBatches {
 public:
  RoundOfBatches(double round_s, int64_t at_least) : round_s_(round_s), at_least_(at_least) {}

  double run(FunctionRef<void(int64_t)> make_batches) {
    if (num_batches_ == 0) {
      // Warm: every slot of the queue written several times.
      make_batches(4 * at_least_);
      const int64_t begin = Clock::system().monotonic_ns();
      make_batches(4 * at_least_);
      const double batch_s = seconds_since(begin) / static_cast<double>(4 * at_least_);
      num_batches_ = std::max(4 * at_least_, static_cast<int64_t>(round_s_ / batch_s));
    }
    const int64_t begin = Clock::system().monotonic_ns();
    make_batches(num_batches_);
    return static_cast<double>(num_batches_) / seconds_since(begin);
  }

 private:
  double round_s_;
  int64_t at_least_;
  int64_t num_batches_ = 0;
};

int run(int argc, char** argv) {
  Case c{.side = 32, .batch_size = 128};
  int threads = 2;
  double round_s = 0.5;
  bool fill_only = false;
  CLI::App app("Images per second of the data pipeline alone; see benchmarks/README.md");
  app.add_option("--image_size", c.side)->check(CLI::Range(32, 1024));
  app.add_option("--batch_size", c.batch_size)->check(CLI::Range(1, 4096));
  app.add_option("--threads", threads, "workers")->check(CLI::Range(1, 1024));
  app.add_option("--seconds", round_s, "length of a round")->check(CLI::PositiveNumber);
  app.add_flag("--fill_only", fill_only, "the limit: as many threads that only write the memory that the images take");
  CLI11_PARSE(app, argc, argv);

  MemoryFileSystem files;
  write_synthetic_cifar10(files, "data", {.train_records = 5000, .test_records = 1});
  const Dataset dataset = augmented(files, c);
  const IterateOptions options{.num_epochs = -1, .num_workers = threads, .channels_last = true};
  const auto images_per_batch = static_cast<double>(c.batch_size);
  RoundOfBatches round(round_s, options.prefetch + 1);
  if (fill_only) {
    std::vector<Tensor> queue;
    for (int i = 0; i <= options.prefetch; ++i) queue.emplace_back(dataset.columns()[0].type);
    size_t next = 0;
    const auto fill = [&](int64_t num_batches) {
      for (int64_t i = 0; i < num_batches; ++i, ++next) {
        const auto bytes = queue[next % queue.size()].bytes();
        std::memset(bytes.data(), static_cast<int>(next), bytes.size());
      }
    };
    benchmarks::serve_rounds("images/s", fmt::format("memset of one thread, times {}", threads),
                             [&] { return round.run(fill) * images_per_batch * threads; });
    return 0;
  }
  check_answer(dataset, options);
  auto batches = dataset.batches(options);
  const auto read = [&](int64_t num_batches) {
    for (int64_t i = 0; i < num_batches; ++i) batches.next_view();
  };
  benchmarks::serve_rounds("images/s", "channels-last batches", [&] { return round.run(read) * images_per_batch; });
  return 0;
}

}  // namespace
}  // namespace tessera::data

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::data::run); }
