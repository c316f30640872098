// Ranks on one device that tell each other through its memory: each kind of call in each type and in sizes that do not
// fit a slot, with the bits of the same call in the host's memory; and what becomes of a call when a rank fails, does
// not come, makes another call or gives up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/thread.h"
#include "tessera/comm/device_group.h"
#include "tessera/comm/job_state.h"
#include "tessera/kernels/sharing/device_meeting.h"
#include "tessera/tensor/tensor.h"
#include "tessera/testing/run_ranks.h"
#include "tests/devices/shared_fake.h"

namespace tessera::devices {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr DType kComputeTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16,
                                   DType::kI32, DType::kI64, DType::kU8,   DType::kBool};
// Of f32 more than a slot of 64 KiB has, and no whole number of them.
constexpr int64_t kMany = 40'000;

// Numbers that are a rank's own, with fractions where the type has them, of both signs.
Tensor numbers(DType dtype, int64_t count, int rank) {
  Tensor result(DType::kF64, {count});
  const auto values = result.values<double>();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t drawn = (i * 7919 + rank * 104'729) % 1'009;
    double& value = values[static_cast<size_t>(i)];
    if (is_floating(dtype)) {
      value = static_cast<double>(drawn - 504) / 37.0;
    } else if (dtype == DType::kBool) {
      value = static_cast<double>(drawn % 2);
    } else {
      value = static_cast<double>(drawn % 100);
    }
  }
  return result.cast(dtype);
}

// A rank's end of a group of all ranks, and its queue.
struct Rank {
  Rank(cluster::Context& context, SharedFake& fake)
      : context(context), device(fake.device), group(context.world(), fake.shared), queue(device.make_queue()) {
    group.set_queue(*queue);
  }

  // The tensor's elements, in memory of the device.
  std::unique_ptr<Memory> there(const Tensor& tensor) {
    const int64_t bytes = std::max<int64_t>(tensor.size_bytes(), 64);
    auto memory = device.reserve(bytes);
    memory->resize(bytes);
    queue->copy(memory->data(), tensor.view().data, tensor.size_bytes(), CopyWay::kToDevice);
    queue->synchronize();  // the tensor may go, or change
    return memory;
  }
  Tensor back(const Memory& memory, const Type& type, int64_t offset_bytes = 0) {
    Tensor tensor(type);
    queue->copy(tensor.view().data, memory.data() + offset_bytes, type.size_bytes(), CopyWay::kToHost);
    queue->synchronize();
    return tensor;
  }
  int id() const { return context.rank(); }

  cluster::Context& context;
  FakeDevice& device;
  comm::DeviceGroup group;
  std::unique_ptr<Queue> queue;
};

void on_ranks(int size, const std::function<void(Rank&)>& f, const RunRanksOptions& options = {}) {
  SharedFake fake(/*seed=*/5);
  run_ranks(
      size,
      [&](cluster::Context& context) {
        Rank rank(context, fake);
        f(rank);
      },
      options);
}

std::vector<ReduceOp> reductions_of(DType dtype) {
  if (dtype == DType::kBool) return {ReduceOp::kMax, ReduceOp::kMin};
  return {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProd};
}

TEST(SharedDevice, ReducesWithTheBitsOfTheHost) {
  for (const int size : {1, 2, 3, 4}) {
    on_ranks(size, [&](Rank& rank) {
      for (const DType dtype : kComputeTypes) {
        for (const ReduceOp op : reductions_of(dtype)) {
          for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{1'000}, kMany}) {
            if (count == kMany && op != ReduceOp::kSum) continue;
            const Tensor on_host = numbers(dtype, count, rank.id());
            const auto memory = rank.there(on_host);
            rank.context.world().all_reduce(on_host.view().data, count, dtype, op, "on the host");
            rank.group.all_reduce(memory->data(), count, dtype, op, "there");
            EXPECT_TRUE(bit_equal(rank.back(*memory, on_host.type()), on_host))
                << size << " ranks, " << to_string(dtype) << " " << to_string(op) << " of " << count;
          }
        }
      }
    });
  }
}

// Counts of three ranks: equal ones, some without any, more than a slot has, none at all.
const std::vector<std::vector<int64_t>>& counts_of_three() {
  static const std::vector<std::vector<int64_t>> all = {{5, 5, 5}, {3, 0, 1}, {0, kMany, 7}, {0, 0, 0}};
  return all;
}
int64_t sum(const std::vector<int64_t>& counts, size_t end = 3) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<ptrdiff_t>(end), int64_t{0});
}

TEST(SharedDevice, GathersAndScattersPiecesOfAnySizeInAnyType) {
  on_ranks(3, [](Rank& rank) {
    const auto own = static_cast<size_t>(rank.id());
    for (const DType dtype : kComputeTypes) {
      for (const auto& counts : counts_of_three()) {
        const Tensor in = numbers(dtype, counts[own], rank.id());
        Tensor gathered(dtype, {sum(counts)});
        const auto in_there = rank.there(in);
        const auto out_there = rank.there(gathered);
        rank.context.world().all_gather(in.view().data, gathered.view().data, counts, dtype, "on the host");
        rank.group.all_gather(in_there->data(), out_there->data(), counts, dtype, "there");
        EXPECT_TRUE(bit_equal(rank.back(*out_there, gathered.type()), gathered)) << to_string(dtype);

        const ReduceOp op = dtype == DType::kBool ? ReduceOp::kMax : ReduceOp::kSum;
        const Tensor all = numbers(dtype, sum(counts), rank.id());
        Tensor scattered(dtype, {counts[own]});
        const auto all_there = rank.there(all);
        const auto part_there = rank.there(scattered);
        rank.context.world().reduce_scatter(all.view().data, scattered.view().data, counts, dtype, op, "on the host");
        rank.group.reduce_scatter(all_there->data(), part_there->data(), counts, dtype, op, "there");
        EXPECT_TRUE(bit_equal(rank.back(*part_there, scattered.type()), scattered)) << to_string(dtype);
      }
    }
  });
}

TEST(SharedDevice, GathersAndScattersInPlace) {
  on_ranks(3, [](Rank& rank) {
    const auto own = static_cast<size_t>(rank.id());
    const std::vector<int64_t> counts = {4, kMany, 2};
    const int64_t place = sum(counts, own) * static_cast<int64_t>(sizeof(float));
    const Tensor all = numbers(DType::kF32, sum(counts), rank.id());
    const Type part{DType::kF32, {counts[own]}};
    Tensor scattered(part);
    const auto there = rank.there(all);
    rank.context.world().reduce_scatter(all.view().data, scattered.view().data, counts, DType::kF32, ReduceOp::kSum,
                                        "on the host");
    rank.group.reduce_scatter(there->data(), there->data() + place, counts, DType::kF32, ReduceOp::kSum, "there");
    EXPECT_TRUE(bit_equal(rank.back(*there, part, place), scattered));
    Tensor gathered(DType::kF32, {sum(counts)});
    rank.context.world().all_gather(scattered.view().data, gathered.view().data, counts, DType::kF32, "on the host");
    rank.group.all_gather(there->data() + place, there->data(), counts, DType::kF32, "there");
    EXPECT_TRUE(bit_equal(rank.back(*there, gathered.type()), gathered));
  });
}

TEST(SharedDevice, ExchangesAndTellsPiecesOfAnySize) {
  on_ranks(3, [](Rank& rank) {
    const auto own = static_cast<size_t>(rank.id());
    for (const auto& counts : counts_of_three()) {
      // This rank sends counts[r] elements to each rank r, and has as many from each as it has counts of its own.
      const std::vector<int64_t> received_counts(3, counts[own]);
      const Tensor sent = numbers(DType::kBF16, sum(counts), rank.id());
      Tensor received(DType::kBF16, {3 * counts[own]});
      const auto sent_there = rank.there(sent);
      const auto received_there = rank.there(received);
      rank.context.world().all_to_all(sent.view().data, counts, received.view().data, received_counts, DType::kBF16,
                                      "on the host");
      rank.group.all_to_all(sent_there->data(), counts, received_there->data(), received_counts, DType::kBF16, "there");
      EXPECT_TRUE(bit_equal(rank.back(*received_there, received.type()), received));
    }
    for (const int root : {0, 2}) {
      const auto told = rank.there(numbers(DType::kI64, kMany, rank.id()));
      rank.group.broadcast(told->data(), kMany, DType::kI64, root, "there");
      EXPECT_TRUE(bit_equal(rank.back(*told, {DType::kI64, {kMany}}), numbers(DType::kI64, kMany, root)));
    }
  });
}

TEST(SharedDevice, SendsMessagesOfAnySizeInOrder) {
  on_ranks(2, [](Rank& rank) {
    for (const int64_t count : {int64_t{3}, kMany, int64_t{0}, int64_t{1}}) {
      const Tensor letter = numbers(DType::kF32, count, 0);
      if (rank.id() == 0) {
        const auto there = rank.there(letter);
        rank.group.send(there->data(), count, DType::kF32, 1, "there");
      } else {
        const auto there = rank.there(numbers(DType::kF32, count, 1));
        rank.group.receive(there->data(), count, DType::kF32, 0, "there");
        EXPECT_TRUE(bit_equal(rank.back(*there, letter.type()), letter)) << count;
      }
    }
  });
}

TEST(SharedDevice, ManyCallsOfSeveralGroupsDoNotDisturbEachOther) {
  SharedFake fake(/*seed=*/9);
  run_ranks(4, [&](cluster::Context& context) {
    Rank all(context, fake);
    const int half = context.rank() / 2;
    comm::Communicator* own = nullptr;
    for (int h = 0; h < 2; ++h) {
      auto* made = context.create_group(h == 0 ? "first" : "second", {2 * h, 2 * h + 1});
      if (h == half) own = made;
    }
    comm::DeviceGroup pair(*own, fake.shared);
    pair.set_queue(*all.queue);
    const auto memory = all.there(Tensor::full({DType::kI64, {3}}, 1));
    for (int i = 0; i < 10; ++i) {
      all.group.all_reduce(memory->data(), 3, DType::kI64, ReduceOp::kSum, "all");
      pair.all_reduce(memory->data(), 3, DType::kI64, ReduceOp::kSum, "a half");
    }
    // 8 to the power of 10.
    EXPECT_THAT(all.back(*memory, {DType::kI64, {3}}).to_doubles(), testing::Each(1073741824.0));
  });
}

TEST(SharedDeviceFault, ARankThatMakesAnotherCallIsNamed) {
  EXPECT_THAT(
      [] {
        on_ranks(2, [](Rank& rank) {
          const int64_t count = rank.id() == 0 ? 5 : 6;
          const auto memory = rank.there(numbers(DType::kF32, count, 0));
          rank.group.all_reduce(memory->data(), count, DType::kF32, ReduceOp::kSum, "there");
        });
      },
      ThrowsMessage<IoError>(HasSubstr("makes another call than rank")));
}

TEST(SharedDeviceFault, ARankThatFailsEndsTheCallsOfTheOthers) {
  std::string error_of_rank_0;
  std::atomic<bool> waits = false;
  const auto train = [&] {
    on_ranks(2, [&](Rank& rank) {
      if (rank.id() == 1) {
        while (!waits) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        throw IoError("the disk is full");
      }
      const auto memory = rank.there(numbers(DType::kF32, 5, 0));
      waits = true;
      try {
        rank.group.all_reduce(memory->data(), 5, DType::kF32, ReduceOp::kSum, "fc.weight");
      } catch (const comm::PeerFailure& error) {
        error_of_rank_0 = error.what();
        EXPECT_EQ(error.rank(), 1);
        EXPECT_THROW(rank.group.all_reduce(memory->data(), 5, DType::kF32, ReduceOp::kSum, "next"), comm::PeerFailure);
        throw;
      }
    });
  };
  EXPECT_THAT(train, ThrowsMessage<IoError>("rank 1: the disk is full"));
  EXPECT_EQ(error_of_rank_0,
            "stopped in all_reduce \"fc.weight\" #1 of group \"world\" because rank 1 failed: the disk is full");
}

TEST(SharedDeviceFault, ARankThatDoesNotComeIsNamedAfterTheDeadline) {
  std::atomic<bool> is_over = false;
  const auto train = [&] {
    on_ranks(2,
             [&](Rank& rank) {
               if (rank.id() == 1) {
                 while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                 return;
               }
               const std::shared_ptr<void> ends(nullptr, [&](void*) { is_over = true; });
               const auto memory = rank.there(numbers(DType::kF32, 5, 0));
               rank.group.all_reduce(memory->data(), 5, DType::kF32, ReduceOp::kSum, "fc.weight");
             },
             {.timeout_ms = 5'000});
  };
  EXPECT_THAT(train, ThrowsMessage<IoError>(AllOf(HasSubstr("rank 0: all_reduce \"fc.weight\" #1"),
                                                  HasSubstr("rank 0 heard nothing from rank 1 for "),
                                                  HasSubstr("it has not come there on its device"))));
}

// Two ends of a group without a job: nobody else ends their waits.
TEST(SharedDeviceFault, WhoGivesAGroupUpEndsTheWaitsOfTheOthers) {
  SharedFake fake(/*seed=*/3);
  const std::string id = fake.shared.make_id();
  ThreadGroup ranks;
  ranks.start("a rank", [&] {
    const auto group = fake.shared.join(id, 1, 2, [] {});
    group->abort();
    const auto queue = fake.device.make_queue();
    EXPECT_THAT([&] { group->all_reduce(*queue, nullptr, 0, DType::kF32, ReduceOp::kSum); },
                ThrowsMessage<IoError>(HasSubstr("rank 1 of the group of 2 has given it up")));
  });
  const auto group = fake.shared.join(id, 0, 2, [] {});
  const auto queue = fake.device.make_queue();
  const auto memory = fake.device.reserve(64);
  memory->resize(64);
  EXPECT_THAT([&] { group->all_reduce(*queue, memory->data(), 1, DType::kF32, ReduceOp::kSum); },
              ThrowsMessage<IoError>(HasSubstr("rank 1 of the group has given it up")));
  EXPECT_THAT([&] { group->check(); }, ThrowsMessage<IoError>(HasSubstr("has given it up")));
  ranks.join();
}

TEST(SharedDeviceFault, ARankThatDoesNotJoinIsNotWaitedForForEver) {
  SharedFake fake(/*seed=*/3);
  int num_asked = 0;
  EXPECT_THAT(
      [&] {
        fake.shared.join(fake.shared.make_id(), 0, 2, [&] {
          if (++num_asked == 5) throw IoError("rank 1 has failed");
        });
      },
      ThrowsMessage<IoError>("rank 1 has failed"));
}

TEST(SharedDeviceFault, AMeetingThatIsNotThereIsRefused) {
  for (const char* id : {"", "12", "1:2:x", "1:2:3:4"}) {
    EXPECT_THAT([&] { kernels::DeviceMeeting::find(id); },
                ThrowsMessage<IoError>(HasSubstr("is no meeting of theirs")));
  }
  EXPECT_THAT([&] { kernels::DeviceMeeting::find("1073741824:3:5"); },
              ThrowsMessage<IoError>(HasSubstr("ranks of one device meet at /proc/1073741824/fd/3: ")));
}

TEST(SharedDeviceFault, AnOfferOfAnotherProcessIsRefusedWhereMemoryIsOfOneProcess) {
  SharedFake fake(/*seed=*/3);
  EXPECT_NO_THROW(fake.shared.try_offer(fake.shared.offer()));
  std::string of_another = fake.shared.offer();
  of_another.replace(0, of_another.find('\n'), "another process");
  EXPECT_THAT([&] { fake.shared.try_offer(of_another); }, ThrowsMessage<IoError>("fake: its memory is of one process"));
  EXPECT_THAT([&] { fake.shared.try_offer(""); }, ThrowsMessage<IoError>(HasSubstr("offers nothing")));
}

}  // namespace
}  // namespace tessera::devices
