// One network, written in two ways for any number of ranks: with slices and an all_reduce by hand (hybrid parallel),
// and for one device with a strategy (semi-automatic parallel). Both print the same losses, which are those of one
// rank:
//     hybrid_parallel
//     tessera run -n 4 hybrid_parallel
#include "tessera/tessera.h"

namespace {

using namespace tessera;  // NOLINT

constexpr int64_t kFeatures = 512;
constexpr int64_t kChannels = 128;

// Any numbers, the same on every rank.
Tensor some_numbers(const Shape& shape, uint64_t stream) {
  Tensor made(DType::kF32, shape);
  auto values = made.values<float>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_uniform({.seed = 1, .stream = stream}, i) - 0.5F;
  return made;
}

// The weight's columns are split: each rank sums over its own, the all_reduce over all.
struct HybridParallelNet : nn::Cell {
  explicit HybridParallelNet(cluster::Context& context) : ranks(session::rank_group(context)) {
    const auto columns = mesh::balanced_part(kChannels, context.size(), context.rank());
    const Tensor whole = some_numbers({kFeatures, kChannels}, 1);
    weight.data = Tensor::copy_of(mesh::piece_of(whole.view(), {{0, kFeatures}, columns}));
    weight.type = weight.data->type();
    weight.layerwise_parallel = true;
  }
  ops::RankGroup ranks;
  nn::Parameter& weight = parameter("weight", {DType::kF32, {kFeatures, kChannels}}, nn::zeros());
  using nn::Cell::construct;
  nn::Value construct(nn::Value x) override {
    return ops::all_reduce(ops::reduce_sum(ops::matmul(x, weight), {-1}), ranks);
  }
};

// The strategy says the same; what must be communicated follows from it.
struct SemiAutoParallelNet : nn::Cell {
  explicit SemiAutoParallelNet(int64_t num_ranks) {
    weight.data = some_numbers({kFeatures, kChannels}, 1);
    shard("matmul", {{1, 1}, {1, num_ranks}});
  }
  nn::Parameter& weight = parameter("weight", {DType::kF32, {kFeatures, kChannels}}, nn::zeros());
  using nn::Cell::construct;
  nn::Value construct(nn::Value x) override { return ops::reduce_sum(ops::matmul(x, weight), {-1}); }
};

void run_steps(cluster::Context& context, nn::Cell& network, train::ParallelMode mode, const char* name) {
  nn::MSELoss loss;
  nn::Momentum optimizer({.learning_rate = 1e-4, .momentum = 0.9});
  // In both ways every rank reads the whole batch.
  train::Model model(context, network, &loss, &optimizer, {.parallel_mode = mode, .full_batch = true});
  const Tensor x = some_numbers({8, kFeatures}, 2);
  const Tensor y = some_numbers({8}, 3);
  for (int step = 1; step <= 5; ++step) {
    const double value = model.train_step({x.view(), y.view()}, 8);
    if (context.rank() == 0) train::print_line(fmt::format("{} step {}: loss {:.4f}", name, step, value));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return cluster::run(argc, argv, [](cluster::Context& context) {
    HybridParallelNet hybrid(context);
    run_steps(context, hybrid, train::ParallelMode::kHybrid, "HybridParallelNet");
    SemiAutoParallelNet semi_auto(context.size());
    run_steps(context, semi_auto, train::ParallelMode::kSemiAuto, "SemiAutoParallelNet");
    return 0;
  });
}
