// Generated kernels on operands that are too large for one load, block or phase, in the layouts of trainings: what runs
// beside the general way. They are written for a device with as many multiprocessors as an H100, and emulated.
#include "tessera/base/random.h"
#include "tessera/kernels/cuda/core/phase_parts.h"
#include "tessera/kernels/cuda/cuda_kernels.h"
#include "tessera/testing/devices/emulated_gpu.h"
#include "tests/devices/device_kernels.h"

namespace tessera::devices {
namespace {

using kernels::StrideOrder;
using ops::Domain;

EmulatedGpu& large_gpu() {
  static EmulatedGpu gpu(TESSERA_BINARY_DIR "/emulated_kernels", 132);
  return gpu;
}

struct Operand {
  Type type;
  Domain domain = Domain::kAny;
  int64_t limit = 1;
};

void agree(const std::string& op, const std::vector<Operand>& operands, const Attributes& attributes,
           const std::vector<StrideOrder>& orders = {StrideOrder::kDense}) {
  static FakeDevice device(/*seed=*/6);
  static const KernelRegistry kernels = cuda::generated_kernels(large_gpu());
  static int number = 1000;
  generated::OpCall call{.def = &ops::OpRegistry::instance().get(op), .number = number++};
  for (const Operand& operand : operands) call.example.inputs.push_back({operand.type, operand.domain, operand.limit});
  call.example.attributes = attributes;
  for (const auto order : orders) compare({kernels, device}, call, order);
}

const std::vector<StrideOrder> kAllOrders(std::begin(kernels::kStrideOrders), std::end(kernels::kStrideOrders));

TEST(Reductions, SumColumnsInPartsAndInOne) {
  for (const Shape& shape : {Shape{2048, 64}, Shape{700, 1000}, Shape{999, 10}, Shape{40, 4099}}) {
    agree("reduce_sum", {{{DType::kF32, shape}}}, {{"axes", Ints{0}}});
  }
  agree("reduce_sum", {{{DType::kBF16, {512, 264}}}}, {{"axes", Ints{0}}, {"result_dtype", DType::kF32}}, kAllOrders);
  agree("reduce_sum", {{{DType::kU8, {1000, 40}}, Domain::kIndex, 250}}, {{"axes", Ints{0}}});
}

TEST(Reductions, SumRowsInPartsAndInOne) {
  for (const Shape& shape : {Shape{3, 50000}, Shape{64, 5000}, Shape{1000, 36}, Shape{2000, 7}}) {
    agree("reduce_sum", {{{DType::kF32, shape}}}, {{"axes", Ints{1}}});
    agree("reduce_max", {{{DType::kBF16, shape}}}, {{"axes", Ints{1}}});
  }
  agree("reduce_min", {{{DType::kI64, {300, 700}}, Domain::kIndex, 1000}}, {{"axes", Ints{0, 1}}});
  agree("reduce_prod", {{{DType::kF16, {40, 30}}}}, {{"axes", Ints{1}}});
  agree("reduce_sum", {{{DType::kF64, {100, 1003}}, Domain::kIndex, 1000}}, {{"axes", Ints{0, 1}}, {"keep_dims", true}},
        kAllOrders);
}

TEST(Reductions, GoOverThePixelsOfImages) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    agree("reduce_mean", {{{dtype, {4, 256, 7, 7}}}}, {{"axes", Ints{2, 3}}}, kAllOrders);
    agree("reduce_sum", {{{dtype, {16, 64, 14, 14}}}}, {{"axes", Ints{0, 2, 3}}}, kAllOrders);
    agree("reduce_sum", {{{dtype, {16, 3, 14, 14}}}}, {{"axes", Ints{1}}}, kAllOrders);
  }
}

TEST(Reductions, FindOneInfinityAmongMany) {
  for (const Domain domain : {Domain::kAny, Domain::kOneInfinite}) {
    agree("all_finite", {{{DType::kF32, {100003}}, domain}, {{DType::kF32, {100003}}}}, {});
    agree("all_finite", {{{DType::kBF16, {64, 3000}}, domain}, {{DType::kF32, {64, 3000}}}}, {}, kAllOrders);
    agree("all_finite", {{{DType::kF32, {64, 33, 3, 3}}, domain}, {{DType::kF32, {64, 33, 3, 3}}}}, {}, kAllOrders);
  }
}

TEST(Selections, WalkLongRows) {
  agree("argmax", {{{DType::kF32, {3, 5000}}}}, {{"axis", int64_t{1}}});
  agree("argmax", {{{DType::kBF16, {500, 300}}}}, {{"axis", int64_t{0}}});
  agree("top_k", {{{DType::kF32, {40, 300}}}}, {{"k", int64_t{5}}});
  agree("cumsum", {{{DType::kF32, {5, 1003}}}}, {{"axis", int64_t{1}}, {"exclusive", true}, {"reverse", true}});
  agree("cumsum", {{{DType::kI32, {100, 40}}, Domain::kIndex, 1000}}, {{"axis", int64_t{0}}});
}

TEST(Copies, ExchangeDimsByTiles) {
  for (const DType dtype : {DType::kU8, DType::kBF16, DType::kF32, DType::kF64}) {
    agree("transpose", {{{dtype, {130, 200}}}}, {{"perm", Ints{1, 0}}});
  }
  agree("transpose", {{{DType::kF32, {4, 100, 70}}}}, {{"perm", Ints{0, 2, 1}}}, kAllOrders);
  agree("transpose", {{{DType::kBF16, {2, 64, 8, 64}}}}, {{"perm", Ints{0, 2, 1, 3}}}, kAllOrders);
  agree("transpose", {{{DType::kBF16, {2, 64, 8, 64}}}}, {{"perm", Ints{0, 2, 3, 1}}}, kAllOrders);
}

TEST(Copies, TakePacksWhereTheyMay) {
  agree("reshape", {{{DType::kBF16, {64, 512}}}}, {{"shape", Ints{2, 32, 8, 64}}}, kAllOrders);
  agree("reshape", {{{DType::kF32, {60, 28}}}}, {{"shape", Ints{42, 40}}}, kAllOrders);
  agree("broadcast_to", {{{DType::kF32, {1, 1000}}}}, {{"shape", Ints{64, 1000}}}, kAllOrders);
  agree("broadcast_to", {{{DType::kBF16, {64, 1}}}}, {{"shape", Ints{64, 1000}}}, kAllOrders);
  agree("concat", {{{DType::kF32, {64, 128}}}, {{DType::kF32, {64, 60}}}, {{DType::kF32, {64, 3}}}},
        {{"axis", int64_t{1}}}, kAllOrders);
  agree("split", {{{DType::kBF16, {64, 192}}}}, {{"axis", int64_t{1}}, {"sizes", Ints{64, 120, 8}}}, kAllOrders);
  for (const int64_t begin : {0, 1, 8}) {
    const Attributes slice{{"begin", Ints{2, begin}}, {"end", Ints{62, 128 + begin}}, {"strides", Ints{2, 1}}};
    agree("strided_slice", {{{DType::kF32, {64, 136}}}}, slice, kAllOrders);
  }
  agree("pad", {{{DType::kBF16, {8, 16, 14, 14}}}},
        {{"before", Ints{0, 0, 1, 1}}, {"after", Ints{0, 0, 1, 1}}, {"value", 0.5}}, kAllOrders);
  agree("tile", {{{DType::kI32, {5, 30}}, Domain::kIndex, 100}}, {{"multiples", Ints{7, 3}}}, kAllOrders);
}

TEST(Indexing, MovesWholeRows) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    agree("gather", {{{dtype, {1000, 64}}}, {{DType::kI32, {4, 32}}, Domain::kIndex, 1000}}, {}, kAllOrders);
    agree("gather", {{{dtype, {6, 50, 16}}}, {{DType::kI64, {70}}, Domain::kIndex, 50}}, {{"axis", int64_t{1}}});
  }
}

TEST(Indexing, AddsRowsThatComeOnceAndOften) {
  for (const int64_t different : {500, 20, 1}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      agree("scatter_add",
            {{{dtype, {500, 72}}}, {{DType::kI32, {300}}, Domain::kIndex, different}, {{dtype, {300, 72}}}}, {},
            kAllOrders);
    }
  }
  const Domain index = Domain::kIndex;
  agree(
      "scatter_add",
      {{{DType::kI32, {40, 300}}, index, 9}, {{DType::kU8, {5, 7}}, index, 40}, {{DType::kI32, {5, 7, 300}}, index, 9}},
      {}, kAllOrders);
  agree("scatter_add", {{{DType::kF64, {3, 50, 16}}}, {{DType::kI64, {90}}, index, 50}, {{DType::kF64, {3, 90, 16}}}},
        {{"axis", int64_t{1}}}, kAllOrders);
}

// The states that an optimizer has for a parameter, and its scalars.
struct GroupOf {
  const char* optimizer;
  int states;
  int scalars;
};

// The last of `different` numbers name no row.
void agree_by_rows(const GroupOf& optimizer, Type table, int64_t num_rows, int64_t different, bool may_be_whole,
                   bool keeps_states = false) {
  Shape rows = table.shape;
  rows[0] = num_rows;
  std::vector<Operand> operands{{table}};
  for (int i = 0; i < optimizer.states; ++i) operands.push_back({{DType::kF32, table.shape}, Domain::kPositive});
  operands.push_back({{DType::kI32, {num_rows}}, Domain::kIndex, different});
  operands.push_back({{DType::kF32, rows}});
  for (int i = 0; i < optimizer.scalars; ++i) operands.push_back({{DType::kF32, {}}, Domain::kUnit});
  if (may_be_whole) operands.push_back({{DType::kF32, {}}, Domain::kPositive});
  const auto settings = ops::complete_attributes(ops::OpRegistry::instance().get(optimizer.optimizer), {});
  agree("update_rows", operands,
        {{"optimizer", optimizer.optimizer},
         {"settings", settings.to_string()},
         {"states", int64_t{optimizer.states}},
         {"may_be_whole", may_be_whole},
         {"keeps_states", keeps_states}},
        kAllOrders);
}

TEST(Updates, OfRowsThatComeOnceAndOften) {
  for (const int64_t different : {520, 20, 1}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      agree_by_rows({"adam", 2, 3}, {dtype, {500, 72}}, 300, different, false);
    }
    agree_by_rows({"ftrl", 2, 1}, {DType::kF32, {500, 72}}, 300, different, true);
    agree_by_rows({"sgd", 1, 3}, {DType::kF32, {500, 72}}, 300, different, false, true);
  }
  // Rows that are longer than a block; and more than are sorted by one.
  agree_by_rows({"adagrad", 1, 1}, {DType::kF32, {40, 1500}}, 90, 45, false);
  agree_by_rows({"sgd", 1, 3}, {DType::kF32, {7000, 16}}, 5000, 7100, true);
}

TEST(Creation, DrawsWhatTheHostDraws) {
  const Operand step{{DType::kI64, {}}, Domain::kIndex, 100};
  Attributes stream{{"seed", int64_t{3}}, {"stream", int64_t{-99}}};
  stream.set("keep_prob", 0.9);
  for (const DType dtype : {DType::kF32, DType::kBF16})
    agree("dropout", {{{dtype, {96, 500}}}, step}, stream, kAllOrders);
  stream.set("global_shape", Ints{16, 32, 14, 28});
  stream.set("offset", Ints{8, 0, 0, 14});
  agree("dropout", {{{DType::kBF16, {8, 32, 14, 14}}}, step}, stream, kAllOrders);
}

void agree_in_groups(const GroupOf& group, DType gradient, StrideOrder order, int members, const Attributes& settings) {
  std::vector<Operand> operands;
  for (int m = 0; m < members; ++m) {
    const Shape shape = m % 5 == 0 ? Shape{64 + m, 33} : Shape{1 + 37 * m % 300};
    operands.push_back({{DType::kF32, shape}});
    for (int s = 0; s < group.states; ++s) operands.push_back({{DType::kF32, shape}, Domain::kPositive});
    operands.push_back({{m % 3 == 0 ? DType::kF32 : gradient, shape}});
  }
  for (int s = 0; s < group.scalars; ++s) operands.push_back({{DType::kF32, {}}, Domain::kUnit});
  agree("update_group", operands,
        {{"optimizer", group.optimizer},
         {"settings", ops::complete_attributes(ops::OpRegistry::instance().get(group.optimizer), settings).to_string()},
         {"count", int64_t{members}},
         {"scalars", int64_t{group.scalars}}},
        {order});
}

TEST(Updates, OfLargeParameters) {
  const Operand rate{{DType::kF32, {}}, Domain::kUnit};
  for (const DType gradient : {DType::kF32, DType::kBF16}) {
    const Type param{DType::kF32, {300, 132}};
    agree("momentum", {{param}, {param}, {{gradient, param.shape}}, rate, rate}, {{"weight_decay", 0.01}}, kAllOrders);
    agree(
        "adam",
        {{param}, {param, Domain::kPositive}, {param, Domain::kPositive}, {{gradient, param.shape}}, rate, rate, rate},
        {{"loss_scale", 8.0}}, kAllOrders);
  }
}

TEST(Updates, OfManySmallParametersInOneLaunch) {
  const GroupOf momentum{"momentum", 1, 2};
  agree_in_groups(momentum, DType::kF32, StrideOrder::kDense, 20, {{"weight_decay", 0.01}});
  agree_in_groups(momentum, DType::kBF16, StrideOrder::kReversed, 7, {{"loss_scale", 2.0}, {"nesterov", true}});
  agree_in_groups({"adamw", 2, 3}, DType::kBF16, StrideOrder::kDense, 20, {{"weight_decay", 0.01}});
}

TEST(Updates, OfMoreParametersThanOneLaunchTakes) {
  agree_in_groups({"momentum", 1, 2}, DType::kBF16, StrideOrder::kDense, 110, {{"weight_decay", 0.01}});
}

// What a text writes to out0, an f64 for each of `count` numbers.
std::vector<double> run_text(const std::string& element, int64_t count) {
  FakeDevice device(/*seed=*/7);
  const KernelRequest request{.op = "text", .outputs = {TensorView(nullptr, {DType::kF64, {count}})}};
  cuda::PhasePart part{.body = cuda::deal_text("i64", "i", count) + "out0[i] = " + element + ";\n}\n"};
  const auto kernel = cuda::prepare(large_gpu(), {.name = "text", .phases = {cuda::side_by_side({part})}}, request);
  const auto memory = device.reserve(count * 8);
  memory->resize(count * 8);
  const auto queue = device.make_queue();
  const std::vector<TensorView> outputs = {TensorView(memory->data(), {DType::kF64, {count}})};
  const ParallelFor parallel_for(1);
  const Attributes none;
  queue->launch(kernel, {{}, outputs, none, {}, parallel_for, queue.get()}, nullptr);
  std::vector<double> values(static_cast<size_t>(count));
  queue->copy(values.data(), memory->data(), count * 8, CopyWay::kToHost);
  queue->synchronize();
  return values;
}

TEST(RandomNumbers, OfADeviceAreTheHosts) {
  const RandomStream stream{.seed = 17, .stream = 0x8000000000000001ULL, .step = 5};
  const auto text = [](const char* function, const char* more) {
    return fmt::format("{}(17, 0x8000000000000001ULL, 5, u64(i) << 30{})", function, more);
  };
  const auto uniform = run_text(text("random_uniform", ""), 300);
  const auto open = run_text(text("random_open_uniform", ""), 300);
  const auto normal = run_text(text("random_normal", ""), 3000);
  const auto small = run_text(text("random_below", ", 1000003"), 300);
  const auto large = run_text(text("random_below", ", 1125899906842597LL"), 300);
  for (size_t i = 0; i < 300; ++i) {
    const uint64_t index = uint64_t{i} << 30;
    EXPECT_EQ(uniform[i], static_cast<double>(random_uniform(stream, index)));
    EXPECT_EQ(open[i], random_open_uniform(stream, index));
    EXPECT_EQ(small[i], static_cast<double>(random_below(stream, index, 1000003)));
    EXPECT_EQ(large[i], static_cast<double>(random_below(stream, index, 1125899906842597)));
  }
  for (size_t i = 0; i < 3000; ++i) EXPECT_EQ(normal[i], random_normal(stream, uint64_t{i} << 30));
}

}  // namespace
}  // namespace tessera::devices
