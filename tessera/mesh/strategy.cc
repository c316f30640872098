#include "tessera/mesh/strategy.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/mesh/text_reader.h"

namespace tessera::mesh {
namespace {

// The strides at which the axes of a row-major grid over num_ranks ranks begin.
void add_cuts(const std::vector<int64_t>& device_matrix, int64_t num_ranks, std::vector<int64_t>& cuts) {
  int64_t product = 1;
  for (const int64_t size : device_matrix) {
    if (size < 1) throw InvalidArgument("device matrix {}: sizes must be at least 1", device_matrix);
    if (size > num_ranks || num_ranks % (product *= size) != 0) {
      throw InvalidArgument("device matrix {} does not divide {} ranks", device_matrix, num_ranks);
    }
  }
  int64_t stride = num_ranks;
  for (const int64_t size : device_matrix) cuts.push_back(stride /= size);
}

}  // namespace

Strategy parse_strategy(std::string_view text) {
  TextReader reader(text, "strategy");
  Strategy strategy;
  reader.expect('(');
  while (!reader.accept(')')) {
    reader.expect('(');
    auto& counts = strategy.emplace_back();
    while (!reader.accept(')')) {
      counts.push_back(reader.integer());
      if (counts.back() < 1) reader.fail(fmt::format("counts must be at least 1, found {}", counts.back()));
      if (!reader.sees(')')) reader.expect(',');
    }
    if (!reader.sees(')')) reader.expect(',');
  }
  reader.end();
  return strategy;
}

std::string to_string(const Strategy& strategy) {
  std::string text = "(";
  for (size_t i = 0; i < strategy.size(); ++i) {
    const auto& counts = strategy[i];
    text += fmt::format("{}({}{})", i > 0 ? "," : "", fmt::join(counts, ","), counts.size() == 1 ? "," : "");
  }
  return text + (strategy.size() == 1 ? ",)" : ")");
}

std::string to_string(const StrategyGrid& grid) {
  if (grid.empty()) return "";
  std::string text = fmt::format("({}):(", fmt::join(grid.sizes, ","));
  for (size_t i = 0; i < grid.axes.size(); ++i) {
    text += i > 0 ? ",(" : "(";
    for (size_t dim = 0; dim < grid.axes[i].size(); ++dim) {
      const auto& axes = grid.axes[i][dim];
      text += fmt::format("{}{}", dim > 0 ? "," : "", axes.empty() ? "_" : fmt::format("{}", fmt::join(axes, ".")));
    }
    text += ")";
  }
  return text + ")";
}

StrategyGrid parse_strategy_grid(std::string_view text) {
  TextReader reader(text, "grid of a strategy");
  StrategyGrid grid;
  reader.expect('(');
  do {
    grid.sizes.push_back(reader.integer());
    if (grid.sizes.back() < 1) reader.fail(fmt::format("sizes must be at least 1, found {}", grid.sizes.back()));
  } while (reader.accept(','));
  reader.expect(')');
  reader.expect(':');
  reader.expect('(');
  while (!reader.accept(')')) {
    if (!grid.axes.empty()) reader.expect(',');
    reader.expect('(');
    auto& dims = grid.axes.emplace_back();
    while (!reader.accept(')')) {
      if (!dims.empty()) reader.expect(',');
      auto& axes = dims.emplace_back();
      if (reader.accept('_')) continue;
      do {
        axes.push_back(reader.integer());
        if (axes.back() < 0) reader.fail(fmt::format("axes must be at least 0, found {}", axes.back()));
      } while (reader.accept('.'));
    }
  }
  reader.end();
  return grid;
}

std::optional<std::vector<int64_t>> common_refinement(std::span<const std::vector<int64_t>> device_matrices,
                                                      int64_t num_ranks) {
  if (num_ranks < 1) throw InvalidArgument("common refinement: needs at least 1 rank, got {}", num_ranks);
  std::vector<int64_t> cuts = {1, num_ranks};
  for (const auto& device_matrix : device_matrices) add_cuts(device_matrix, num_ranks, cuts);
  std::sort(cuts.begin(), cuts.end(), std::greater<>());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<int64_t> refined;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    if (cuts[i] % cuts[i + 1] != 0) return std::nullopt;
    refined.push_back(cuts[i] / cuts[i + 1]);
  }
  return refined;
}

bool refines_exactly(int64_t dim_size, std::span<const int64_t> coarse, std::span<const int64_t> fine) {
  bool exact = true;
  int64_t parts = 1;  // made by the axes seen so far; their sizes are dim_size / parts, rounded up or down
  size_t at = 0;
  for (const int64_t size : coarse) {
    int64_t product = 1;
    int num_factors = 0;
    for (; at < fine.size() && (product < size || fine[at] == 1); ++at) {
      product *= fine[at];
      num_factors += fine[at] > 1 ? 1 : 0;
    }
    if (product != size) throw InvalidArgument("axis sizes {} do not factorise {}", fine, coarse);
    if (num_factors > 1) {
      // Nesting deals a remainder round the outer parts, one axis deals it to the first parts: equal only if there is
      // nothing to deal, one element, or all but one.
      for (const int64_t part : {dim_size / parts, (dim_size + parts - 1) / parts}) {
        const int64_t remainder = part % size;
        exact = exact && (remainder <= 1 || remainder == size - 1);
      }
    }
    parts *= size;
  }
  if (at != fine.size()) throw InvalidArgument("axis sizes {} do not factorise {}", fine, coarse);
  return exact;
}

}  // namespace tessera::mesh
