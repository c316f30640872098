#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <latch>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>

#include "tessera/base/error.h"
#include "tessera/base/processes/descriptor.h"
#include "tessera/base/processes/memory_file.h"
#include "tessera/comm/memory/shared_memory.h"
#include "tessera/comm/reduce.h"
#include "tessera/comm/speed.h"
#include "tessera/comm/store.h"
#include "tessera/comm/stretch_receiver.h"
#include "tessera/comm/transport.h"
#include "tessera/comm/wire/wire.h"
#include "tessera/testing/allocation_count.h"
#include "tessera/testing/run_ranks.h"

namespace tessera {
namespace {

using comm::Communicator;
using comm::ReduceOp;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16,
                             DType::kI32, DType::kI64, DType::kU8,   DType::kBool};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProd};
constexpr int kSizes[] = {1, 2, 3, 5, 8};

using Bytes = std::vector<std::byte>;

// Rank's own `count` elements: fractions of both signs whose sums depend on their order; a function of (rank, index).
Bytes values_of(int rank, int64_t count, DType dtype) {
  Bytes bytes(static_cast<size_t>(count) * size_bytes(dtype));
  dispatch_dtype(dtype, "test", [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < count; ++i) {
      const auto word =
          static_cast<uint64_t>(rank + 1) * 0x9E3779B97F4A7C15U ^ static_cast<uint64_t>(i) * 0xD1B54A32D192ED03U;
      const auto small = static_cast<int>(word >> 40 & 0xFF);
      T value;
      if constexpr (std::is_same_v<T, bool>) {
        value = small % 3 == 0;
      } else if constexpr (std::is_integral_v<T>) {
        value = static_cast<T>(small);
      } else {
        value = static_cast<T>(static_cast<float>((small - 128) / 100.0 + 0.001 * rank));
      }
      std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
    }
  });
  return bytes;
}

// Integers wrap.
template <typename T>
auto widened(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(value);
  } else {
    return value;
  }
}

// The definition, one element at a time.
Bytes reduced(int num_ranks, int64_t count, DType dtype, ReduceOp op) {
  Bytes out(static_cast<size_t>(count) * size_bytes(dtype));
  dispatch_dtype(dtype, "test", [&](auto zero) {
    using T = decltype(zero);
    using C = ComputeType<T>;
    std::vector<Bytes> inputs;
    for (int r = 0; r < num_ranks; ++r) inputs.push_back(values_of(r, count, dtype));
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      C result{};
      for (size_t r = 0; r < inputs.size(); ++r) {
        T value;
        std::memcpy(&value, inputs[r].data() + i * sizeof(T), sizeof(T));
        const C x = static_cast<C>(value);
        if (r == 0) {
          result = x;
        } else if (op == ReduceOp::kSum) {
          result = static_cast<C>(widened(result) + widened(x));
        } else if (op == ReduceOp::kProd) {
          result = static_cast<C>(widened(result) * widened(x));
        } else {
          result = op == ReduceOp::kMax ? std::max(result, x) : std::min(result, x);
        }
      }
      const T rounded = static_cast<T>(result);
      std::memcpy(out.data() + i * sizeof(T), &rounded, sizeof(T));
    }
  });
  return out;
}

std::vector<int64_t> uneven_counts(int num_ranks, int64_t base) {
  std::vector<int64_t> counts;
  for (int r = 0; r < num_ranks; ++r) counts.push_back(r % 3 == 1 ? 0 : base + r * 7);
  return counts;
}

int64_t sum(std::span<const int64_t> counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

Bytes part(const Bytes& all, std::span<const int64_t> counts, int rank, DType dtype) {
  const auto begin =
      static_cast<ptrdiff_t>(sum(counts.first(static_cast<size_t>(rank))) * static_cast<int64_t>(size_bytes(dtype)));
  const auto length =
      static_cast<ptrdiff_t>(counts[static_cast<size_t>(rank)] * static_cast<int64_t>(size_bytes(dtype)));
  return {all.begin() + begin, all.begin() + begin + length};
}

TEST(AllReduce, AddsInRankOrderForEveryTypeOpAndSize) {
  for (const int size : kSizes) {
    run_ranks(size, [&](cluster::Context& context) {
      Communicator& world = context.world();
      for (const DType dtype : kDTypes) {
        for (const ReduceOp op : kOps) {
          if (dtype == DType::kBool && op == ReduceOp::kSum) continue;
          // One exchange below 16 KiB, chunks above; sizes that no chunk divides; fewer elements than ranks.
          for (const int64_t count : {0, 1, 7, 1000, 20011}) {
            Bytes data = values_of(world.rank(), count, dtype);
            world.all_reduce(data.data(), count, dtype, op, "x");
            ASSERT_EQ(data, reduced(size, count, dtype, op))
                << size << " ranks, " << to_string(dtype) << " " << to_string(op) << " " << count;
          }
        }
      }
    });
  }
}

TEST(AllGather, JoinsUnevenPartsOfEveryType) {
  for (const int size : kSizes) {
    run_ranks(size, [&](cluster::Context& context) {
      Communicator& world = context.world();
      for (const DType dtype : kDTypes) {
        for (const int64_t base : {0, 1, 5000}) {
          const auto counts = uneven_counts(size, base);
          const Bytes in = values_of(world.rank(), counts[static_cast<size_t>(world.rank())], dtype);
          Bytes out(static_cast<size_t>(sum(counts)) * size_bytes(dtype));
          world.all_gather(in.data(), out.data(), counts, dtype, "x");
          for (int r = 0; r < size; ++r) {
            ASSERT_EQ(part(out, counts, r, dtype), values_of(r, counts[static_cast<size_t>(r)], dtype));
          }
          // The own part may lie in its place already.
          Bytes in_place(out.size());
          const auto offset =
              static_cast<size_t>(sum(std::span(counts).first(static_cast<size_t>(world.rank())))) * size_bytes(dtype);
          std::copy(in.begin(), in.end(), in_place.begin() + static_cast<ptrdiff_t>(offset));
          world.all_gather(in_place.data() + offset, in_place.data(), counts, dtype, "x");
          ASSERT_EQ(in_place, out);
        }
      }
    });
  }
}

TEST(ReduceScatter, GivesEachRankItsPartOfTheSum) {
  for (const int size : kSizes) {
    run_ranks(size, [&](cluster::Context& context) {
      Communicator& world = context.world();
      for (const DType dtype : kDTypes) {
        for (const ReduceOp op : kOps) {
          if (dtype == DType::kBool && op == ReduceOp::kSum) continue;
          const auto counts = uneven_counts(size, 3000);
          const Bytes in = values_of(world.rank(), sum(counts), dtype);
          Bytes out(static_cast<size_t>(counts[static_cast<size_t>(world.rank())]) * size_bytes(dtype));
          world.reduce_scatter(in.data(), out.data(), counts, dtype, op, "x");
          ASSERT_EQ(out, part(reduced(size, sum(counts), dtype, op), counts, world.rank(), dtype));
        }
      }
    });
  }
}

TEST(Broadcast, GivesEveryRankTheRootsData) {
  for (const int size : kSizes) {
    run_ranks(size, [&](cluster::Context& context) {
      Communicator& world = context.world();
      for (const DType dtype : kDTypes) {
        for (int root = 0; root < size; ++root) {
          for (const int64_t count : {0, 1, 30000}) {
            Bytes data = values_of(world.rank(), count, dtype);
            world.broadcast(data.data(), count, dtype, root, "x");
            ASSERT_EQ(data, values_of(root, count, dtype));
          }
        }
      }
    });
  }
}

TEST(AllToAll, TransposesUnevenParts) {
  for (const int size : kSizes) {
    run_ranks(size, [&](cluster::Context& context) {
      Communicator& world = context.world();
      const int me = world.rank();
      for (const DType dtype : kDTypes) {
        // From rank a to rank b go (a * 3 + b) % 4 * 500 elements, each marked with its origin.
        const auto count_of = [](int from, int to) { return int64_t{(from * 3 + to) % 4 * 500}; };
        std::vector<int64_t> in_counts;
        std::vector<int64_t> out_counts;
        for (int p = 0; p < size; ++p) {
          in_counts.push_back(count_of(me, p));
          out_counts.push_back(count_of(p, me));
        }
        const Bytes in = values_of(me, sum(in_counts), dtype);
        Bytes out(static_cast<size_t>(sum(out_counts)) * size_bytes(dtype));
        world.all_to_all(in.data(), in_counts, out.data(), out_counts, dtype, "x");
        for (int p = 0; p < size; ++p) {
          std::vector<int64_t> theirs;
          for (int q = 0; q < size; ++q) theirs.push_back(count_of(p, q));
          ASSERT_EQ(part(out, out_counts, p, dtype), part(values_of(p, sum(theirs), dtype), theirs, me, dtype));
        }
      }
    });
  }
}

TEST(SendReceive, MatchInOrderPerPair) {
  run_ranks(3, [](cluster::Context& context) {
    Communicator& world = context.world();
    for (int message = 0; message < 5; ++message) {
      const int64_t count = message * 150'000;  // up to several MiB, which are copied in pieces
      if (world.rank() < 2) {
        const Bytes data = values_of(world.rank() * 10 + message, count, DType::kF32);
        world.send(data.data(), count, DType::kF32, 2, "activation");
      } else {
        for (const int from : {1, 0}) {
          Bytes data(static_cast<size_t>(count) * 4);
          world.receive(data.data(), count, DType::kF32, from, "activation");
          EXPECT_EQ(data, values_of(from * 10 + message, count, DType::kF32));
        }
      }
    }
  });
}

// Threads reach each other's memory: a message is one stretch, however long.
TEST(SendReceive, HandOverAMessageWhereTheSenderHasIt) {
  Bytes data = values_of(0, 200'000, DType::kF32);
  run_ranks(2, [&](cluster::Context& context) {
    Communicator& world = context.world();
    for (const int64_t count : {int64_t{200'000}, int64_t{0}, int64_t{3}}) {
      if (world.rank() == 0) {
        world.send(data.data(), count, DType::kF32, 1, "rows");
        continue;
      }
      auto* reaches = dynamic_cast<comm::StretchReceiver*>(&world);
      ASSERT_NE(reaches, nullptr);
      std::vector<const std::byte*> stretches;
      const auto take = [&](const std::byte* from, int64_t begin, int64_t bytes) {
        stretches.push_back(from);
        EXPECT_EQ(begin, 0);
        EXPECT_EQ(bytes, count * 4);
      };
      reaches->receive_stretches(take, count, DType::kF32, 0, "rows");
      EXPECT_EQ(stretches, std::vector<const std::byte*>(count > 0 ? 1 : 0, data.data()));
    }
  });
}

TEST(Collectives, DoNotDependOnALinksSpeed) {
  const comm::SimulatedLink slow{.latency_us = 200, .gigabytes_per_second = 2};
  run_ranks(3,
            [](cluster::Context& context) {
              Bytes data = values_of(context.rank(), 100'000, DType::kF32);
              const auto start = std::chrono::steady_clock::now();
              context.world().all_reduce(data.data(), 100'000, DType::kF32, ReduceOp::kSum, "x");
              const double us =
                  std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
              EXPECT_EQ(data, reduced(3, 100'000, DType::kF32, ReduceOp::kSum));
              // Two exchanges: latency, then two peers' chunks of 133 kB through a link of 2 GB/s. To who comes last
              // the first chunks have come already; the others' second ones follow on its own first one.
              EXPECT_GE(us, (200 + 66) + (200 + 133));
            },
            {.link = slow});
}

TEST(Collectives, ManyMoreRanksThanCores) {
  run_ranks(32, [](cluster::Context& context) {
    int64_t total = 0;
    for (int step = 0; step < 20; ++step) {
      int64_t value = context.rank() + step;
      context.world().all_reduce(&value, 1, DType::kI64, ReduceOp::kSum, "x");
      total += value;
    }
    EXPECT_EQ(total, 20 * 496 + 32 * 190);
  });
}

TEST(Collectives, GroupsWorkAtTheSameTimeFromTheirOwnThreads) {
  run_ranks(3, [](cluster::Context& context) {
    Communicator* reversed = context.create_group("reversed", {2, 1, 0});
    const auto work = [&](Communicator& group, int64_t scale) {
      for (int step = 0; step < 200; ++step) {
        int64_t value = scale * context.rank() + step;
        group.all_reduce(&value, 1, DType::kI64, ReduceOp::kSum, "x");
        EXPECT_EQ(value, scale * 3 + 3 * step);
      }
    };
    std::thread other([&] { work(*reversed, 1000); });
    work(context.world(), 1);
    other.join();
  });
}

TEST(Collectives, AllocateNothingOnceWarm) {
  run_ranks(3, [](cluster::Context& context) {
    Communicator& world = context.world();
    const std::vector<int64_t> counts = {20'000, 0, 10'000};
    std::vector<float> data(30'000);
    std::vector<float> out(30'000);
    const auto step = [&] {
      for (const int64_t count : {1, 30'000}) {
        world.all_reduce(data.data(), count, DType::kF32, ReduceOp::kMax, "an operator with a rather long name");
      }
      world.all_gather(data.data(), out.data(), counts, DType::kF32, "x");
      world.reduce_scatter(data.data(), out.data(), counts, DType::kF32, ReduceOp::kMax, "x");
      world.broadcast(data.data(), 30'000, DType::kF32, 1, "x");
      world.barrier("x");
      if (world.rank() == 0) world.send(data.data(), 30'000, DType::kF32, 1, "x");
      if (world.rank() == 1) world.receive(data.data(), 30'000, DType::kF32, 0, "x");
    };
    step();
    const int64_t before = num_allocations_of_this_thread();
    for (int i = 0; i < 10; ++i) step();
    EXPECT_EQ(num_allocations_of_this_thread() - before, 0);
  });
}

TEST(Reduction, PropagatesNanUnderEveryOp) {
  // The first elements are reduced as vectors, the last ones by themselves.
  constexpr size_t kCount = 67;
  for (const ReduceOp op : kOps) {
    for (const size_t at : {size_t{0}, size_t{40}, kCount - 3}) {
      std::vector<float> a(kCount, 1), b(kCount, 2), out(kCount);
      a[at] = NAN;
      b[at + 1] = NAN;
      const void* sources[] = {a.data(), b.data()};
      comm::reduce_in_order(out.data(), sources, kCount, DType::kF32, op);
      for (size_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(std::isnan(out[i]), i == at || i == at + 1) << to_string(op) << " " << at << " " << i;
      }
    }
  }
}

TEST(Reduction, TheSameBitsGoToAllResultsWhateverTheirAlignment) {
  constexpr int64_t kCount = 5003;
  for (const DType dtype : kDTypes) {
    for (const ReduceOp op : kOps) {
      if (dtype == DType::kBool && op == ReduceOp::kSum) continue;
      const Bytes expected = reduced(3, kCount, dtype, op);
      for (const size_t shift : {size_t{0}, size_t{1}, size_t{5}}) {
        for (const bool past_caches : {false, true}) {
          // Two of the sources are results, too, as ranks that share memory have it.
          const std::shared_ptr<void> memory = comm::allocate_pages(1 << 18);
          std::byte* places[3];
          for (int r = 0; r < 3; ++r) {
            places[r] = static_cast<std::byte*>(memory.get()) + (size_t{1} << 16) * static_cast<size_t>(r) +
                        shift * size_bytes(dtype);
            std::ranges::copy(values_of(r, kCount, dtype), places[r]);
          }
          void* const outs[] = {places[0], places[2]};
          const void* const sources[] = {places[0], places[1], places[2]};
          comm::reduce_in_order(outs, sources, kCount, dtype, op, past_caches);
          for (const void* out : outs) {
            EXPECT_EQ(std::memcmp(out, expected.data(), expected.size()), 0)
                << to_string(dtype) << " " << to_string(op) << " " << shift << " " << past_caches;
          }
        }
      }
    }
  }
}

TEST(Reduction, RoundsHalfTypesOnce) {
  // 256 + 1 + 1 in bf16 steps stays 256; in f32, rounded once, it is 258.
  const BFloat16 a[] = {256.0F};
  const BFloat16 b[] = {1.0F};
  const void* sources[] = {a, b, b};
  BFloat16 out[1];
  comm::reduce_in_order(out, sources, 1, DType::kBF16, ReduceOp::kSum);
  EXPECT_EQ(static_cast<float>(out[0]), 258.0F);
}

TEST(Speed, IsThatOfRankZeroOnAllRanks) {
  std::vector<comm::GroupSpeed> speeds(3);
  run_ranks(3, [&](cluster::Context& context) {
    speeds[static_cast<size_t>(context.rank())] = context.speed();
    context.world().barrier("measured");
  });
  for (const comm::GroupSpeed& speed : speeds) {
    EXPECT_GT(speed.latency_seconds, 0);
    EXPECT_GT(speed.bytes_per_second, 0);
    EXPECT_EQ(speed.latency_seconds, speeds[0].latency_seconds);
    EXPECT_EQ(speed.bytes_per_second, speeds[0].bytes_per_second);
  }
}

TEST(Speed, ALinkThatIsSlowToStartGetsLargeBuckets) {
  EXPECT_EQ(comm::choose_bucket_bytes({2e-6, 1e10}), 1 << 20);
  EXPECT_EQ(comm::choose_bucket_bytes({100e-6, 1e9}), 8 << 20);  // 5 MB, to the next power of two
  EXPECT_EQ(comm::choose_bucket_bytes({1e-3, 1e10}), 64 << 20);
}

TEST(Refusals, NameWhatIsWrong) {
  run_ranks(2, [](cluster::Context& context) {
    Communicator& world = context.world();
    bool flag = true;
    EXPECT_THAT([&] { world.all_reduce(&flag, 1, DType::kBool, ReduceOp::kSum, "any"); },
                ThrowsMessage<InvalidArgument>(HasSubstr("any: the sum of bools is no bool; use max")));
    EXPECT_THAT([&] { world.all_reduce(&flag, 1, DType::kI8, ReduceOp::kMax, "x"); },
                ThrowsMessage<InvalidArgument>(HasSubstr("i8")));
    const std::vector<int64_t> three = {1, 1, 1};
    EXPECT_THAT([&] { world.all_gather(&flag, &flag, three, DType::kBool, "g"); },
                ThrowsMessage<InvalidArgument>("g: group \"world\" has 2 ranks, but 3 counts are given"));
    EXPECT_THAT([&] { world.broadcast(&flag, 1, DType::kBool, 2, "b"); },
                ThrowsMessage<InvalidArgument>("b: root 2 is no rank of group \"world\", which has 2"));
    EXPECT_THAT([&] { world.send(&flag, 1, DType::kBool, world.rank(), "s"); },
                ThrowsMessage<InvalidArgument>(HasSubstr("names itself as peer")));
    world.barrier("still usable");
  });
  EXPECT_THAT([] { comm::parse_reduce_op("mean"); },
              ThrowsMessage<InvalidArgument>("unknown reduction \"mean\"; the known ones are sum, max, min, prod"));
}

TEST(Waits, GiveTheSameWhetherOrNotTheyLeaveTheCoreToOthers) {
  run_ranks(3, [](cluster::Context& context) {
    Communicator& beside = *context.create_group("beside", {0, 1, 2});
    beside.share_core();
    for (int i = 0; i < 100; ++i) {
      for (Communicator* group : {&context.world(), &beside}) {
        float sum = static_cast<float>(context.rank() + i);
        group->all_reduce(&sum, 1, DType::kF32, ReduceOp::kSum, "sum");
        EXPECT_EQ(sum, static_cast<float>(3 + 3 * i));
      }
    }
  });
}

// Each waits for the other in the group that the test gives it; what they throw says so.
void wait_crosswise(Communicator::Driver of_second_group, int64_t timeout_ms) {
  const auto wait = [&](cluster::Context& context) {
    context.world().set_driver(Communicator::Driver::kMain);
    Communicator& lane = *context.create_group("lane", {0, 1});
    lane.set_driver(of_second_group);
    lane.barrier("start");
    context.world().barrier("start");
    (context.rank() == 0 ? context.world() : lane).barrier(context.rank() == 0 ? "eval" : "step");
  };
  run_ranks(2, wait, {.timeout_ms = timeout_ms});
}

TEST(Mismatch, RanksThatWaitForEachOtherInTwoGroupsHearOfItLongBeforeTheDeadline) {
  EXPECT_THAT([] { wait_crosswise(Communicator::Driver::kDriven, 600000); },
              ThrowsMessage<IoError>(AllOf(HasSubstr("neither goes on"), HasSubstr("barrier \"eval\" #"),
                                           HasSubstr("barrier \"step\" #"), HasSubstr("group \"lane\""))));
}

// Rank 2 waits for rank 0, that one for rank 1, and that one for rank 2.
TEST(Mismatch, RanksThatWaitForEachOtherInACircleHearOfItLongBeforeTheDeadline) {
  const auto wait = [](cluster::Context& context) {
    context.world().set_driver(Communicator::Driver::kMain);
    Communicator* of_stages = context.create_group("stages", {0, 1});
    Communicator* lane = context.create_group("lane", {1, 2});
    for (Communicator* group : {of_stages, lane}) {
      if (group != nullptr) group->set_driver(Communicator::Driver::kDriven);
    }
    float x = 0;
    if (context.rank() == 0) of_stages->receive(&x, 1, DType::kF32, 1, "activations");
    if (context.rank() == 1) lane->barrier("step");
    if (context.rank() == 2) context.world().barrier("end of a training");
  };
  EXPECT_THAT([&] { run_ranks(3, wait, {.timeout_ms = 600000}); },
              ThrowsMessage<IoError>(AllOf(HasSubstr("neither goes on"), HasSubstr("barrier \"end of a training\" #1"),
                                           HasSubstr("barrier \"step\" #1"))));
}

TEST(Mismatch, AGroupThatMayHaveAThreadOfItsOwnIsWaitedForUntilTheDeadline) {
  EXPECT_THAT([] { wait_crosswise(Communicator::Driver::kUnknown, 1500); },
              ThrowsMessage<IoError>(HasSubstr("heard nothing from rank")));
}

TEST(Mismatch, ARankThatMakesAnotherCallIsNamed) {
  EXPECT_THAT(
      [] {
        run_ranks(2, [](cluster::Context& context) {
          float data[4] = {};
          context.world().barrier("start");
          if (context.rank() == 0) {
            context.world().all_reduce(data, 4, DType::kF32, ReduceOp::kSum, "loss");
          } else {
            context.world().broadcast(data, 4, DType::kF32, 1, "weights");
          }
        });
      },
      ThrowsMessage<IoError>(AllOf(HasSubstr("group \"world\""), HasSubstr("makes another call than rank"),
                                   HasSubstr("all_reduce \"loss\" #2 (sum of 4 f32)"),
                                   HasSubstr("broadcast \"weights\" #2 (4 f32 from rank 1 of the group)"))));
}

TEST(Mismatch, OtherCountsTypesAndNamesAreFound) {
  const auto two_calls = [](auto first, auto second) {
    run_ranks(2, [&](cluster::Context& context) {
      if (context.rank() == 0) first(context.world());
      if (context.rank() == 1) second(context.world());
    });
  };
  float data[8] = {};
  const auto all_reduce = [&](int64_t count, DType dtype, const char* who) {
    return [=](Communicator& world) {
      double local[8] = {};
      world.all_reduce(local, count, dtype, ReduceOp::kSum, who);
    };
  };
  EXPECT_THAT([&] { two_calls(all_reduce(3, DType::kF32, "a"), all_reduce(4, DType::kF32, "a")); },
              ThrowsMessage<IoError>(HasSubstr("another call")));
  EXPECT_THAT([&] { two_calls(all_reduce(3, DType::kF32, "a"), all_reduce(3, DType::kI32, "a")); },
              ThrowsMessage<IoError>(HasSubstr("another call")));
  EXPECT_THAT([&] { two_calls(all_reduce(3, DType::kF32, "a"), all_reduce(3, DType::kF32, "b")); },
              ThrowsMessage<IoError>(HasSubstr("another call")));
  EXPECT_THAT(
      [&] {
        two_calls([&](Communicator& world) { world.send(data, 3, DType::kF32, 1, "send act"); },
                  [&](Communicator& world) { world.receive(data, 5, DType::kF32, 0, "receive act"); });
      },
      ThrowsMessage<IoError>("rank 1: receive act #1 of group \"world\": rank 1 expects 5 f32 from rank 0, which sends "
                             "3 f32 in send act #1"));
}

TEST(Deadline, NamesThePeerGroupNumberAndOp) {
  EXPECT_THAT(
      [] {
        run_ranks(2,
                  [](cluster::Context& context) {
                    float x = 0;
                    context.world().all_reduce(&x, 1, DType::kF32, ReduceOp::kSum, "loss");
                    if (context.rank() == 0) context.world().all_reduce(&x, 1, DType::kF32, ReduceOp::kSum, "loss");
                    // Rank 1 waits for something else, in another group, and so never comes.
                    if (context.rank() == 1) context.world().receive(&x, 1, DType::kF32, 0, "receive");
                  },
                  {.timeout_ms = 3000});
      },
      ThrowsMessage<IoError>(
          testing::MatchesRegex("rank [01]: (all_reduce \"loss\" #2|receive #1) of group \"world\": "
                                "rank [01] heard nothing from rank [01] for "
                                "[0-9]+ ms; its last call in this group was #[12]; where that rank only works "
                                "for longer, raise the deadline: tessera run --timeout, or "
                                "TESSERA_TIMEOUT_MS")));
}

TEST(Deadline, IsNoneInAGroupWhoseMembersMayBeSilent) {
  static constexpr int64_t kTimeoutMs = 3000;
  run_ranks(2,
            [](cluster::Context& context) {
              Communicator& pair = *context.create_group("pair", {0, 1});
              int64_t said = 7;
              if (context.rank() == 0) {
                const int64_t began_ns = context.clock().monotonic_ns();
                while (context.clock().monotonic_ns() - began_ns < 3 * kTimeoutMs / 2 * 1'000'000)
                  std::this_thread::yield();
                pair.send(&said, 1, DType::kI64, 1, "send");
                return;
              }
              EXPECT_EQ(pair.wait_without_deadline(), kTimeoutMs);
              said = 0;
              pair.receive(&said, 1, DType::kI64, 0, "receive");
              EXPECT_EQ(said, 7);
            },
            {.timeout_ms = kTimeoutMs});
}

TEST(Deadline, OfOneWhoDoesNotComeIsNotWaitedForAfterAFailure) {
  EXPECT_THAT(
      [] {
        run_ranks(2, [](cluster::Context& context) {
          Communicator& pair = *context.create_group("pair", {0, 1});
          if (context.rank() == 0) throw IoError("the disk is full");
          pair.wait_without_deadline();
          int64_t said = 0;
          pair.receive(&said, 1, DType::kI64, 0, "receive");
        });
      },
      ThrowsMessage<IoError>("rank 0: the disk is full"));
}

TEST(Failure, NobodyIsInTheMemoryOfARankThatHasLeft) {
  for (int attempt = 0; attempt < 6; ++attempt) {
    EXPECT_THROW(run_ranks(3,
                           [&](cluster::Context& context) {
                             // Given back to the system when the rank's function ends; who writes there then crashes.
                             const auto memory = comm::allocate_pages(size_t{1} << 20);
                             for (int step = 0;; ++step) {
                               if (context.rank() == 1 && step == attempt) throw IoError("the disk is full");
                               context.world().all_reduce(memory.get(), 1 << 18, DType::kF32, ReduceOp::kSum, "x");
                             }
                           }),
                 IoError);
  }
}

// A job's store within this process.
class Names final : public comm::Store {
 public:
  void set(const std::string& name, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_.emplace(name, value);  // one that is there stays
    changed_.notify_all();
  }
  std::string get(const std::string& name, int64_t timeout_ms) override { return find(name, timeout_ms).value(); }
  std::optional<std::string> find(const std::string& name, int64_t limit_ms) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(limit_ms), [&] { return values_.contains(name); });
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  void forget(const std::string&) override {}

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

// Two ranks that are processes of one host as far as they know. Rank 0 sends what it keeps in shared memory, which it
// gives up when that has ended, and then calls `sent`; rank 1 takes it.
void send_by_shared_memory(Names& names, comm::JobState& job, int64_t count, const std::function<void()>& sent,
                           const std::function<void(comm::StretchReceiver&)>& receive) {
  const comm::SharedMemoryOptions options{.wait = {.timeout_ms = 600000, .spin = false}};
  const auto group = [](int rank) {
    return comm::GroupInfo{.name = "world", .number = 0, .rank = rank, .ranks = {0, 1}};
  };
  std::thread sender([&] {
    const auto transport = comm::make_shared_memory_transport(names, job, 0, options);
    const auto world = transport->create_communicator(group(0));
    {
      const auto memory = transport->allocate(static_cast<size_t>(count));
      std::memset(memory.get(), 7, static_cast<size_t>(count));
      EXPECT_THROW(world->send(memory.get(), count, DType::kU8, 1, "rows"), IoError);
    }
    sent();
  });
  const auto transport = comm::make_shared_memory_transport(names, job, 1, options);
  const auto world = transport->create_communicator(group(1));
  receive(dynamic_cast<comm::StretchReceiver&>(*world));
  sender.join();
}

TEST(Failure, LeavesThoseInSharedMemoryWhoStillReadThere) {
  constexpr int64_t kCount = int64_t{1} << 20;
  Names names;
  comm::JobState job(2);
  std::latch is_given_up(1);
  int64_t sum = 0;
  const auto take = [&](const std::byte* from, int64_t, int64_t count) {
    job.fail(0, "the disk is full");
    is_given_up.wait();
    for (int64_t i = 0; i < count; ++i) sum += static_cast<int64_t>(from[i]);
  };
  send_by_shared_memory(
      names, job, kCount, [&] { is_given_up.count_down(); },
      [&](comm::StretchReceiver& world) { world.receive_stretches(take, kCount, DType::kU8, 0, "rows"); });
  EXPECT_EQ(sum, 7 * kCount);
}

TEST(Refusals, NameTheEndOfSharedMemoryThatIsShorterThanWhatItsRankSends) {
  constexpr int64_t kCount = int64_t{1} << 16;
  const Descriptor shorter(make_memory_file("tessera", kCount / 2));
  Names names;
  names.set("segment/0/1", fmt::format("/proc/{}/fd/{}", getpid(), shorter.get()));
  comm::JobState job(2);
  send_by_shared_memory(
      names, job, kCount, [] {},
      [&](comm::StretchReceiver& world) {
        const auto take = [](const std::byte*, int64_t, int64_t) { FAIL() << "nothing can be read"; };
        EXPECT_THAT([&] { world.receive_stretches(take, kCount, DType::kU8, 0, "rows"); },
                    ThrowsMessage<IoError>(HasSubstr("the shared memory of rank 0 ends at byte 32768, and it "
                                                     "names bytes up to 65536")));
        job.fail(1, "it cannot read that");
      });
}

// Rank 2 waits first and may wake last: by then rank 1 has failed, and rank 0 in its next call because of that. That is
// a matter of scheduling, hence the attempts.
TEST(Failure, DoesNotUndoACallThatAllHaveMade) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::atomic<int> passed = 0;
    EXPECT_THROW(run_ranks(3,
                           [&](cluster::Context& context) {
                             if (context.rank() == 2) {
                               setpriority(PRIO_PROCESS, 0, 10);  // of this thread
                             } else {
                               std::this_thread::sleep_for(std::chrono::milliseconds(1 + context.rank()));
                             }
                             context.world().barrier("all are here");
                             ++passed;
                             if (context.rank() == 1) throw IoError("the disk is full");
                             context.world().barrier("one is missing");
                           }),
                 IoError);
    EXPECT_EQ(passed, 3);
  }
}

TEST(Failure, LeavesTheCommunicatorBroken) {
  EXPECT_THAT(
      [] {
        run_ranks(2, [](cluster::Context& context) {
          if (context.rank() == 1) return context.abort("gone");
          std::string first;
          try {
            context.world().barrier("a");
          } catch (const IoError& e) {
            first = e.what();
          }
          // The same error at once, whatever the call.
          float x = 0;
          EXPECT_THAT([&] { context.world().all_reduce(&x, 1, DType::kF32, ReduceOp::kSum, "b"); },
                      ThrowsMessage<IoError>(first));
          EXPECT_THAT(first, HasSubstr("because rank 1 failed: gone"));
        });
      },
      ThrowsMessage<IoError>("rank 1: gone"));
}

// What a wire's ranks send each other within this process, matched by sender, receiver and tag.
class Letters {
 public:
  using Way = std::tuple<int, int, int>;  // from, to, tag

  void send(const Way& way, const void* data, int64_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    const std::lock_guard lock(mutex_);
    sent_[way].emplace_back(begin, begin + bytes);
    changed_.notify_all();
  }
  // The number of the letter that is received next on this way.
  size_t expect(const Way& way) {
    const std::lock_guard lock(mutex_);
    return num_expected_[way]++;
  }
  // Null where it does not come in time.
  const Bytes* take(const Way& way, size_t number, int64_t timeout_ms) {
    std::unique_lock lock(mutex_);
    const bool is_there =
        changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return sent_[way].size() > number; });
    return is_there ? &sent_[way][number] : nullptr;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Way, std::deque<Bytes>> sent_;
  std::map<Way, size_t> num_expected_;
};

class LetterWire final : public comm::Wire {
 public:
  LetterWire(Letters& letters, int rank, int max_tag) : letters_(letters), rank_(rank), max_tag_(max_tag) {}
  std::string name() const override { return "letters"; }
  int max_tag() const override { return max_tag_; }
  std::unique_ptr<Operation> make_operation() override { return std::make_unique<Letter>(*this); }

 private:
  class Letter final : public Operation {
   public:
    explicit Letter(LetterWire& wire) : wire_(wire) {}
    void send(const void* data, int64_t bytes, int peer, int tag) override {
      EXPECT_LE(tag, wire_.max_tag_);
      wire_.letters_.send({wire_.rank_, peer, tag}, data, bytes);
      into_ = nullptr;
    }
    void receive(void* data, int64_t bytes, int peer, int tag) override {
      into_ = data;
      bytes_ = bytes;
      way_ = {peer, wire_.rank_, tag};
      number_ = wire_.letters_.expect(way_);
    }
    comm::Wire::End wait(int64_t timeout_ms, comm::WatchedWait& /*watch*/) override {
      if (into_ == nullptr) return comm::Wire::End::kDone;
      const Bytes* letter = wire_.letters_.take(way_, number_, timeout_ms);
      if (letter == nullptr) return comm::Wire::End::kLate;
      if (std::ssize(*letter) != bytes_) return comm::Wire::End::kLost;
      std::memcpy(into_, letter->data(), letter->size());
      return comm::Wire::End::kDone;
    }

   private:
    LetterWire& wire_;
    void* into_ = nullptr;
    int64_t bytes_ = 0;
    Letters::Way way_;
    size_t number_ = 0;
  };

  Letters& letters_;
  int rank_;
  int max_tag_;
};

// Two ranks of a wire, which make the groups of both by number. What they throw is returned by rank.
class WireRank {
 public:
  using Body = std::function<void(WireRank& rank)>;

  static std::vector<std::string> run(int max_tag, const Body& body) {
    Letters letters;
    comm::JobState job(2);
    std::vector<std::string> errors(2, "none");
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        try {
          WireRank rank(r, make_wire_transport(std::make_shared<LetterWire>(letters, r, max_tag), job, {}));
          body(rank);
        } catch (const std::exception& e) {
          errors[static_cast<size_t>(r)] = e.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

  int id() const { return id_; }
  std::unique_ptr<Communicator> make_group(int number) {
    return transport_->create_communicator(
        {.name = fmt::format("group {}", number), .number = number, .rank = id_, .ranks = {0, 1}});
  }
  // Rank 0 sends in the first group first, rank 1 receives in the second one first.
  void cross(Communicator& first, Communicator& second) {
    std::pair letters(17, 42);
    if (id_ == 0) {
      first.send(&letters.first, 1, DType::kI32, 1, "first");
      second.send(&letters.second, 1, DType::kI32, 1, "second");
    } else {
      letters = {};
      second.receive(&letters.second, 1, DType::kI32, 0, "second");
      first.receive(&letters.first, 1, DType::kI32, 0, "first");
    }
    EXPECT_EQ(letters, std::pair(17, 42));
  }

 private:
  WireRank(int id, std::unique_ptr<comm::Transport> transport) : id_(id), transport_(std::move(transport)) {}

  int id_;
  std::unique_ptr<comm::Transport> transport_;
};

TEST(Wire, GroupsHaveTagsOfTheirOwnHoweverManyThereWere) {
  const auto errors = WireRank::run(std::numeric_limits<int>::max(), [](WireRank& rank) {
    const auto first = rank.make_group(5);
    for (const int later : {8192, 16384, 1 << 20}) rank.cross(*first, *rank.make_group(5 + later));
  });
  EXPECT_THAT(errors, testing::Each("none"));
}

TEST(Wire, GroupsTakeTheTagsOfThoseThatNoRankHoldsAnyMore) {
  const auto errors = WireRank::run(15, [](WireRank& rank) {  // three groups at a time, and the meeting of ranks
    const auto kept = rank.make_group(0);
    std::unique_ptr<Communicator> last;
    for (int number = 1; number < 50; ++number) {
      if (rank.id() == number % 2) last.reset();  // the other one holds it until it has made the next
      auto next = rank.make_group(number);
      rank.cross(*kept, *next);
      last = std::move(next);
    }
  });
  EXPECT_THAT(errors, testing::Each("none"));
}

TEST(Wire, MoreGroupsThanThereAreTagsForAreRefused) {
  const auto errors = WireRank::run(15, [](WireRank& rank) {
    std::vector<std::unique_ptr<Communicator>> kept;
    for (int number = 0; number < 4; ++number) kept.push_back(rank.make_group(number));
  });
  EXPECT_THAT(errors, testing::Each("group \"group 3\": letters has tags for 3 groups at a time, and they are taken: "
                                    "destroy groups that are done"));
}

}  // namespace
}  // namespace tessera
