// Ranks that pretend to be on several hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tessera/testing/run_ranks.h"

namespace tessera {
namespace {

using comm::Communicator;
using comm::ReduceOp;

struct Cluster {
  int num_ranks;
  int ranks_per_host;
};
// Even hosts, a last host of one rank, and one of fewer than the others.
constexpr Cluster kClusters[] = {{4, 2}, {5, 2}, {5, 3}, {8, 3}, {3, 1}};

void run_on(const Cluster& cluster, FunctionRef<void(cluster::Context&)> f) {
  run_ranks(cluster.num_ranks, f, {.ranks_per_host = cluster.ranks_per_host});
}

// Numbers whose sum depends on the order of addition.
float value_of(int rank, int64_t i) {
  const auto word =
      static_cast<uint64_t>(rank + 1) * 0x9E3779B97F4A7C15U ^ static_cast<uint64_t>(i) * 0xD1B54A32D192ED03U;
  return static_cast<float>(static_cast<double>(word >> 40) / 1e5 - 80);
}

std::vector<float> values_of(int rank, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = value_of(rank, i);
  return values;
}

// The definition: within each host by rank, then by host.
float sum_of(const Cluster& cluster, int64_t i) {
  float sum = 0;
  for (int first = 0; first < cluster.num_ranks; first += cluster.ranks_per_host) {
    float of_host = value_of(first, i);
    for (int r = first + 1; r < std::min(first + cluster.ranks_per_host, cluster.num_ranks); ++r) {
      of_host += value_of(r, i);
    }
    sum = first == 0 ? of_host : sum + of_host;
  }
  return sum;
}

std::vector<int64_t> uneven_counts(int num_ranks) {
  std::vector<int64_t> counts;
  for (int r = 0; r < num_ranks; ++r) counts.push_back(r % 3 == 1 ? 0 : 3000 + r * 7);
  return counts;
}

TEST(Hierarchy, RanksSeeTheirHosts) {
  run_on({5, 2}, [](cluster::Context& context) {
    EXPECT_EQ(context.local_rank(), context.rank() % 2);
    EXPECT_EQ(context.local_size(), context.rank() == 4 ? 1 : 2);
    EXPECT_EQ(context.transport(), "threads and threads");
  });
}

TEST(Hierarchy, AllReduceAddsByRankWithinAHostThenByHost) {
  for (const Cluster& cluster : kClusters) {
    run_on(cluster, [&](cluster::Context& context) {
      for (const int64_t count : {0, 1, 1000, 30011}) {
        std::vector<float> data = values_of(context.rank(), count);
        context.world().all_reduce(data.data(), count, DType::kF32, ReduceOp::kSum, "x");
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(data[static_cast<size_t>(i)], sum_of(cluster, i)) << cluster.num_ranks << " ranks, element " << i;
        }
      }
    });
  }
}

TEST(Hierarchy, ReduceScatterGivesTheBitsOfAllReduce) {
  for (const Cluster& cluster : kClusters) {
    run_on(cluster, [&](cluster::Context& context) {
      const auto counts = uneven_counts(cluster.num_ranks);
      const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      const int64_t begin = std::accumulate(counts.begin(), counts.begin() + context.rank(), int64_t{0});
      const std::vector<float> in = values_of(context.rank(), total);
      std::vector<float> out(static_cast<size_t>(counts[static_cast<size_t>(context.rank())]));
      context.world().reduce_scatter(in.data(), out.data(), counts, DType::kF32, ReduceOp::kSum, "x");
      for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], sum_of(cluster, begin + static_cast<int64_t>(i)));
    });
  }
}

TEST(Hierarchy, AllGatherAndBroadcastBringEveryRanksPart) {
  for (const Cluster& cluster : kClusters) {
    run_on(cluster, [&](cluster::Context& context) {
      const auto counts = uneven_counts(cluster.num_ranks);
      std::vector<float> expected;
      for (int r = 0; r < cluster.num_ranks; ++r) {
        const auto part = values_of(r, counts[static_cast<size_t>(r)]);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      const auto own = values_of(context.rank(), counts[static_cast<size_t>(context.rank())]);
      std::vector<float> out(expected.size());
      context.world().all_gather(own.data(), out.data(), counts, DType::kF32, "x");
      EXPECT_EQ(out, expected);
      for (int root = 0; root < cluster.num_ranks; ++root) {
        auto data = values_of(context.rank(), 5000);
        context.world().broadcast(data.data(), 5000, DType::kF32, root, "x");
        EXPECT_EQ(data, values_of(root, 5000));
      }
    });
  }
}

TEST(Hierarchy, AllToAllMessagesAndBarriersCrossHosts) {
  for (const Cluster& cluster : kClusters) {
    run_on(cluster, [&](cluster::Context& context) {
      const int me = context.rank();
      const int n = cluster.num_ranks;
      // Rank a sends a * 100 + b to rank b, b + 1 times.
      std::vector<int64_t> in_counts(static_cast<size_t>(n));
      std::iota(in_counts.begin(), in_counts.end(), 1);
      const std::vector<int64_t> out_counts(static_cast<size_t>(n), me + 1);
      std::vector<int32_t> in, expected;
      for (int p = 0; p < n; ++p) {
        in.insert(in.end(), static_cast<size_t>(p + 1), me * 100 + p);
        expected.insert(expected.end(), static_cast<size_t>(me + 1), p * 100 + me);
      }
      std::vector<int32_t> out(expected.size());
      context.world().all_to_all(in.data(), in_counts, out.data(), out_counts, DType::kI32, "x");
      EXPECT_EQ(out, expected);
      context.world().barrier("between");
      for (int to = 1; to < n; ++to) {
        int32_t message = me;
        if (me == 0) context.world().send(&to, 1, DType::kI32, to, "send");
        if (me == to) context.world().receive(&message, 1, DType::kI32, 0, "receive");
        EXPECT_EQ(message, me);
      }
    });
  }
}

TEST(Hierarchy, AGroupInAnyOrderTakesItsHostsAsItsRanksCome) {
  run_on({4, 2}, [](cluster::Context& context) {
    // Rank 3 comes first, and with it the second host.
    Communicator* group = context.create_group("mixed", {3, 0, 2, 1});
    float data = value_of(context.rank(), 7);
    group->all_reduce(&data, 1, DType::kF32, ReduceOp::kSum, "x");
    EXPECT_EQ(data, (value_of(3, 7) + value_of(2, 7)) + (value_of(0, 7) + value_of(1, 7)));
  });
}

}  // namespace
}  // namespace tessera
