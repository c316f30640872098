// The cost that the search finds is that of the cheapest path in the graph of all shardings of a mesh, which is built
// here by definition. The fast run takes small meshes; TESSERA_TEST_FULL=1 all.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tessera/mesh/redistribution/redistribution.h"
#include "tessera/mesh/redistribution/redistribution_counts.h"
#include "tessera/testing/full.h"

namespace tessera::mesh {
namespace {

constexpr int64_t kElementBytes = 4;

// Costs between all shardings of one mesh by definition: an edge wherever one step leads, weighed rank by rank.
class AllPaths {
 public:
  AllPaths(const Shape& shape, const Mesh& mesh, const RedistributionOptions& options)
      : shape_(shape), mesh_(mesh), options_(options), shardings_(all_shardings(mesh, shape.ndim(), Reduction::kSum)) {
    const size_t n = shardings_.size();
    edges_.assign(n, std::vector<double>(n, kNone));
    exchanges_.assign(n, std::vector<double>(n, kNone));
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) weigh(i, j);
    }
  }
  const std::vector<Sharding>& shardings() const { return shardings_; }

  // The cost from every sharding to `target`; infinite where there is no way.
  std::vector<double> costs_to(size_t target) const {
    std::vector<double> cost(shardings_.size(), kNone);
    std::vector<bool> done(shardings_.size());
    cost[target] = 0;
    for (size_t round = 0; round < cost.size(); ++round) {
      size_t next = cost.size();
      for (size_t i = 0; i < cost.size(); ++i) {
        if (!done[i] && (next == cost.size() || cost[i] < cost[next])) next = i;
      }
      done[next] = true;
      for (size_t i = 0; i < cost.size(); ++i) {
        double step = edges_[i][next];
        if (shardings_[next].partial == shardings_[target].partial) step = std::min(step, exchanges_[i][next]);
        cost[i] = std::min(cost[i], step + cost[next]);
      }
    }
    return cost;
  }

 private:
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  static bool is_prefix(const std::vector<int>& outer, const std::vector<int>& axes) {
    return outer.size() <= axes.size() && std::equal(outer.begin(), outer.end(), axes.begin());
  }

  void weigh(size_t i, size_t j) {
    const Sharding& from = shardings_[i];
    const Sharding& to = shardings_[j];
    const Layout a{mesh_, from};
    const Layout b{mesh_, to};
    if (i == j || !stays_partial(from, to)) return;
    const auto cost = [&](int64_t elements) {
      return static_cast<double>(elements * kElementBytes) + options_.latency_bytes;
    };
    std::vector<size_t> grown;
    std::vector<size_t> shrunk;
    std::vector<int> added;
    std::vector<int> removed;
    bool other = false;
    for (size_t d = 0; d < from.dims.size(); ++d) {
      const auto& have = from.dims[d];
      const auto& want = to.dims[d];
      if (have == want) continue;
      if (is_prefix(have, want)) {
        grown.push_back(d);
        added.assign(want.begin() + static_cast<std::ptrdiff_t>(have.size()), want.end());
      } else if (is_prefix(want, have)) {
        shrunk.push_back(d);
        removed.assign(have.begin() + static_cast<std::ptrdiff_t>(want.size()), have.end());
      } else {
        other = true;
      }
    }
    std::vector<int> completed;
    for (const auto& p : from.partial) {
      if (std::find(to.partial.begin(), to.partial.end(), p) == to.partial.end()) completed.push_back(p.axis);
    }
    auto& edge = edges_[i][j];
    if (completed.empty()) {
      if (options_.enable_alltoall) {
        exchanges_[i][j] = cost(missing_elements(shape_, a, b)) + options_.latency_bytes;
      }
      if (other) return;
      if (shrunk.empty()) edge = 0;
      if (shrunk.size() == 1 && grown.empty()) edge = cost(missing_elements(shape_, a, b));
      if (shrunk.size() == 1 && grown.size() == 1 && added == removed && options_.enable_alltoall) {
        edge = cost(missing_elements(shape_, a, b));
      }
      return;
    }
    if (other || !shrunk.empty()) return;
    if (grown.empty()) edge = cost(all_reduced_elements(shape_, a, completed));
    std::sort(added.begin(), added.end());
    if (grown.size() == 1 && added == completed) {
      const auto members = static_cast<int64_t>(ordered_group(mesh_, mesh_.ranks()[0], completed).size());
      edge = cost((members - 1) * largest_local(shape_, b));
    }
  }

  const Shape& shape_;
  const Mesh& mesh_;
  const RedistributionOptions& options_;
  std::vector<Sharding> shardings_;
  std::vector<std::vector<double>> edges_;
  std::vector<std::vector<double>> exchanges_;
};

TEST(Redistribution, NoPathIsCheaper) {
  struct Grid {
    std::vector<int> mesh;
    Shape shape;
    bool is_slow = false;
  };
  for (const auto& [sizes, shape, is_slow] :
       {Grid{{4}, {6, 4, 5}}, Grid{{2, 2}, {4, 8}}, Grid{{2, 2}, {5, 3, 7}}, Grid{{2, 3}, {7, 5}},
        Grid{{2, 3}, {5, 7, 11}}, Grid{{2, 2, 2}, {9, 5}}, Grid{{2, 2, 2}, {8, 16, 8}, true},
        Grid{{2, 2, 2}, {5, 7, 9}, true}, Grid{{2, 3, 2}, {13, 7, 5}, true}, Grid{{3, 2, 2}, {12, 24, 12}, true}}) {
    if (is_slow && !is_full_test()) continue;
    const Mesh mesh = mesh_of(sizes);
    for (const double latency_bytes : {0.0, 30.0, 16384.0}) {
      for (const bool enable_alltoall : {true, false}) {
        const RedistributionOptions options{latency_bytes, enable_alltoall};
        const AllPaths paths(shape, mesh, options);
        for (size_t to = 0; to < paths.shardings().size(); ++to) {
          const auto expected = paths.costs_to(to);
          for (size_t from = 0; from < expected.size(); ++from) {
            const Layout a{mesh, paths.shardings()[from]};
            const Layout b{mesh, paths.shardings()[to]};
            if (!stays_partial(a.sharding, b.sharding)) continue;
            ASSERT_EQ(redistribute(shape, kElementBytes, a, b, options).cost, expected[from])
                << fmt::format("{} from {} to {} latency {} alltoall {}", shape, a.to_string(), b.to_string(),
                               options.latency_bytes, options.enable_alltoall);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::mesh
