// Claims about the machines that have names: what is predicted of operators and collectives on them.
#include "tessera/compiler/cost/machines.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tessera/base/error.h"
#include "tessera/compiler/cost/collective_time.h"
#include "tessera/compiler/cost/operator_time.h"
#include "tessera/testing/test_folder.h"

namespace tessera::compiler {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kBucketBytes = 100'000'000;

// A product of two matrices [4096,4096].
double matmul_seconds(const MachineProfile& machine, DType dtype) {
  const Type matrix{dtype, {4096, 4096}};
  return operator_seconds("matmul", {{"transpose_a", false}, {"transpose_b", false}}, std::vector{matrix, matrix},
                          std::vector{matrix}, machine);
}

// A convolution from the second stage of ResNet-50, of 256 images.
double convolution_seconds(const MachineProfile& machine, DType dtype) {
  const Type images{dtype, {256, 128, 28, 28}};
  const Type weight{dtype, {128, 128, 3, 3}};
  const Attributes attributes{
      {"strides", Ints{1, 1}}, {"padding", Ints{1, 1, 1, 1}}, {"dilation", Ints{1, 1}}, {"groups", int64_t{1}}};
  return operator_seconds("conv2d", attributes, std::vector{images, weight}, std::vector{images}, machine);
}

double add_seconds(const MachineProfile& machine) {
  const Type vector{DType::kF32, {int64_t{1} << 26}};
  return operator_seconds("add", {}, std::vector{vector, vector}, std::vector{vector}, machine);
}

// Of a bucket of gradients among the first ranks.
double all_reduce_seconds(const MachineProfile& machine, int num_ranks) {
  std::vector<int> ranks(static_cast<size_t>(num_ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  const GroupMembers members(ranks, 0, machine);
  return members.seconds_of(members.from_all(2 * kBucketBytes * (num_ranks - 1) / num_ranks, 2));
}

std::vector<double> all_seconds(const MachineProfile& machine) {
  std::vector<double> seconds = {add_seconds(machine), all_reduce_seconds(machine, 8), all_reduce_seconds(machine, 16)};
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    seconds.push_back(matmul_seconds(machine, dtype));
    seconds.push_back(convolution_seconds(machine, dtype));
  }
  return seconds;
}

std::vector<MachineProfile> all_machines() {
  std::vector<MachineProfile> machines;
  for (const auto& name : machine_names()) machines.push_back(find_machine(name).value());
  return machines;
}

TEST(Machines, PredictWhatTheirDataSheetsAndFactorsSay) {
  std::string text =
      "microseconds:       matmul 4096                     | conv2d 3x3, 128 ch.        | add    | all_reduce 100 MB\n"
      "                f64      f32     tf32     bf16 |      f32     tf32     bf16 |  64 Mi | 8 ranks      16\n";
  for (const MachineProfile& machine : all_machines()) {
    const auto rounded = machine.with_tf32();
    text += fmt::format(
        "{:<10} {:8.1f} {:8.1f} {:8.1f} {:8.1f} | {:8.1f} {:8.1f} {:8.1f} | {:6.1f} | {:7.1f} {:7.1f}\n", machine.name,
        1e6 * matmul_seconds(machine, DType::kF64), 1e6 * matmul_seconds(machine, DType::kF32),
        1e6 * matmul_seconds(rounded, DType::kF32), 1e6 * matmul_seconds(machine, DType::kBF16),
        1e6 * convolution_seconds(machine, DType::kF32), 1e6 * convolution_seconds(rounded, DType::kF32),
        1e6 * convolution_seconds(machine, DType::kBF16), 1e6 * add_seconds(machine),
        1e6 * all_reduce_seconds(machine, 8), 1e6 * all_reduce_seconds(machine, 16));
  }
  EXPECT_EQ(
      text,
      R"(microseconds:       matmul 4096                     | conv2d 3x3, 128 ch.        | add    | all_reduce 100 MB
                f64      f32     tf32     bf16 |      f32     tf32     bf16 |  64 Mi | 8 ranks      16
a100-80gb   10070.8  10070.8   1260.6    631.3 |   6072.8    760.8    381.4 |  440.8 |   739.2  5384.6
b200-180gb   4910.5   2456.3    180.5     89.3 |   1481.8    109.6     54.6 |  113.8 |   253.1  2641.5
h100-80gb    2932.5   2932.5    398.9    200.4 |   1768.9    241.3    121.6 |  269.1 |   496.1  2763.1
h200-141gb   2932.5   2932.5    398.9    200.4 |   1768.9    241.3    121.6 |  188.4 |   496.1  2763.1
)");
}

TEST(Machines, HaveTheMemoryOfTheirSheetsLessWhatIsNotPlanned) {
  std::vector<std::string> memory;
  for (const MachineProfile& machine : all_machines()) {
    memory.push_back(fmt::format("{} {:.2f} GB, {} a host", machine.name,
                                 1e-9 * static_cast<double>(machine.memory_bytes), machine.ranks_per_host));
  }
  EXPECT_THAT(memory, ElementsAre("a100-80gb 76.00 GB, 8 a host", "b200-180gb 171.00 GB, 8 a host",
                                  "h100-80gb 76.00 GB, 8 a host", "h200-141gb 133.95 GB, 8 a host"));
}

TEST(Machines, AreFasterInLessPrecision) {
  for (const MachineProfile& machine : all_machines()) {
    SCOPED_TRACE(machine.name);
    const auto rounded = machine.with_tf32();
    for (const auto seconds : {matmul_seconds, convolution_seconds}) {
      EXPECT_LT(seconds(machine, DType::kBF16), seconds(rounded, DType::kF32));
      EXPECT_EQ(seconds(machine, DType::kF16), seconds(machine, DType::kBF16));
      EXPECT_LT(seconds(rounded, DType::kF32), seconds(machine, DType::kF32));
      EXPECT_LE(seconds(machine, DType::kF32), seconds(machine, DType::kF64));
    }
    EXPECT_EQ(add_seconds(rounded), add_seconds(machine));
  }
}

TEST(Machines, AreSlowerInNothingWhereAFigureOfTheirSheetIsHigher) {
  using Change = void (*)(DataSheet&);
  const std::vector<std::pair<const char*, Change>> changes = {
      {"products",
       [](DataSheet& sheet) {
         for (auto& [dtype, flops] : sheet.product_flops) flops *= 2;
       }},
      {"TF32", [](DataSheet& sheet) { sheet.tf32_flops *= 2; }},
      {"vectors",
       [](DataSheet& sheet) {
         for (auto& [dtype, flops] : sheet.vector_flops) flops *= 2;
       }},
      {"memory", [](DataSheet& sheet) { sheet.memory_bytes_per_second *= 2; }},
      {"links of devices", [](DataSheet& sheet) { sheet.device_link_bytes_per_second *= 2; }},
      {"network", [](DataSheet& sheet) { sheet.network_bytes_per_second *= 2; }},
      {"larger hosts", [](DataSheet& sheet) { sheet.devices_per_host *= 2; }}};
  for (const DataSheet& sheet : data_sheets()) {
    for (const auto& [what, change] : changes) {
      SCOPED_TRACE(fmt::format("{}, {}", sheet.name, what));
      DataSheet better = sheet;
      change(better);
      for (const bool is_rounded : {false, true}) {
        const auto machine = is_rounded ? profile_of(sheet).with_tf32() : profile_of(sheet);
        const auto faster = is_rounded ? profile_of(better).with_tf32() : profile_of(better);
        const auto before = all_seconds(machine);
        const auto after = all_seconds(faster);
        for (size_t i = 0; i < before.size(); ++i) EXPECT_LE(after[i], before[i]) << i;
      }
    }
  }
}

TEST(Machines, AreFilesAsAnyOther) {
  for (const MachineProfile& machine : all_machines()) {
    const auto text = to_json(machine);
    const auto read = parse_profile(text, machine.name);
    EXPECT_EQ(to_json(read), text);
    EXPECT_EQ(all_seconds(read), all_seconds(machine));
    EXPECT_EQ(all_seconds(read.with_tf32()), all_seconds(machine.with_tf32()));
    EXPECT_GT(read.host_link.bytes_per_second, 0);
  }
}

TEST(Machines, HaveTheNamesOfTheirSheetsAndNoOthers) {
  EXPECT_THAT(machine_names(), ElementsAre("a100-80gb", "b200-180gb", "h100-80gb", "h200-141gb"));
  EXPECT_FALSE(find_machine("h100").has_value());
  EXPECT_FALSE(find_machine("").has_value());
}

TEST(Machines, AreReadByNameOrFromAFile) {
  auto& files = FileSystem::local();
  EXPECT_EQ(read_machine(files, "h200-141gb").name, "h200-141gb");
  const TestFolder folder("machines-test");
  const auto path = folder.in("mine.json");
  auto machine = find_machine("a100-80gb").value();
  machine.name = "mine";
  files.write_atomically(path, to_json(machine));
  EXPECT_EQ(read_machine(files, path).name, "mine");
  EXPECT_THAT([&] { read_machine(files, "h100"); },
              ThrowsMessage<IoError>("machine \"h100\": there is no such file, and no machine of that name; there are: "
                                     "a100-80gb, b200-180gb, h100-80gb, h200-141gb"));
}

TEST(Machines, SpeedsWithTf32AreThoseOfProductsAndConvolutionsOnly) {
  const MachineProfile known{.name = "m",
                             .flops_per_second = {{DType::kF32, 1}},
                             .tf32_flops_per_second = 8,
                             .memory_bytes_per_second = 1,
                             .intra_host = {1, 0},
                             .inter_host = {1, 0}};
  const auto rounded = known.with_tf32();
  EXPECT_EQ(rounded.name, "m, TF32");
  EXPECT_EQ(rounded.flops_of(DType::kF32, "matmul"), 8);
  EXPECT_EQ(rounded.flops_of(DType::kF32, "conv2d"), 8);
  EXPECT_EQ(rounded.flops_of(DType::kF32, "tanh"), 1);
  EXPECT_EQ(rounded.flops_of(DType::kF64, "matmul"), 1);
  EXPECT_EQ(rounded.flops_of(DType::kBF16, "conv2d"), 1);
  EXPECT_THAT([] { example_profile().with_tf32(); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("machine \"example\": it is not known how fast it is with TF32: \"tf32\" is missing")));
}

}  // namespace
}  // namespace tessera::compiler
