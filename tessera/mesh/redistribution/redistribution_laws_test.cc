// Laws over pairs of shardings: the values arrive, a step's bytes are those of its busiest rank, and they lie between
// the lower bound and gather-then-slice. The fast run takes a sample with a fixed seed; TESSERA_TEST_FULL=1 takes all
// pairs on one mesh and a quarter of those between meshes, a minute, and prints where the lower bound is farthest.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "tessera/mesh/redistribution/redistribution.h"
#include "tessera/mesh/redistribution/redistribution_counts.h"
#include "tessera/mesh/redistribution/redistribution_simulator.h"
#include "tessera/testing/full.h"

namespace tessera::mesh {
namespace {

constexpr int64_t kElementBytes = 4;

// "" when the redistribution keeps every law.
std::string broken_law(const Shape& shape, const Layout& from, const Layout& to, const RedistributionOptions& options,
                       uint64_t seed) {
  const auto found = redistribute(shape, kElementBytes, from, to, options);
  if (!found.optimal) return "gave up";
  if (auto wrong = Simulator(shape, from, seed).run(found, to, kElementBytes); !wrong.empty()) return wrong;
  if (std::is_permutation(from.mesh.ranks().begin(), from.mesh.ranks().end(), to.mesh.ranks().begin(),
                          to.mesh.ranks().end())) {
    const int64_t most = gather_then_slice_elements(shape, from, to) * kElementBytes;
    if (found.bytes > most) return fmt::format("{} B, gather and slice take {}", found.bytes, most);
  }
  const int64_t least = lower_bound_bytes(shape, kElementBytes, from, to);
  if (found.bytes < least) return fmt::format("{} B, the lower bound is {}", found.bytes, least);
  for (const auto& step : found.steps) {
    const bool moves_freely = step.kind == MoveKind::kAllToAll || step.kind == MoveKind::kExchange;
    if (!options.enable_alltoall && moves_freely) return "moves point to point";
  }
  return "";
}

std::string describe(const Shape& shape, const Layout& from, const Layout& to, const RedistributionOptions& options) {
  return fmt::format("{} from {} to {} latency {} alltoall {}\n{}", shape, from.to_string(), to.to_string(),
                     options.latency_bytes, options.enable_alltoall,
                     to_string(redistribute(shape, kElementBytes, from, to, options)));
}

class Sample {
 public:
  // About one in `one_in` cases of the fast run.
  explicit Sample(unsigned seed) : random_(seed) {}
  bool takes(unsigned one_in) { return is_full_test() || random_() % one_in == 0; }
  uint64_t seed() { return random_(); }
  RedistributionOptions options() {
    RedistributionOptions options;
    const auto choice = random_() % 4;
    options.latency_bytes = choice == 0 ? 0 : choice == 1 ? 20 : 16 << 10;
    options.enable_alltoall = choice != 3;
    return options;
  }

 private:
  std::mt19937 random_;
};

struct Case {
  std::vector<int> mesh;
  unsigned one_in;  // of the 3-dim pairs
};

TEST(Redistribution, EveryPairOfShardingsOnOneMesh) {
  Sample sample(20240611);
  const std::vector<std::vector<Shape>> shapes = {
      {{}}, {{12}, {7}, {1}, {0}}, {{4, 6}, {5, 7}, {3, 0}}, {{4, 4, 6}, {3, 5, 2}}};
  for (const auto& [sizes, one_in] :
       {Case{{2}, 1}, Case{{3}, 1}, Case{{4}, 1}, Case{{2, 2}, 4}, Case{{2, 3}, 4}, Case{{2, 2, 2}, 300}}) {
    const Mesh mesh = mesh_of(sizes);
    for (const auto& of_ndim : shapes) {
      const int ndim = of_ndim[0].ndim();
      const auto shardings = all_shardings(mesh, ndim, ndim == 1 ? Reduction::kMax : Reduction::kSum);
      for (const auto& shape : of_ndim) {
        for (const auto& from : shardings) {
          for (const auto& to : shardings) {
            if (!stays_partial(from, to) || !sample.takes(ndim == 3 ? one_in : (one_in + 9) / 10)) continue;
            const auto options = sample.options();
            const Layout a{mesh, from};
            const Layout b{mesh, to};
            const std::string wrong = broken_law(shape, a, b, options, sample.seed());
            ASSERT_EQ(wrong, "") << describe(shape, a, b, options);
          }
        }
      }
    }
  }
}

TEST(Redistribution, EveryPairOfDeviceMatrices) {
  Sample sample(77);
  std::mt19937 random(5);
  const std::vector<std::vector<std::vector<int>>> families = {
      {{6}, {2, 3}, {3, 2}},
      {{8}, {4, 2}, {2, 4}, {2, 2, 2}},
      {{12}, {2, 6}, {6, 2}, {3, 4}, {4, 3}, {2, 2, 3}, {2, 3, 2}, {3, 2, 2}}};
  for (const auto& family : families) {
    int num_ranks = 1;
    for (const int size : family[0]) num_ranks *= size;
    std::vector<int> in_order(static_cast<size_t>(num_ranks));
    for (int i = 0; i < num_ranks; ++i) in_order[static_cast<size_t>(i)] = i;
    std::vector<int> transposed;  // as a grid [2, n/2]
    for (int i = 0; i < num_ranks; ++i) transposed.push_back(i % 2 * (num_ranks / 2) + i / 2);
    std::vector<int> shuffled = in_order;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    std::vector<int> others = in_order;  // half of them new
    for (int& rank : others) rank += num_ranks / 2;
    for (const auto& from_sizes : family) {
      for (const auto& to_sizes : family) {
        for (const auto& ranks : {in_order, transposed, shuffled, others}) {
          const Mesh from_mesh = mesh_of(from_sizes);
          const Mesh to_mesh = mesh_of(to_sizes, ranks);
          if (from_mesh == to_mesh) continue;
          for (const Shape& shape : {Shape{12, 24}, Shape{7, 10}}) {
            for (const auto& from : all_shardings(from_mesh, 2, Reduction::kSum)) {
              for (const auto& to : all_shardings(to_mesh, 2, Reduction::kSum)) {
                if (to.is_partial() || !(is_full_test() ? sample.seed() % 4 == 0 : sample.takes(400))) continue;
                auto options = sample.options();
                options.enable_alltoall = options.enable_alltoall || ranks == others;
                const Layout a{from_mesh, from};
                const Layout b{to_mesh, to};
                const std::string wrong = broken_law(shape, a, b, options, sample.seed());
                ASSERT_EQ(wrong, "") << describe(shape, a, b, options);
              }
            }
          }
        }
      }
    }
  }
}

// Dims dealt in blocks of several elements here, there, or on both sides, in equal blocks or in others.
TEST(Redistribution, BlocksStayTogether) {
  Sample sample(31);
  for (const auto& sizes : {std::vector<int>{3}, std::vector<int>{2, 3}}) {
    const Mesh mesh = mesh_of(sizes);
    for (const auto& other : {mesh, mesh_of({3, static_cast<int>(sizes.size())}), mesh_of({6})}) {
      if (other.size() != mesh.size()) continue;
      for (const Shape& shape : {Shape{12, 10}, Shape{24, 7}, Shape{0, 4}}) {
        for (auto from : all_shardings(mesh, 2, Reduction::kSum)) {
          for (auto to : all_shardings(other, 2, Reduction::kSum)) {
            if (mesh == other ? !stays_partial(from, to) : to.is_partial()) continue;
            for (const auto& [mine, yours] : {std::pair{1, 3}, std::pair{3, 1}, std::pair{3, 3}, std::pair{2, 3}}) {
              if (!sample.takes(8)) continue;
              const auto options = sample.options();
              const auto in_blocks = [&](const Mesh& on, const Sharding& sharding, int64_t block) {
                return Layout{on, with_blocks(shape, on, sharding, {block, shape[1] % 2 == 0 ? 2 : 1})};
              };
              const Layout a = in_blocks(mesh, from, mine);
              const Layout b = in_blocks(other, to, yours);
              const auto found = redistribute(shape, kElementBytes, a, b, options);
              EXPECT_EQ(Simulator(shape, a, sample.seed()).run(found, b, kElementBytes), "")
                  << describe(shape, a, b, options);
              EXPECT_GE(found.bytes, lower_bound_bytes(shape, kElementBytes, a, b)) << describe(shape, a, b, options);
              for (const auto& step : found.steps) {
                EXPECT_TRUE(options.enable_alltoall ||
                            (step.kind != MoveKind::kAllToAll && step.kind != MoveKind::kExchange))
                    << describe(shape, a, b, options);
              }
            }
          }
        }
      }
    }
  }
}

TEST(Redistribution, DistanceToTheLowerBound) {
  if (!is_full_test()) GTEST_SKIP() << "set TESSERA_TEST_FULL=1 for the table";
  struct Row {
    double ratio;
    std::string text;
  };
  std::vector<Row> rows;
  const Shape shape{48, 48, 48};
  int64_t num_pairs = 0;
  int64_t num_tight = 0;
  const RedistributionOptions options{0, true};
  for (const auto& sizes :
       std::vector<std::vector<int>>{{8}, {4, 2}, {2, 4}, {2, 2, 2}, {12}, {3, 4}, {2, 6}, {2, 2, 3}}) {
    const Mesh mesh = mesh_of(sizes);
    const auto shardings = all_shardings(mesh, 3, Reduction::kSum);
    for (const auto& from : shardings) {
      for (const auto& to : shardings) {
        if (from == to || !stays_partial(from, to)) continue;
        const Layout a{mesh, from};
        const Layout b{mesh, to};
        const auto found = redistribute(shape, kElementBytes, a, b, options);
        const int64_t bound = lower_bound_bytes(shape, kElementBytes, a, b);
        ASSERT_GE(found.bytes, bound) << describe(shape, a, b, options);
        ++num_pairs;
        num_tight += found.bytes == bound ? 1 : 0;
        if (found.bytes == bound) continue;
        rows.push_back({static_cast<double>(found.bytes) / static_cast<double>(bound),
                        fmt::format("{} {} -> {}: {} B, bound {} B", mesh.to_string(), from.to_string(mesh),
                                    to.to_string(mesh), found.bytes, bound)});
      }
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.ratio > b.ratio; });
  std::printf("%s, %lld pairs on 8 and 12 ranks, %lld at the bound; the farthest:\n", shape.to_string().c_str(),
              static_cast<long long>(num_pairs), static_cast<long long>(num_tight));
  for (size_t i = 0; i < std::min<size_t>(10, rows.size()); ++i) {
    std::printf("%.3f  %s\n", rows[i].ratio, rows[i].text.c_str());
  }
}

}  // namespace
}  // namespace tessera::mesh
