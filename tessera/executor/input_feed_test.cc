#include "tessera/executor/input_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tessera/testing/devices/fake_device.h"

namespace tessera::executor {
namespace {

using testing::Each;

constexpr int64_t kNumbers = 100;

// Steps that read two inputs, which the host writes anew as soon as the first work of the step is done.
struct Steps {
  explicit Steps(uint64_t seed) : device(seed) { memory->resize(1 << 16); }

  void give(int32_t number, int64_t count = kNumbers) {
    std::fill_n(written.begin(), count, number);
    std::fill_n(other.begin(), count, -number);
    const std::vector<InputFeed::Input> inputs = {{memory->data(), written.data(), count * 4},
                                                  {memory->data() + 1024 * 16, other.data(), count * 4}};
    feed.give(inputs);
    // The step: its first work, and what goes on behind.
    const auto begun = device.make_event();
    computing->fill(memory->data() + 1024 * 32, std::byte{0}, 4);
    computing->record(*begun);
    for (auto* read : {&read_first, &read_second}) read->emplace_back(static_cast<size_t>(count));
    computing->copy(read_first.back().data(), memory->data(), count * 4, CopyWay::kToHost);
    computing->copy(read_second.back().data(), memory->data() + 1024 * 16, count * 4, CopyWay::kToHost);
    begun->synchronize();
  }

  FakeDevice device;
  std::unique_ptr<Memory> memory = device.reserve(1 << 16);
  std::unique_ptr<Queue> computing = device.make_queue();
  InputFeed feed{device, *computing};
  std::vector<int32_t> written = std::vector<int32_t>(1024);
  std::vector<int32_t> other = std::vector<int32_t>(1024);
  std::vector<std::vector<int32_t>> read_first;  // by step
  std::vector<std::vector<int32_t>> read_second;
};

TEST(InputFeed, GivesEachStepItsInputsWhoeverIsLate) {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    Steps steps(seed);
    for (int32_t step = 1; step <= 8; ++step) steps.give(step);
    steps.computing->synchronize();
    for (int32_t step = 1; step <= 8; ++step) {
      EXPECT_THAT(steps.read_first[static_cast<size_t>(step) - 1], Each(step));
      EXPECT_THAT(steps.read_second[static_cast<size_t>(step) - 1], Each(-step));
    }
  }
}

TEST(InputFeed, MakesRoomForLargerOnes) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Steps steps(seed);
    const std::vector<int64_t> counts = {3, 1000, 0, 7, 1024};
    for (const int64_t count : counts) steps.give(static_cast<int32_t>(count), count);
    steps.computing->synchronize();
    for (size_t i = 0; i < counts.size(); ++i) {
      EXPECT_EQ(std::ssize(steps.read_first[i]), counts[i]);
      EXPECT_THAT(steps.read_first[i], Each(counts[i]));
      EXPECT_THAT(steps.read_second[i], Each(-counts[i]));
    }
  }
}

TEST(InputFeed, EndsWhileCopiesAreUnderWay) {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    FakeDevice device(seed);
    const auto memory = device.reserve(4096);
    memory->resize(4096);
    const auto computing = device.make_queue();
    const std::vector<int32_t> written(kNumbers, 5);
    const std::vector<InputFeed::Input> inputs = {{memory->data(), written.data(), kNumbers * 4}};
    std::vector<int32_t> read(kNumbers);
    {
      InputFeed feed(device, *computing);
      feed.give(inputs);
      feed.give(inputs);
    }
    computing->copy(read.data(), memory->data(), kNumbers * 4, CopyWay::kToHost);
    computing->synchronize();
    EXPECT_THAT(read, Each(5));
  }
}

}  // namespace
}  // namespace tessera::executor
