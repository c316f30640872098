// Claims about measuring a device, on one that is made of the host's threads: the whole way runs, and what comes out is
// a profile. How fast such a device is means nothing.
#include "tessera/session/speed/device_speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/testing/devices/fake_device.h"

namespace tessera::session {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Key;
using testing::ThrowsMessage;

// Small enough for plain loops.
DeviceSpeedOptions small() {
  return {.enough_seconds = 0,
          .most_bytes = 3 << 20,
          .num_channels = 4,
          .in_channels = {2, 4},
          .out_channels = {4},
          .pixels = {64, 128},
          .num_kernels = 20,
          .num_runs = 1};
}

void expect_speeds(const compiler::MachineProfile& profile) {
  const auto is_speed = [](double speed) { return std::isfinite(speed) && speed > 0; };
  for (const auto* speeds :
       {&profile.flops_per_second, &profile.convolution_flops_per_second, &profile.vector_flops_per_second}) {
    EXPECT_THAT(*speeds,
                testing::UnorderedElementsAre(Key(DType::kF32), Key(DType::kF64), Key(DType::kBF16), Key(DType::kF16)));
    for (const auto& [dtype, speed] : *speeds) EXPECT_TRUE(is_speed(speed)) << to_string(dtype) << " " << speed;
  }
  EXPECT_EQ(profile.convolution_shares.by_kind.size(), compiler::convolution_kinds().size());
  for (const auto& [kind, shares] : profile.convolution_shares.by_kind) {
    EXPECT_EQ(shares.size(), 4U) << kind;
    for (const double share : shares) EXPECT_TRUE(is_speed(share)) << kind << " " << share;
  }
  EXPECT_TRUE(is_speed(profile.memory_bytes_per_second));
  EXPECT_TRUE(is_speed(profile.kernel_overhead_seconds));
  EXPECT_TRUE(is_speed(profile.host_link.bytes_per_second));
  EXPECT_TRUE(is_speed(profile.host_link.latency_seconds));
  for (const auto& [bytes, speed] : profile.cached_bytes_per_second) EXPECT_TRUE(is_speed(speed)) << bytes;
  for (const auto& [bytes, speed] : profile.copied_bytes_per_second) EXPECT_TRUE(is_speed(speed)) << bytes;
}

TEST(DeviceSpeed, IsMeasuredThroughQueuesWithTheKernelsOfABackend) {
  FakeDevice device(1);
  const auto backend = fake_backend(device, /*plain_loops=*/true);
  auto options = small();
  std::vector<std::string> told;
  options.tell = [&](const std::string& figure) {
    if (!figure.ends_with("of the speed")) told.push_back(figure.substr(0, figure.find("  ")));
  };
  auto profile = measure_device(backend, options);
  expect_speeds(profile);
  EXPECT_EQ(profile.name, "fake");
  EXPECT_EQ(profile.tf32_flops_per_second, 0);
  EXPECT_THAT(profile.cached_bytes_per_second, ElementsAre(Key(2 << 20)));
  EXPECT_THAT(profile.copied_bytes_per_second, ElementsAre(Key(4), Key(16), Key(64), Key(256), Key(1024)));
  EXPECT_GT(device.num_kernels(), 4 * 3 * options.num_kernels);
  EXPECT_THAT(told, ElementsAre("a kernel's overhead", "matmul f32", "convolution f32", "other operators f32",
                                "matmul f64", "convolution f64", "other operators f64", "matmul bf16",
                                "convolution bf16", "other operators bf16", "matmul f16", "convolution f16",
                                "other operators f16", "memory", "up to 2.0 MiB", "copies of 4 B at a time",
                                "copies of 16 B at a time", "copies of 64 B at a time", "copies of 256 B at a time",
                                "copies of 1.0 KiB at a time", "link to the host", "its latency"));
  // With links between ranks it is a file as any other.
  profile.intra_host = profile.inter_host = profile.host_link;
  const auto text = compiler::to_json(profile);
  EXPECT_EQ(compiler::to_json(compiler::parse_profile(text, "measured")), text);
}

TEST(DeviceSpeed, OfSmallConvolutionsIsLeftOutWhereNoSizesAreAskedFor) {
  FakeDevice device(4);
  auto options = small();
  options.pixels = {};
  const auto profile = measure_device(fake_backend(device, /*plain_loops=*/true), options);
  EXPECT_TRUE(profile.convolution_shares.by_kind.empty());
  EXPECT_EQ(profile.convolution_shares.of({.op = "conv2d"}), 1);
}

TEST(DeviceSpeed, OfProductsInTf32IsMeasuredWhereABackendRounds) {
  FakeDevice device(2);
  const auto backend = fake_backend(device, /*plain_loops=*/true);
  const auto rounding = fake_backend(device, /*plain_loops=*/true);
  auto options = small();
  options.tf32 = &rounding;
  const auto profile = measure_device(backend, options);
  expect_speeds(profile);
  EXPECT_GT(profile.tf32_flops_per_second, 0);
  EXPECT_GT(profile.tf32_convolution_flops_per_second, 0);
  EXPECT_EQ(profile.with_tf32().flops_of(DType::kF32, "matmul"), profile.tf32_flops_per_second);
}

// A device whose events do not know when it came to them.
class Timeless final : public Device {
 public:
  explicit Timeless(Device& device) : device_(device) {}
  std::string name() const override { return "timeless"; }
  std::unique_ptr<Memory> reserve(int64_t capacity_bytes) override { return device_.reserve(capacity_bytes); }
  std::shared_ptr<std::byte> allocate_on_host(int64_t bytes) override { return device_.allocate_on_host(bytes); }
  std::unique_ptr<Queue> make_queue() override { return device_.make_queue(); }
  std::unique_ptr<Event> make_event() override { return device_.make_event(); }

 private:
  Device& device_;
};

TEST(DeviceSpeed, IsRefusedWhereNothingCanBeMeasured) {
  EXPECT_THAT([] { measure_device(kernels::reference_backend(), small()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("computes in the host's memory: it has no device")));
  FakeDevice device(3);
  Timeless timeless(device);
  auto backend = fake_backend(device, /*plain_loops=*/true);
  backend.device = &timeless;
  EXPECT_THAT([&] { measure_device(backend, small()); },
              ThrowsMessage<IoError>("timeless: the device has no events that tell the time: nothing can be measured "
                                     "on it"));
}

}  // namespace
}  // namespace tessera::session
