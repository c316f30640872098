#include "tessera/testing/devices/fake_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace tessera {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int32_t> numbers(int32_t first, size_t n) {
  std::vector<int32_t> all(n);
  for (size_t i = 0; i < n; ++i) all[i] = first + static_cast<int32_t>(i);
  return all;
}

// A device with a little memory and a queue.
struct Fixture {
  explicit Fixture(uint64_t seed = 1) : device(seed) { memory->resize(4096); }
  void write(int64_t at, const std::vector<int32_t>& values) {
    queue->copy(memory->data() + at, values.data(), std::ssize(values) * 4, CopyWay::kToDevice);
  }
  void read(int64_t at, std::vector<int32_t>& values) {
    queue->copy(values.data(), memory->data() + at, std::ssize(values) * 4, CopyWay::kToHost);
  }
  FakeDevice device;
  std::unique_ptr<Memory> memory = device.reserve(1 << 20);
  std::unique_ptr<Queue> queue = device.make_queue();
};

TEST(FakeDeviceDeathTest, KillsAHostThatLooksIntoItsMemory) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Fixture fake;
        volatile std::byte first = *fake.memory->data();
        (void)first;
      },
      testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(
      {
        Fixture fake;
        std::memset(fake.memory->data(), 0, 4);
      },
      testing::KilledBySignal(SIGSEGV), "");
}

TEST(FakeDevice, ReturnsWhatWasWritten) {
  Fixture fake;
  const auto written = numbers(7, 100);
  std::vector<int32_t> read(100);
  fake.write(64, written);
  fake.read(64, read);
  fake.queue->synchronize();
  EXPECT_EQ(read, written);
}

TEST(FakeDevice, RunsLateForSomeSeeds) {
  int late = 0;
  for (uint64_t seed = 0; seed < 32; ++seed) {
    Fixture fake(seed);
    std::vector<int32_t> read(1, 0);
    fake.read(0, read);
    // A piece that is held until somebody waits cannot have run. The others may have.
    fake.write(0, {5});
    const int32_t seen = static_cast<volatile int32_t&>(read[0]);
    late += seen == 0 ? 1 : 0;
    fake.queue->synchronize();
    EXPECT_EQ(read[0], -1);  // new memory is full of ones
  }
  EXPECT_GT(late, 0);
}

TEST(FakeDevice, LetsAQueueWaitForAnother) {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    Fixture fake(seed);
    const auto second = fake.device.make_queue();
    const auto is_written = fake.device.make_event();
    is_written->synchronize();  // nothing is behind it yet
    const auto written = numbers(1, 8);
    std::vector<int32_t> read(8);
    fake.write(0, written);
    fake.queue->record(*is_written);
    second->wait(*is_written);
    second->copy(read.data(), fake.memory->data(), 32, CopyWay::kToHost);
    second->synchronize();
    EXPECT_EQ(read, written);
    is_written->synchronize();
  }
}

TEST(FakeDevice, TellsTheTimeBetweenTimedEvents) {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    Fixture fake(seed);
    const auto first = fake.device.make_timed_event();
    const auto second = fake.device.make_timed_event();
    const auto written = numbers(1, 8);
    fake.queue->record(*first);
    fake.write(0, written);
    fake.queue->record(*second);
    second->synchronize();
    EXPECT_GT(second->nanoseconds_since(*first), 0);
    EXPECT_EQ(first->nanoseconds_since(*second), -second->nanoseconds_since(*first));
  }
}

TEST(FakeDevice, TellsWhenEachReplayCameToTheTimedEventsOfARecording) {
  Fixture fake;
  const auto before = fake.device.make_timed_event();
  const auto inside = fake.device.make_timed_event();
  const std::vector<RecordedWork> work{{.give = [&] { fake.queue->record(*inside); }}};
  const auto recording = fake.queue->record(work);
  for (int64_t replay = 1; replay <= 3; ++replay) {
    fake.queue->record(*before);
    fake.queue->replay(*recording);
    fake.queue->synchronize();
    EXPECT_GE(inside->nanoseconds_since(*before), 0);
    EXPECT_EQ(fake.device.num_replays(), replay);
  }
  const auto untimed = fake.device.make_event();
  const std::vector<RecordedWork> wrong{{.give = [&] { fake.queue->record(*untimed); }}};
  EXPECT_THAT([&] { fake.queue->record(wrong); },
              testing::ThrowsMessage<InternalError>(HasSubstr("an event in a recording is timed")));
}

TEST(FakeDevice, LeavesOutWhatAGuardForbidsWhenItsTurnComes) {
  Fixture fake;
  const ParallelFor serial(1);
  const Attributes none;
  const PreparedKernel kernel{.name = "seven",
                              .run = [](const KernelArgs& args) { *args.outputs[0].as<int32_t>() = 7; }};
  const auto seven = [&](int64_t at, int64_t guard) {
    const TensorView to(fake.memory->data() + at, {DType::kI32, {}});
    const auto* holds = reinterpret_cast<const bool*>(fake.memory->data() + guard);
    fake.queue->launch(kernel, {{}, std::span(&to, 1), none, {}, serial, fake.queue.get()}, holds);
  };
  fake.queue->fill(fake.memory->data(), std::byte{0}, 256);
  fake.queue->fill(fake.memory->data() + 128, std::byte{1}, 1);
  seven(0, 128);
  seven(4, 129);
  std::vector<int32_t> read(2);
  fake.read(0, read);
  fake.queue->synchronize();
  EXPECT_THAT(read, ElementsAre(7, 0));
}

TEST(FakeDevice, TellsWhoWaitsWhatAKernelHasThrown) {
  Fixture fake;
  const ParallelFor serial(1);
  const Attributes none;
  const PreparedKernel kernel{.name = "thrower", .run = [](const KernelArgs&) { throw Error("no such number"); }};
  fake.queue->launch(kernel, {{}, {}, none, {}, serial, fake.queue.get()}, nullptr);
  EXPECT_THAT([&] { fake.queue->synchronize(); }, testing::ThrowsMessage<Error>(HasSubstr("no such number")));
  fake.queue->synchronize();
}

TEST(FakeDevice, CountsTheMemoryOfTheHostThatItGives) {
  FakeDevice device(1);
  const auto kept = device.allocate_on_host(100);
  device.allocate_on_host(50);  // comes back at once
  device.allocate_on_host(30);
  EXPECT_EQ(device.allocated_on_host(), 180);
  EXPECT_EQ(device.most_on_host(), 150);
}

TEST(FakeDevice, SaysOfItsFreeMemoryWhatItIsTold) {
  FakeDevice device(1);
  EXPECT_EQ(device.free_bytes(), std::nullopt);
  device.set_free_bytes(0);
  EXPECT_EQ(device.free_bytes(), 0);
}

TEST(FakeDevice, ForgetsWhatItGivesBack) {
  Fixture fake;
  fake.memory->resize(1 << 16);
  fake.write(1 << 15, numbers(1, 4));
  fake.queue->synchronize();
  fake.memory->resize(4096);
  fake.memory->resize(1 << 16);
  std::vector<int32_t> read(4);
  fake.read(1 << 15, read);
  fake.queue->synchronize();
  EXPECT_THAT(read, Each(-1));
}

}  // namespace
}  // namespace tessera
