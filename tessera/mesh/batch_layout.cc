#include "tessera/mesh/batch_layout.h"

#include "tessera/mesh/rank_limits.h"
#include "tessera/mesh/strategy_error.h"

namespace tessera::mesh {
namespace {

Layout layout_of_column(const Strategy& strategy, const BatchColumn& column, const std::vector<int64_t>& counts,
                        int num_ranks) {
  const int ndim = column.type.shape.ndim();
  if (static_cast<int>(counts.size()) != ndim) {
    throw StrategyError("dataset_strategy {} has {} counts for input \"{}\" {}", to_string(strategy), counts.size(),
                        column.name, column.type);
  }
  auto sharding = Sharding::replicated(ndim);
  std::vector<Axis> axes;
  int left = num_ranks;
  for (int dim = 0; dim < ndim; ++dim) {
    const auto parts = static_cast<int>(counts[static_cast<size_t>(dim)]);
    if (parts == 1) continue;
    if (left % parts != 0) {
      throw StrategyError("dataset_strategy {} does not divide {} ranks", to_string(strategy), num_ranks);
    }
    left /= parts;
    sharding.dims[static_cast<size_t>(dim)] = {static_cast<int>(axes.size())};
    axes.push_back({fmt::format("dim{}", dim), parts});
  }
  if (left > 1) axes.push_back({"repeated", left});
  return {Mesh(axes), sharding};
}

}  // namespace

std::vector<Layout> layouts_of_batch(const Strategy& strategy, std::span<const BatchColumn> columns, int num_ranks) {
  if (strategy.size() != columns.size()) {
    throw StrategyError("dataset_strategy {} has {} tuples, there are {} inputs", to_string(strategy), strategy.size(),
                        columns.size());
  }
  const auto fault = fault_of_counts(strategy, num_ranks);
  if (!fault.empty()) throw StrategyError("dataset_strategy {} {}", to_string(strategy), fault);
  std::vector<Layout> layouts;
  for (size_t i = 0; i < columns.size(); ++i) {
    layouts.push_back(layout_of_column(strategy, columns[i], strategy[i], num_ranks));
  }
  return layouts;
}

}  // namespace tessera::mesh
