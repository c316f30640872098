// Every rank's number, on every rank:
//     tessera run -n 4 all_gather
//     mpirun -n 4 all_gather
#include "tessera/tessera.h"

namespace {

using namespace tessera;  // NOLINT

struct Net : nn::Cell {
  explicit Net(cluster::Context& context) : ranks(session::rank_group(context)) {}
  ops::RankGroup ranks;
  using nn::Cell::construct;
  nn::Value construct(nn::Value x) override { return ops::all_gather(x, ranks); }
};

}  // namespace

int main(int argc, char** argv) {
  return cluster::run(argc, argv, [](cluster::Context& context) {
    Net network(context);
    train::Model model(context, network, nullptr, nullptr, {.parallel_mode = train::ParallelMode::kHybrid});
    Tensor number(DType::kF32, {1});
    number.values<float>()[0] = static_cast<float>(context.rank());
    const Tensor gathered = model.predict({number});
    train::print_line(fmt::format("[{}]", fmt::join(gathered.values<float>(), ", ")));
    return 0;
  });
}
