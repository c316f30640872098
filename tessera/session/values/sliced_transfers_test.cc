// What crosses between the host and a device slice by slice, or is copied there, has the bits that it had; the device
// is late, and the host cannot look into its memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "tessera/checkpoint/format/region_runs.h"
#include "tessera/kernels/backend.h"
#include "tessera/session/session.h"
#include "tessera/session/values/device_snapshot.h"
#include "tessera/session/values/sliced_read.h"
#include "tessera/session/values/sliced_write.h"
#include "tessera/testing/devices/fake_device.h"

namespace tessera::session {
namespace {

using checkpoint::Region;

// Slices of a few bytes, so that values have many.
constexpr SliceSizes kSmall{.count = 3, .bytes = 64};
constexpr int kSeeds = 6;  // of what is late

Tensor counted(const Type& type, double first = 0) {
  Tensor values(DType::kF64, type.shape);
  const auto at = values.values<double>();
  for (size_t i = 0; i < at.size(); ++i) at[i] = first + static_cast<double>(i % 120);
  return values.cast(type.dtype);
}

std::vector<Type> types() {
  std::vector<Type> all;
  for (const auto dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kU8,
                           DType::kBool, DType::kI8, DType::kI16, DType::kU16, DType::kU32, DType::kU64}) {
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{7, 5, 3}, Shape{0, 4}, Shape{129}})
      all.push_back({dtype, shape});
  }
  return all;
}

// A value in the memory of a device, in an arena of its own.
class ThereValue {
 public:
  ThereValue(Device& device, const Type& type) : arena_(1 << 20, device), place_(arena_, 64, type) {
    arena_.grow_to(64 + type.size_bytes());
  }
  const ValuePlace& place() const { return place_; }
  executor::Arena& arena() { return arena_; }
  std::byte* there() const { return static_cast<std::byte*>(place_.mark().data); }

 private:
  executor::Arena arena_;
  ValuePlace place_;
};

checkpoint::StreamedRegion streamed(TransferSlices& slices, const ThereValue& value, const Region& region) {
  return {
      std::make_shared<SlicedRead>(slices, SlicedRead::Source{.there = value.there(), .type = value.place().type()}),
      region};
}

Tensor read(const checkpoint::StreamedRegion& from) {
  const Tensor to(from.type());
  checkpoint::read_to(from, to.view());
  return to;
}

// Regions of a value of 7 x 5 x 3 elements: whole, in one piece, in several, one element.
const std::vector<Region> kRegions{Region::whole({7, 5, 3}), {{2, 0, 0}, {3, 5, 3}}, {{0, 1, 0}, {7, 3, 3}},
                                   {{1, 1, 1}, {5, 3, 1}},   {{0, 0, 2}, {7, 5, 1}}, {{6, 4, 2}, {1, 1, 1}}};

TEST(SlicedRead, GivesTheElementsOfAnyValue) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeDevice device(seed);
    TransferSlices slices(device, kSmall);
    for (const Type& type : types()) {
      const ThereValue value(device, type);
      const Tensor elements = counted(type);
      value.place().write(elements.view());
      EXPECT_TRUE(bit_equal(read(streamed(slices, value, Region::whole(type.shape))), elements)) << type.to_string();
    }
  }
}

TEST(SlicedRead, GivesTheElementsOfAnyRegion) {
  FakeDevice device(3);
  for (const int64_t bytes : {int64_t{8}, int64_t{64}, int64_t{4} << 20}) {
    TransferSlices slices(device, {.count = 2, .bytes = bytes});
    const ThereValue value(device, {DType::kF32, {7, 5, 3}});
    const Tensor elements = counted(value.place().type());
    value.place().write(elements.view());
    for (const Region& region : kRegions) {
      EXPECT_TRUE(bit_equal(read(streamed(slices, value, region)),
                            Tensor::copy_of(checkpoint::view_of(elements.view(), region))))
          << region.to_string();
    }
  }
}

TEST(SlicedRead, ReadsDistantRunsByThemselves) {
  FakeDevice device(3);
  TransferSlices slices(device);
  const ThereValue value(device, {DType::kF32, {3, 64 << 10}});  // a row has more bytes than are read along
  const Tensor elements = counted(value.place().type());
  value.place().write(elements.view());
  const Region region{{0, 5}, {3, 7}};
  const int64_t before = device.num_copies();
  const Tensor copy = read(streamed(slices, value, region));
  EXPECT_TRUE(bit_equal(copy, Tensor::copy_of(checkpoint::view_of(elements.view(), region))));
  EXPECT_EQ(device.num_copies() - before, 3);
}

TEST(SlicedRead, ComesAfterItsEvent) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeDevice device(seed);
    TransferSlices slices(device, kSmall);
    ThereValue value(device, {DType::kI32, {100}});
    const Tensor elements = counted(value.place().type(), 5);
    const std::shared_ptr<Event> written = device.make_event();
    value.arena().queue().copy(value.there(), elements.bytes().data(), elements.size_bytes(), CopyWay::kToDevice);
    value.arena().queue().record(*written);  // nobody has waited yet
    const auto stream = std::make_shared<SlicedRead>(
        slices, SlicedRead::Source{.there = value.there(), .type = value.place().type(), .after = written});
    EXPECT_TRUE(bit_equal(read({stream, Region::whole({100})}), elements));
    value.arena().queue().synchronize();
  }
}

TEST(SlicedRead, GivesBackItsSlicesWhereTheSinkThrows) {
  FakeDevice device(2);
  TransferSlices slices(device, kSmall);
  const ThereValue value(device, {DType::kI32, {100}});
  value.place().write(counted(value.place().type()).view());
  const auto full = streamed(slices, value, Region::whole({100}));
  for (int i = 0; i < 5; ++i) {
    EXPECT_THROW(full.stream->read(full.region, [](std::span<const std::byte>) { throw IoError("the disk is full"); }),
                 IoError);
  }
  EXPECT_TRUE(bit_equal(read(full), counted(value.place().type())));
}

TEST(SlicedRead, IsReadByManyThreadsThroughTheSameSlices) {
  FakeDevice device(4);
  TransferSlices slices(device, kSmall);
  const ThereValue value(device, {DType::kI32, {1000}});
  const Tensor elements = counted(value.place().type());
  value.place().write(elements.view());
  std::vector<Tensor> copies(6);
  std::vector<std::thread> threads;
  for (auto& copy : copies) {
    threads.emplace_back([&] { copy = read(streamed(slices, value, Region::whole({1000}))); });
  }
  for (auto& thread : threads) thread.join();
  for (const Tensor& copy : copies) EXPECT_TRUE(bit_equal(copy, elements));
}

TEST(SlicedWrite, PutsTheElementsOfAnyValueInTheirPlaces) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeDevice device(seed);
    TransferSlices slices(device, kSmall);
    for (const Type& type : types()) {
      const ThereValue value(device, type);
      const Tensor elements = counted(type);
      SlicedWrite write(slices, value.there(), type);
      write.write(Region::whole(type.shape), elements.bytes());
      write.finish();
      EXPECT_TRUE(bit_equal(value.place().read(), elements)) << type.to_string();
    }
  }
}

TEST(SlicedWrite, TakesRegionsFromManyThreadsInAnyOrder) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeDevice device(seed);
    TransferSlices slices(device, kSmall);
    const Type type{DType::kF32, {40, 6, 5}};
    const ThereValue value(device, type);
    const Tensor elements = counted(type);
    SlicedWrite write(slices, value.there(), type);
    std::vector<std::thread> threads;
    for (int64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int64_t row = 39 - t; row >= 0; row -= 4) {
          for (const Region& region :
               {Region{{row, 0, 0}, {1, 2, 5}}, Region{{row, 2, 0}, {1, 4, 2}}, Region{{row, 2, 2}, {1, 4, 3}}}) {
            write.write(region, Tensor::copy_of(checkpoint::view_of(elements.view(), region)).bytes());
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
    write.finish();
    EXPECT_TRUE(bit_equal(value.place().read(), elements));
  }
}

TEST(SlicedWrite, GathersScatteredElementsOnTheHostAndKeepsWhatWasWritten) {
  FakeDevice device(9);
  TransferSlices slices(device, kSmall);
  const Type type{DType::kBF16, {500, 4}};
  const ThereValue value(device, type);
  const Tensor elements = counted(type);
  SlicedWrite write(slices, value.there(), type);
  const auto put = [&](const Region& region) {
    write.write(region, Tensor::copy_of(checkpoint::view_of(elements.view(), region)).bytes());
  };
  put({{0, 0}, {100, 4}});
  const int64_t before = device.num_copies();
  put({{100, 0}, {400, 1}});  // 400 runs of 2 bytes
  put({{100, 1}, {400, 3}});
  write.finish();
  // To the host and back, a slice at a time, instead of a copy for each run.
  EXPECT_LE(device.num_copies() - before, 2 * (type.size_bytes() / kSmall.bytes + 1));
  EXPECT_TRUE(bit_equal(value.place().read(), elements));
}

TEST(TransferSlices, TakeAsMuchOfTheHostsMemoryAsTheyAre) {
  FakeDevice device(1);
  TransferSlices slices(device, kSmall);
  const ThereValue value(device, {DType::kF64, {3000}});
  const Tensor elements = counted(value.place().type());
  SlicedWrite write(slices, value.there(), value.place().type());
  write.write(Region::whole({3000}), elements.bytes());
  write.finish();
  EXPECT_TRUE(bit_equal(read(streamed(slices, value, Region::whole({3000}))), elements));
  EXPECT_EQ(device.most_on_host(), kSmall.count * kSmall.bytes);
}

TEST(DeviceSnapshot, HoldsWhatValuesWereBeforeTheyChanged) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeDevice device(seed);
    TransferSlices slices(device, kSmall);
    ThereValue value(device, {DType::kF32, {7, 5, 3}});
    Queue& queue = value.arena().queue();
    DeviceSnapshot snapshot(value.arena(), slices);
    std::vector<checkpoint::StreamedRegion> regions;
    for (const Region& region : kRegions) regions.push_back(streamed(slices, value, region));
    ASSERT_TRUE(snapshot.reserve(regions));
    std::vector<Tensor> of_steps;
    for (int step = 0; step < 3; ++step) of_steps.push_back(counted(value.place().type(), step));
    const auto update_to = [&](int step) {
      const Tensor& elements = of_steps[static_cast<size_t>(step)];
      queue.copy(value.there(), elements.bytes().data(), elements.size_bytes(), CopyWay::kToDevice);
    };
    for (int step = 0; step + 1 < 3; ++step) {
      update_to(step);
      const auto copies = snapshot.begin(regions);
      snapshot.hold_changes();
      update_to(step + 1);  // given while the copies, late as they are, may not have begun
      const Tensor& elements = of_steps[static_cast<size_t>(step)];
      for (const auto& copy : copies) {
        EXPECT_TRUE(bit_equal(read(copy), Tensor::copy_of(checkpoint::view_of(elements.view(), copy.region))))
            << "seed " << seed << ", step " << step << ", " << copy.region.to_string();
      }
    }
    queue.synchronize();
  }
}

TEST(DeviceSnapshot, KeepsItsMemoryAndTakesNoneWhereThereIsNoRoom) {
  FakeDevice device(1);
  TransferSlices slices(device, kSmall);
  ThereValue value(device, {DType::kF32, {7, 5, 3}});
  const std::vector<checkpoint::StreamedRegion> regions{streamed(slices, value, Region::whole({7, 5, 3}))};
  DeviceSnapshot snapshot(value.arena(), slices);
  device.set_free_bytes(1000);
  EXPECT_FALSE(snapshot.reserve(regions));
  EXPECT_EQ(snapshot.size_bytes(), 0);
  device.set_free_bytes(int64_t{1} << 30);
  EXPECT_TRUE(snapshot.reserve(regions));
  EXPECT_GE(snapshot.size_bytes(), value.place().type().size_bytes());
  device.set_free_bytes(0);
  EXPECT_TRUE(snapshot.reserve(regions)) << "it has the memory by now";
}

TEST(Values, AreReachedBySlicesOnADeviceOnly) {
  const auto context = cluster::single_context(1);
  FakeDevice device(1);
  const auto fake = fake_backend(device);
  Session there(*context, {.backend = &fake});
  Session here(*context);
  for (Session* session : {&there, &here}) session->declare("w", {DType::kF32, {3, 5}});
  EXPECT_EQ(here.values().sliced_read("w"), nullptr);
  EXPECT_EQ(here.values().sliced_write("w"), nullptr);
  EXPECT_EQ(here.values().make_snapshot(), nullptr);
  const Tensor elements = counted({DType::kF32, {3, 5}});
  const auto write = there.values().sliced_write("w");
  write->write(Region::whole({3, 5}), elements.bytes());
  write->finish();
  EXPECT_TRUE(bit_equal(there.value("w"), elements));
  EXPECT_TRUE(bit_equal(read({there.values().sliced_read("w"), Region::whole({3, 5})}), elements));
  EXPECT_THROW(there.values().sliced_read("v"), InvalidArgument);
}

}  // namespace
}  // namespace tessera::session
