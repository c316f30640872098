// What Tessera asks of NCCL, against a stub of it (stub_nccl.cc): loading, groups, each kind of call in each type, and
// what becomes of a group when a call fails, hangs, or a rank does not come. Ranks are threads, memory is the host's.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/thread.h"
#include "tessera/comm/device_group.h"
#include "tessera/comm/job_state.h"
#include "tessera/kernels/cuda/libraries/nccl.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/tensor.h"
#include "tessera/testing/run_ranks.h"

namespace tessera::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

class FindsTheStub final : public testing::Environment {
 public:
  void SetUp() override { setenv("TESSERA_CUDA_LIBRARIES", TESSERA_STUB_NCCL, 1); }
};
[[maybe_unused]] const auto* const kEnvironment = testing::AddGlobalTestEnvironment(new FindsTheStub);

template <typename F>
F stub_function(const char* name) {
  static void* const library = dlopen(TESSERA_STUB_NCCL "/libnccl.so.2", RTLD_NOW);
  return reinterpret_cast<F>(dlsym(library, name));
}

// A stream of the stub: a thread.
class Stream {
 public:
  Stream() : stream_(stub_function<NcclStream* (*)()>("stub_make_stream")()) {}
  ~Stream() { stub_function<void (*)(NcclStream*)>("stub_destroy_stream")(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  NcclStream* get() const { return stream_; }
  bool is_idle() const { return stub_function<int (*)(NcclStream*)>("stub_is_idle")(stream_) != 0; }
  // False where it has work after that time.
  bool wait(int64_t limit_ms = 20000) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    while (!is_idle()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  }

 private:
  NcclStream* stream_;
};

// What the stub does wrong while this lives; see stub_nccl.cc.
class Mode {
 public:
  explicit Mode(const char* mode) { setenv("STUB_NCCL", mode, 1); }
  ~Mode() { unsetenv("STUB_NCCL"); }
  Mode(const Mode&) = delete;
  Mode& operator=(const Mode&) = delete;
};

// Calls f(group, stream, rank) on a thread for each rank; what they throw, by rank.
std::vector<std::string> on_ranks(int size, const std::function<void(NcclGroup&, const Stream&, int)>& f) {
  const std::string id = new_nccl_id(nccl());
  std::vector<std::string> errors(static_cast<size_t>(size));
  ThreadGroup threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.start("a rank", [&, rank] {
      try {
        const Stream stream;
        NcclGroup group(nccl(), id, rank, size, [] {});
        f(group, stream, rank);
        if (!stream.wait()) throw IoError("the stream does not come to an end");
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  threads.join();
  return errors;
}

// 1, 2, 3, ... times `factor`.
Tensor numbers(DType dtype, int64_t count, double factor = 1) {
  Tensor result(DType::kF64, {count});
  for (int64_t i = 0; i < count; ++i) {
    result.values<double>()[static_cast<size_t>(i)] = factor * static_cast<double>(i + 1);
  }
  return result.cast(dtype);
}

TEST(Nccl, IsOpenedWithItsVersion) {
  EXPECT_EQ(nccl().version_text, "2.20.3");
  EXPECT_EQ(new_nccl_id(nccl()).size(), 128U);
  EXPECT_NE(new_nccl_id(nccl()), new_nccl_id(nccl()));
}

TEST(Nccl, SaysWhyItCannotBeOpened) {
  EXPECT_THAT(
      [] { open_nccl({"libnccl_absent.so"}); },
      ThrowsMessage<IoError>(AllOf(StartsWith("cuda: NCCL is not found"), HasSubstr("TESSERA_CUDA_LIBRARIES"))));
  EXPECT_THAT(
      [] { open_nccl({"libnccl_without_abort.so"}); },
      ThrowsMessage<IoError>(HasSubstr("/libnccl_without_abort.so has no function ncclCommAbort: it is too old")));
  EXPECT_THAT([] { open_nccl({"libnccl_old.so"}); },
              ThrowsMessage<IoError>("nccl: it is of version 2.12.0; 2.18.0 or later is needed"));
}

TEST(Nccl, ReducesInEveryTypeAndWay) {
  constexpr int64_t kCount = 5;
  for (const int size : {1, 2, 3}) {
    for (const DType dtype :
         {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kU8}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProd}) {
        const auto errors = on_ranks(size, [&](NcclGroup& group, const Stream& stream, int rank) {
          const Tensor data = numbers(dtype, kCount, rank + 1);
          group.all_reduce(stream.get(), data.view().data, kCount, dtype, op);
          ASSERT_TRUE(stream.wait());
          const double sum = size * (size + 1) / 2.0;
          const auto values = data.to_doubles();
          for (size_t i = 0; i < values.size(); ++i) {
            const auto first = static_cast<double>(i + 1);
            double expected = op == ReduceOp::kSum ? sum * first : op == ReduceOp::kMax ? size * first : first;
            if (op == ReduceOp::kProd) {
              expected = 1;
              for (int r = 1; r <= size; ++r) expected *= r * first;
            }
            // 750, where bfloat16 has steps of 4; and bytes end at 255.
            if (expected > 255) continue;
            EXPECT_EQ(values[i], expected) << size << " " << to_string(dtype) << " " << to_string(op) << " " << i;
          }
        });
        EXPECT_THAT(errors, testing::Each("")) << to_string(dtype);
      }
    }
  }
}

TEST(Nccl, ReducesBoolsAsAnyAndAll) {
  const auto errors = on_ranks(2, [](NcclGroup& group, const Stream& stream, int rank) {
    std::array<bool, 2> any{rank == 0, false};
    std::array<bool, 2> all{rank == 0, true};
    group.all_reduce(stream.get(), any.data(), 2, DType::kBool, ReduceOp::kMax);
    group.all_reduce(stream.get(), all.data(), 2, DType::kBool, ReduceOp::kMin);
    ASSERT_TRUE(stream.wait());
    EXPECT_THAT(any, testing::ElementsAre(true, false));
    EXPECT_THAT(all, testing::ElementsAre(false, true));
  });
  EXPECT_THAT(errors, testing::Each(""));
}

// Every type, those included that are only stored.
TEST(Nccl, MovesPiecesOfEqualAndUnequalSizes) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kI64, DType::kBool, DType::kI16}) {
    for (const std::vector<int64_t>& counts : {std::vector<int64_t>{2, 2, 2}, {3, 0, 1}, {0, 0, 0}}) {
      const int64_t total = counts[0] + counts[1] + counts[2];
      const auto errors = on_ranks(3, [&](NcclGroup& group, const Stream& stream, int rank) {
        const auto own = static_cast<size_t>(rank);
        const Tensor in = numbers(dtype, counts[own], rank + 1);
        const Tensor all(dtype, {total});
        group.all_gather(stream.get(), in.view().data, all.view().data, counts, dtype);
        ASSERT_TRUE(stream.wait());
        std::vector<double> expected;
        for (int r = 0; r < 3; ++r) {
          const auto part = numbers(dtype, counts[static_cast<size_t>(r)], r + 1).to_doubles();
          expected.insert(expected.end(), part.begin(), part.end());
        }
        EXPECT_EQ(all.to_doubles(), expected) << to_string(dtype);

        // This rank sends counts[r] elements to each rank r, and has as many from each as it has counts of its own.
        const Tensor sent = numbers(dtype, total, rank + 1);
        const std::vector<int64_t> received_counts(3, counts[own]);
        const Tensor received(dtype, {3 * counts[own]});
        group.all_to_all(stream.get(), sent.view().data, counts, received.view().data, received_counts, dtype);
        ASSERT_TRUE(stream.wait());
        int64_t offset = 0;
        for (int r = 0; r < rank; ++r) offset += counts[static_cast<size_t>(r)];
        expected.clear();
        for (int r = 0; r < 3; ++r) {
          const auto of_rank = numbers(dtype, total, r + 1).to_doubles();
          expected.insert(expected.end(), of_rank.begin() + offset, of_rank.begin() + offset + counts[own]);
        }
        EXPECT_EQ(received.to_doubles(), expected) << to_string(dtype);

        const Tensor told = numbers(dtype, 4, rank + 1);
        group.broadcast(stream.get(), told.view().data, 4, dtype, /*root=*/2);
        ASSERT_TRUE(stream.wait());
        EXPECT_EQ(told.to_doubles(), numbers(dtype, 4, 3).to_doubles()) << to_string(dtype);
      });
      EXPECT_THAT(errors, testing::Each("")) << to_string(dtype);
    }
  }
}

TEST(Nccl, ScattersSumsOfEqualAndUnequalSizes) {
  for (const std::vector<int64_t>& counts : {std::vector<int64_t>{2, 2, 2}, {3, 0, 1}}) {
    const int64_t total = counts[0] + counts[1] + counts[2];
    const auto errors = on_ranks(3, [&](NcclGroup& group, const Stream& stream, int rank) {
      const auto own = static_cast<size_t>(rank);
      const Tensor in = numbers(DType::kF32, total, rank + 1);
      const Tensor out(DType::kF32, {counts[own]});
      group.reduce_scatter(stream.get(), in.view().data, out.view().data, counts, DType::kF32, ReduceOp::kSum);
      ASSERT_TRUE(stream.wait());
      int64_t offset = 0;
      for (int r = 0; r < rank; ++r) offset += counts[static_cast<size_t>(r)];
      const auto sums = numbers(DType::kF32, total, 6).to_doubles();
      EXPECT_EQ(out.to_doubles(), std::vector<double>(sums.begin() + offset, sums.begin() + offset + counts[own]));
    });
    EXPECT_THAT(errors, testing::Each(""));
  }
}

TEST(Nccl, SendsInOrderPerPairOfRanks) {
  const auto errors = on_ranks(2, [](NcclGroup& group, const Stream& stream, int rank) {
    std::array<Tensor, 2> letters{numbers(DType::kF64, 3), numbers(DType::kF64, 2, 10)};
    std::array<Tensor, 2> received{Tensor(DType::kF64, {3}), Tensor(DType::kF64, {2})};
    for (size_t i = 0; i < letters.size(); ++i) {
      if (rank == 0) {
        group.send(stream.get(), letters[i].view().data, letters[i].num_elements(), DType::kF64, 1);
      } else {
        group.receive(stream.get(), received[i].view().data, received[i].num_elements(), DType::kF64, 0);
      }
    }
    ASSERT_TRUE(stream.wait());
    for (size_t i = 0; rank == 1 && i < 2; ++i) EXPECT_EQ(received[i].to_doubles(), letters[i].to_doubles());
  });
  EXPECT_THAT(errors, testing::Each(""));
}

TEST(Nccl, RefusesAReductionOfATypeThatItDoesNotHave) {
  const auto errors = on_ranks(1, [](NcclGroup& group, const Stream& stream, int) {
    int16_t value = 0;
    EXPECT_THROW(group.all_reduce(stream.get(), &value, 1, DType::kI16, ReduceOp::kSum), InvalidArgument);
  });
  EXPECT_THAT(errors, testing::Each(""));
}

TEST(NcclFault, ARefusedCallIsNamed) {
  const Mode mode("1:fail:ncclAllReduce");
  const auto errors = on_ranks(2, [](NcclGroup& group, const Stream& stream, int rank) {
    float value = 1;
    if (rank == 1) group.all_reduce(stream.get(), &value, 1, DType::kF32, ReduceOp::kSum);
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[1], "nccl: all_reduce failed on rank 1 of a group of 2: internal error (it was told to fail)");
}

TEST(NcclFault, AFailedConnectionIsNamed) {
  const Mode mode("0:fail:ncclCommInitRankConfig");
  const auto errors = on_ranks(1, [](NcclGroup&, const Stream&, int) {});
  EXPECT_THAT(errors, testing::ElementsAre(StartsWith("nccl: connecting ranks failed on rank 0 of a group of 1: ")));
}

TEST(NcclFault, WhoWaitsForTheLibraryIsAsked) {
  const Mode mode("0:delay:ncclBroadcast");
  const std::string id = new_nccl_id(nccl());
  const Stream stream;
  int num_asked = 0;
  NcclGroup group(nccl(), id, 0, 1, [&] { ++num_asked; });
  const int before = num_asked;
  float value = 1;
  group.broadcast(stream.get(), &value, 1, DType::kF32, 0);
  EXPECT_GT(num_asked, before);
  ASSERT_TRUE(stream.wait());
  // It may also end the wait.
  NcclGroup impatient(nccl(), new_nccl_id(nccl()), 0, 1, [] { throw IoError("enough"); });
  EXPECT_THAT([&] { impatient.broadcast(stream.get(), &value, 1, DType::kF32, 0); }, ThrowsMessage<IoError>("enough"));
  impatient.abort();
  ASSERT_TRUE(stream.wait());
}

TEST(NcclFault, ARankThatDoesNotComeIsNotWaitedForForEver) {
  int num_asked = 0;
  EXPECT_THAT(
      [&] {
        NcclGroup(nccl(), new_nccl_id(nccl()), 0, 2, [&] {
          if (++num_asked == 5) throw IoError("rank 1 has failed");
        });
      },
      ThrowsMessage<IoError>("rank 1 has failed"));
}

TEST(NcclFault, AnErrorThatComesLaterIsFound) {
  const Mode mode("0:break:ncclAllReduce");
  const auto errors = on_ranks(1, [](NcclGroup& group, const Stream& stream, int) {
    float value = 1;
    const auto looks = [&] {
      group.all_reduce(stream.get(), &value, 1, DType::kF32, ReduceOp::kSum);
      for (int i = 0; i < 20000; ++i) {
        group.check();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    };
    EXPECT_THAT(looks, ThrowsMessage<IoError>(AllOf(HasSubstr("remote error"), HasSubstr("it was told to break"))));
    group.abort();
  });
  EXPECT_THAT(errors, testing::Each(""));
}

TEST(NcclFault, WhatHangsEndsWhenItIsAborted) {
  const Mode mode("1:hang:ncclAllReduce");
  const auto errors = on_ranks(2, [](NcclGroup& group, const Stream& stream, int) {
    float value = 1;
    group.all_reduce(stream.get(), &value, 1, DType::kF32, ReduceOp::kSum);
    group.check();
    EXPECT_FALSE(stream.wait(50)) << "one hangs, and the other waits for it";
    group.abort();
    EXPECT_TRUE(stream.wait());
    EXPECT_THAT([&] { group.check(); }, ThrowsMessage<IoError>(HasSubstr("has given it up")));
    EXPECT_THAT([&] { group.all_reduce(stream.get(), &value, 1, DType::kF32, ReduceOp::kSum); },
                ThrowsMessage<IoError>(HasSubstr("has given it up")));
  });
  EXPECT_THAT(errors, testing::Each(""));
}

// A group of the stub in a stream of its own, whichever queue is named.
class StubCommunicator final : public DeviceCommunicator {
 public:
  StubCommunicator(const Stream& stream, const std::string& id, int rank, int size, std::function<void()> waiting)
      : stream_(stream), group_(nccl(), id, rank, size, std::move(waiting)) {}
  void all_reduce(Queue&, void* data, int64_t count, DType dtype, ReduceOp op) override {
    group_.all_reduce(stream_.get(), data, count, dtype, op);
  }
  void all_gather(Queue&, const void* in, void* out, std::span<const int64_t> counts, DType dtype) override {
    group_.all_gather(stream_.get(), in, out, counts, dtype);
  }
  void reduce_scatter(Queue&, const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                      ReduceOp op) override {
    group_.reduce_scatter(stream_.get(), in, out, counts, dtype, op);
  }
  void broadcast(Queue&, void* data, int64_t count, DType dtype, int root) override {
    group_.broadcast(stream_.get(), data, count, dtype, root);
  }
  void all_to_all(Queue&, const void* in, std::span<const int64_t> in_counts, void* out,
                  std::span<const int64_t> out_counts, DType dtype) override {
    group_.all_to_all(stream_.get(), in, in_counts, out, out_counts, dtype);
  }
  void send(Queue&, const void* data, int64_t count, DType dtype, int to) override {
    group_.send(stream_.get(), data, count, dtype, to);
  }
  void receive(Queue&, void* data, int64_t count, DType dtype, int from) override {
    group_.receive(stream_.get(), data, count, dtype, from);
  }
  void check() override { group_.check(); }
  void abort() override { group_.abort(); }

 private:
  const Stream& stream_;
  NcclGroup group_;
};

class StubCommunicators final : public DeviceCommunicators {
 public:
  explicit StubCommunicators(const Stream& stream) : stream_(stream) {}
  std::string name() override { return "nccl " + nccl().version_text; }
  std::string place() override { return "stub"; }
  std::string make_id() override { return new_nccl_id(nccl()); }
  std::unique_ptr<DeviceCommunicator> join(const std::string& id, int rank, int size,
                                           std::function<void()> waiting) override {
    return std::make_unique<StubCommunicator>(stream_, id, rank, size, std::move(waiting));
  }

 private:
  const Stream& stream_;
};

// What a rank does that waits for its device: it looks at the group meanwhile.
void wait_for(const Stream& stream, comm::DeviceGroup& group) {
  const auto begin = std::chrono::steady_clock::now();
  while (!stream.is_idle()) {
    const auto waited = std::chrono::steady_clock::now() - begin;
    group.check(group.last_call());
    group.require_in_time(group.last_call(), std::chrono::duration_cast<std::chrono::milliseconds>(waited).count());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(DeviceGroup, ItsRanksFindEachOtherThroughTheGroupOnTheHost) {
  run_ranks(3, [](cluster::Context& context) {
    const Stream stream;
    StubCommunicators devices(stream);
    comm::DeviceGroup group(context.world(), devices);
    group.set_queue(host_queue());
    EXPECT_EQ(group.size(), 3);
    EXPECT_EQ(group.rank(), context.rank());
    int64_t sum = context.rank();
    group.all_reduce(&sum, 1, DType::kI64, ReduceOp::kSum, "sum of ranks");
    wait_for(stream, group);
    EXPECT_EQ(sum, 3);
    EXPECT_THAT([&] { group.all_reduce(&sum, 1, DType::kBool, ReduceOp::kSum, "sum of bools"); },
                ThrowsMessage<InvalidArgument>(HasSubstr("sum of bools")));
  });
}

TEST(DeviceGroup, ARankThatFailsIsNamedToWhoWaitsOnItsDevice) {
  std::string error_of_rank_0;
  std::atomic<bool> waits = false;
  EXPECT_THAT(
      [&] {
        run_ranks(2, [&](cluster::Context& context) {
          const Stream stream;
          StubCommunicators devices(stream);
          comm::DeviceGroup group(context.world(), devices);
          group.set_queue(host_queue());
          if (context.rank() == 1) {
            while (!waits) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            throw IoError("the disk is full");
          }
          float value = 1;
          group.all_reduce(&value, 1, DType::kF32, ReduceOp::kSum, "fc.weight");
          waits = true;
          try {
            wait_for(stream, group);
          } catch (const comm::PeerFailure& error) {
            error_of_rank_0 = error.what();
            EXPECT_EQ(error.rank(), 1);
            EXPECT_TRUE(stream.wait()) << "the device goes on once the group is given up";
            EXPECT_THROW(group.all_reduce(&value, 1, DType::kF32, ReduceOp::kSum, "next"), comm::PeerFailure);
            throw;
          }
        });
      },
      ThrowsMessage<IoError>("rank 1: the disk is full"));
  EXPECT_EQ(error_of_rank_0,
            "stopped in all_reduce \"fc.weight\" #0 of group \"world\" because rank 1 failed: the disk is full");
}

// Whose time is over is said by who waits: the ranks themselves meet however long that takes.
TEST(DeviceGroup, ARankThatDoesNotComeIsNamedAfterTheDeadline) {
  constexpr int64_t kTimeoutMs = 60'000;
  std::atomic<bool> is_over = false;
  EXPECT_THAT(
      [&] {
        run_ranks(2,
                  [&](cluster::Context& context) {
                    const Stream stream;
                    StubCommunicators devices(stream);
                    comm::DeviceGroup group(context.world(), devices);
                    group.set_queue(host_queue());
                    float value = 1;
                    if (context.rank() == 1) {
                      while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                      return;
                    }
                    const std::shared_ptr<void> ends(nullptr, [&](void*) { is_over = true; });
                    group.all_reduce(&value, 1, DType::kF32, ReduceOp::kSum, "fc.weight");
                    EXPECT_NO_THROW(group.require_in_time(group.last_call(), kTimeoutMs - 1));
                    EXPECT_FALSE(stream.is_idle());
                    EXPECT_THROW(group.require_in_time(group.last_call(), kTimeoutMs), comm::PeerSilence);
                    EXPECT_TRUE(stream.wait()) << "the device goes on once the group is given up";
                    group.check(group.last_call());
                  },
                  {.timeout_ms = kTimeoutMs});
      },
      ThrowsMessage<IoError>(AllOf(StartsWith("rank 0: all_reduce \"fc.weight\""),
                                   HasSubstr("rank 0 heard nothing from rank 1 for 60000 ms"),
                                   HasSubstr("it has not come there on its device"))));
}

TEST(DeviceGroup, ARankThatFailsBeforeItJoinsEndsTheConnection) {
  EXPECT_THAT(
      [&] {
        run_ranks(2, [&](cluster::Context& context) {
          const Stream stream;
          StubCommunicators devices(stream);
          if (context.rank() == 1) {
            // It takes the id, and goes no further.
            int64_t bytes = 0;
            context.world().broadcast(&bytes, 1, DType::kI64, 0, "connecting the devices");
            std::string id(static_cast<size_t>(bytes), ' ');
            context.world().broadcast(id.data(), bytes, DType::kU8, 0, "connecting the devices");
            throw IoError("no room");
          }
          EXPECT_THROW(comm::DeviceGroup(context.world(), devices), comm::PeerFailure);
        });
      },
      ThrowsMessage<IoError>("rank 1: no room"));
}

}  // namespace
}  // namespace tessera::cuda
