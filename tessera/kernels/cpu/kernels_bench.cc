// Times the CPU kernels on the shapes of a ResNet-50 and of a Transformer step and prints, for each, the median and the
// 95th percentile of the calls, and the rate at which its operands go through memory against what a plain copy of 256
// MB reaches with equal threads (convolutions and matmul: FLOP/s). Usage: kernels_bench [threads] [part of a name].
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tessera/base/random.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

struct Case {
  std::string label;
  std::string op;
  std::vector<TensorView> inputs, outputs;
  Attributes attributes = {};
  double flops = 0;
};

TensorView image(int64_t n, int64_t c, int64_t size, DType dtype = DType::kF32) {
  const Shape shape{n, c, size, size};
  return {nullptr, dtype, shape, channels_last_strides(shape)};
}
TensorView dense(const Shape& shape, DType dtype = DType::kF32) { return {nullptr, Type{dtype, shape}}; }

double median_of(std::vector<double> times, double quantile = 0.5) {
  std::sort(times.begin(), times.end());
  return times[static_cast<size_t>(quantile * static_cast<double>(times.size() - 1))];
}

// Seconds; with one thread those of this thread alone, which other programs disturb less.
double now(int num_threads) {
  timespec time;
  clock_gettime(num_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <typename F>
std::vector<double> time_calls(int num_threads, F&& call) {
  std::vector<double> times;
  for (int i = 0; i < 3; ++i) call();
  const double begin = now(num_threads);
  while (times.size() < 10 || (times.size() < 500 && now(num_threads) - begin < 0.7)) {
    const double start = now(num_threads);
    call();
    times.push_back(now(num_threads) - start);
  }
  return times;
}

Tensor filled(const TensorView& view) {
  Tensor tensor(view.type());
  if (view.dtype == DType::kF32) {
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      tensor.values<float>()[static_cast<size_t>(i)] = random_uniform({1, 2, 3}, static_cast<uint64_t>(i)) + 0.1F;
    }
  } else {
    std::memset(tensor.bytes().data(), 0, tensor.bytes().size());
  }
  return tensor;
}

constexpr int64_t kImages = 32;
constexpr int64_t kParameters = 25'000'000;

void add_elementwise(std::vector<Case>& list) {
  const TensorView x = image(kImages, 64, 112);
  const TensorView big = image(kImages, 256, 56);
  list.push_back({"relu 32x64x112", "relu", {x}, {x}});
  list.push_back({"relu_grad 32x64x112", "relu_grad", {x, x}, {x}});
  list.push_back({"add 32x256x56", "add", {big, big}, {big}});
  list.push_back({"exp 32x64x112", "exp", {x}, {x}});
  list.push_back({"gelu erf 32x64x112", "gelu", {x}, {x}, {{"approximate", false}}});
}

// Batch normalisation of images as `view`, in its parts and fused with its neighbours.
void add_batch_norm(std::vector<Case>& list, const TensorView& view) {
  const std::string shape = fmt::format(" {}x{}", view.shape[1], view.shape[2]);
  const TensorView c = dense({view.shape[1]});
  const Attributes attributes = {{"counts", Ints{view.shape[0] * view.shape[2] * view.shape[3]}},
                                 {"grouped", false},
                                 {"eps", 1e-5},
                                 {"batch_stats", true}};
  list.push_back({"batch_norm_mean" + shape, "batch_norm_mean", {view}, {c}, attributes});
  list.push_back({"batch_norm_variance" + shape, "batch_norm_variance", {view, c}, {c}, attributes});
  list.push_back({"batch_norm" + shape, "batch_norm", {view, c, c, c, c}, {view}, attributes});
  list.push_back({"batch_norm_grad_reduce" + shape, "batch_norm_grad_reduce", {view, view, c, c}, {c, c}, attributes});
  list.push_back(
      {"batch_norm_grad_input" + shape, "batch_norm_grad_input", {view, view, c, c, c, c, c}, {view}, attributes});
  list.push_back({"batch_norm_statistics" + shape, "batch_norm_statistics", {view}, {c, c}, attributes});
  for (const char* residual : {"none", "value", "batch_norm"}) {
    Case norm{fmt::format("fused_batch_norm {}{}", residual, shape),
              "fused_batch_norm",
              {view, c, c, c, c},
              {view},
              attributes};
    if (residual != std::string("none")) norm.inputs.push_back(view);
    if (residual == std::string("batch_norm")) norm.inputs.insert(norm.inputs.end(), {c, c, c, c});
    norm.attributes.set("relu", true);
    norm.attributes.set("residual", std::string(residual));
    norm.attributes.set("residual_eps", 1e-5);
    list.push_back(norm);
  }
  list.push_back({"batch_norm_relu_grad_reduce" + shape,
                  "batch_norm_relu_grad_reduce",
                  {view, view, c, c, c, c},
                  {c, c},
                  attributes});
  list.push_back({"batch_norm_relu_grad_input" + shape,
                  "batch_norm_relu_grad_input",
                  {view, view, c, c, c, c, c, c},
                  {view},
                  attributes});
  list.push_back({"masked_batch_norm_grad_reduce" + shape,
                  "masked_batch_norm_grad_reduce",
                  {view, view, c, c, view, view},
                  {view, c, c},
                  attributes});
  const TensorView channel = dense({view.shape[1], 1, 1});
  list.push_back({"bn + add + relu fused" + shape,
                  "fused_elementwise",
                  {view, channel, channel, channel, view},
                  {view},
                  {{"program", std::string("a=sub a0 a1; b=mul a a2; c=add b a3; d=add c a4; e=relu d; return e")},
                   {"num_outputs", int64_t{1}}}});
}

void add_pools_and_reductions(std::vector<Case>& list) {
  const TensorView x = image(kImages, 64, 112);
  const TensorView narrow = image(kImages, 64, 56);
  const TensorView deep = image(kImages, 2048, 7);
  const Attributes pool = {
      {"kernel", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"padding", Ints{1, 1, 1, 1}}, {"input_size", Ints{112, 112}}};
  list.push_back({"max_pool 64x112", "max_pool2d", {x}, {narrow, image(kImages, 64, 56, DType::kU8)}, pool});
  list.push_back({"max_pool_grad 64x112", "max_pool2d_grad", {narrow, image(kImages, 64, 56, DType::kU8)}, {x}, pool});
  list.push_back({"mean over pixels 2048x7",
                  "reduce_mean",
                  {deep},
                  {dense({kImages, 2048})},
                  {{"axes", Ints{2, 3}}, {"keep_dims", false}}});
  list.push_back(
      {"sum 25M", "reduce_sum", {dense({kParameters})}, {dense({})}, {{"axes", Ints{0}}, {"keep_dims", false}}});
  list.push_back({"sum over rows 4096x1024",
                  "reduce_sum",
                  {dense({4096, 1024})},
                  {dense({1024})},
                  {{"axes", Ints{0}}, {"keep_dims", false}}});
}

void add_optimizers(std::vector<Case>& list) {
  const TensorView param = dense({kParameters});
  const TensorView scalar = dense({});
  const Attributes optimizer = {{"weight_decay", 1e-4}, {"loss_scale", 1.0}, {"nesterov", false},
                                {"beta1", 0.9},         {"beta2", 0.999},    {"eps", 1e-8}};
  list.push_back({"momentum 25M", "momentum", {param, param, param, scalar, scalar}, {param, param}, optimizer});
  list.push_back(
      {"adam 25M", "adam", {param, param, param, param, scalar, scalar, scalar}, {param, param, param}, optimizer});
}

void add_copies(std::vector<Case>& list) {
  const TensorView x = image(kImages, 64, 112);
  const TensorView nchw = dense({kImages, 64, 112, 112});
  list.push_back({"NHWC to NCHW 64x112", "reshape", {x}, {nchw}});
  list.push_back({"NCHW to NHWC 64x112", "reshape", {nchw}, {x}});
  list.push_back(
      {"transpose 4096x4096", "transpose", {dense({4096, 4096})}, {dense({4096, 4096})}, {{"perm", Ints{1, 0}}}});
  list.push_back({"f32 to bf16 25M",
                  "cast",
                  {dense({kParameters})},
                  {dense({kParameters}, DType::kBF16)},
                  {{"dtype", DType::kBF16}}});
  list.push_back({"u8 to f32 images",
                  "cast",
                  {image(kImages, 3, 224, DType::kU8)},
                  {image(kImages, 3, 224)},
                  {{"dtype", DType::kF32}}});
}

void add_row_kernels(std::vector<Case>& list) {
  const TensorView param = dense({kParameters});
  list.push_back(
      {"softmax 8192x1000", "softmax", {dense({8192, 1000})}, {dense({8192, 1000})}, {{"axis", int64_t{-1}}}});
  list.push_back({"layer_norm 8192x768",
                  "layer_norm",
                  {dense({8192, 768}), dense({768}), dense({768})},
                  {dense({8192, 768}), dense({8192}), dense({8192})},
                  {{"begin_axis", int64_t{1}}, {"eps", 1e-5}}});
  list.push_back({"dropout 25M",
                  "dropout",
                  {param, dense({}, DType::kI64)},
                  {param},
                  {{"keep_prob", 0.9},
                   {"seed", int64_t{1}},
                   {"stream", int64_t{2}},
                   {"global_shape", Ints{}},
                   {"offset", Ints{}}}});
}

struct ConvSizes {
  int64_t ci, size, co, kernel, stride;
};

void add_convolution(std::vector<Case>& list, const ConvSizes& c) {
  const int64_t out = (c.size - 1) / c.stride + 1;
  const int64_t pad = c.kernel / 2;
  const Attributes attributes = {{"strides", Ints{c.stride, c.stride}},
                                 {"padding", Ints{pad, pad, pad, pad}},
                                 {"dilation", Ints{1, 1}},
                                 {"groups", int64_t{1}},
                                 {"input_size", Ints{c.size, c.size}},
                                 {"kernel_size", Ints{c.kernel, c.kernel}}};
  const TensorView in = image(kImages, c.ci, c.size);
  const TensorView y = image(kImages, c.co, out);
  const TensorView weight = dense({c.co, c.ci, c.kernel, c.kernel});
  const double flops = 2.0 * static_cast<double>(kImages * out * out * c.co * c.ci * c.kernel * c.kernel);
  const std::string shape = fmt::format(" {}x{}->{} k{} s{}", c.ci, c.size, c.co, c.kernel, c.stride);
  list.push_back({"conv" + shape, "conv2d", {in, weight}, {y}, attributes, flops});
  if (c.ci > 3) list.push_back({"grad_input" + shape, "conv2d_grad_input", {y, weight}, {in}, attributes, flops});
  list.push_back({"grad_weight" + shape, "conv2d_grad_weight", {y, in}, {weight}, attributes, flops});
}

std::vector<Case> cases() {
  std::vector<Case> list;
  add_elementwise(list);
  for (const TensorView& view :
       {image(kImages, 64, 112), image(kImages, 64, 56), image(kImages, 256, 56), image(kImages, 2048, 7)}) {
    add_batch_norm(list, view);
  }
  add_pools_and_reductions(list);
  add_optimizers(list);
  add_copies(list);
  add_row_kernels(list);
  for (const ConvSizes& c :
       {ConvSizes{3, 224, 64, 7, 2}, ConvSizes{64, 56, 64, 1, 1}, ConvSizes{64, 56, 64, 3, 1},
        ConvSizes{64, 56, 256, 1, 1}, ConvSizes{256, 56, 512, 1, 2}, ConvSizes{128, 28, 128, 3, 1},
        ConvSizes{256, 14, 256, 3, 1}, ConvSizes{512, 7, 512, 3, 1}, ConvSizes{2048, 7, 512, 1, 1}}) {
    add_convolution(list, c);
  }
  list.push_back({"matmul 1024^3",
                  "matmul",
                  {dense({1024, 1024}), dense({1024, 1024})},
                  {dense({1024, 1024})},
                  {{"transpose_a", false}, {"transpose_b", false}},
                  2.0 * 1024 * 1024 * 1024});
  return list;
}

// A Transformer of width 512 with 8 heads on 32 rows of 64 tokens, and attention over 1024 tokens: as one operator, and
// as the operators that it stands for.
std::vector<Case> transformer_cases() {
  std::vector<Case> list;
  for (const auto& [batch, tokens] : {std::pair<int64_t, int64_t>{32, 64}, {2, 1024}}) {
    constexpr int64_t kHeads = 8;
    constexpr int64_t kDepth = 64;
    const double flops = 4.0 * static_cast<double>(batch * kHeads * tokens * tokens * kDepth);
    const Attributes attributes = {{"scale", 0.125},      {"causal", false},      {"keep_prob", 1.0},
                                   {"seed", int64_t{0}},  {"stream", int64_t{0}}, {"global_shape", Ints{}},
                                   {"offset", Ints{}},    {"axis", int64_t{-1}},  {"transpose_a", false},
                                   {"transpose_b", false}};
    Attributes transposed = attributes;
    transposed.set("transpose_b", true);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const std::string shape = fmt::format(" {}x{} {}", batch, tokens, dtype);
      const TensorView x = dense({batch, tokens, kHeads, kDepth}, dtype);
      const TensorView lse = dense({batch, kHeads, tokens});
      list.push_back({"attention" + shape, "attention", {x, x, x}, {x, lse}, attributes, flops});
      list.push_back(
          {"attention_grad" + shape, "attention_grad", {x, x, x, x, x, lse}, {x, x, x}, attributes, 2.5 * flops});
      const TensorView head = dense({batch, kHeads, tokens, kDepth}, dtype);
      const TensorView scores = dense({batch, kHeads, tokens, tokens}, dtype);
      list.push_back({"scores" + shape, "batch_matmul", {head, head}, {scores}, transposed, flops / 2});
      list.push_back({"scores softmax" + shape, "softmax", {scores}, {scores}, attributes});
      list.push_back({"scores softmax_grad" + shape, "softmax_grad", {scores, scores}, {scores}, attributes});
      list.push_back({"scores mix" + shape, "batch_matmul", {scores, head}, {head}, attributes, flops / 2});
    }
  }
  const TensorView rows = dense({2048, 512});
  const TensorView inner = dense({2048, 2048});
  const TensorView vector = dense({512});
  const TensorView per_row = dense({2048});
  const TensorView logits = dense({2048, 20000});
  const TensorView table = dense({20000, 512});
  const TensorView ids = dense({2048}, DType::kI32);
  const Attributes norm = {{"begin_axis", int64_t{1}}, {"eps", 1e-5}};
  list.push_back({"layer_norm 2048x512", "layer_norm", {rows, vector, vector}, {rows, per_row, per_row}, norm});
  list.push_back({"layer_norm_grad 2048x512",
                  "layer_norm_grad",
                  {rows, rows, vector, per_row, per_row},
                  {rows, vector, vector},
                  norm});
  const Attributes gelu = {{"approximate", true}};
  list.push_back({"gelu tanh 2048x2048", "gelu", {inner}, {inner}, gelu});
  list.push_back({"gelu_grad tanh 2048x2048", "gelu_grad", {inner, inner}, {inner}, gelu});
  list.push_back({"cross_entropy 2048x20000", "softmax_cross_entropy", {logits, ids}, {per_row, logits}});
  list.push_back({"cross_entropy_grad 2048x20000", "softmax_cross_entropy_grad", {logits, ids, per_row}, {logits}});
  const Attributes axis = {{"axis", int64_t{0}}};
  list.push_back({"gather 20000x512", "gather", {table, ids}, {rows}, axis});
  list.push_back({"scatter_add 20000x512", "scatter_add", {table, ids, rows}, {table}, axis});
  list.push_back(
      {"sum of rows 2048x2048", "reduce_sum", {inner}, {dense({2048})}, {{"axes", Ints{0}}, {"keep_dims", false}}});
  list.push_back(
      {"sum of rows 2048x20000", "reduce_sum", {logits}, {dense({20000})}, {{"axes", Ints{0}}, {"keep_dims", false}}});
  for (const auto& [m, k, n] : {std::array<int64_t, 3>{2048, 512, 512},
                                {2048, 512, 2048},
                                {2048, 2048, 512},
                                {2048, 512, 20000},
                                {2048, 20000, 512},
                                {512, 2048, 20000}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const bool transpose_b : {false, true}) {
        const TensorView b = transpose_b ? dense({n, k}, dtype) : dense({k, n}, dtype);
        list.push_back({fmt::format("matmul {}x{}x{}{} {}", m, k, n, transpose_b ? "'" : "", dtype),
                        "matmul",
                        {dense({m, k}, dtype), b},
                        {dense({m, n}, dtype)},
                        {{"transpose_a", false}, {"transpose_b", transpose_b}},
                        2.0 * static_cast<double>(m * k * n)});
      }
    }
  }
  return list;
}

void run(int num_threads, const std::string& wanted) {
  const ParallelFor parallel_for(num_threads);
  const Tensor from = filled(dense({32'000'000}));
  const Tensor to(from.type());
  const double copy_rate =
      2.0 * static_cast<double>(from.size_bytes()) / median_of(time_calls(num_threads, [&] {
        parallel_for(from.size_bytes(), 65536, [&](int64_t begin, int64_t end) {
          std::memcpy(to.bytes().data() + begin, from.bytes().data() + begin, static_cast<size_t>(end - begin));
        });
      }));
  fmt::print("{} threads; copy of 128 MB: {:.1f} GB/s read and written\n", num_threads, copy_rate / 1e9);
  auto all = cases();
  for (Case& test : transformer_cases()) all.push_back(std::move(test));
  for (const Case& test : all) {
    if (test.label.find(wanted) == std::string::npos) continue;
    KernelRequest request{test.op, test.inputs, test.outputs, test.attributes, num_threads};
    const auto kernel = cpu_kernels().find(request);
    if (!kernel) {
      fmt::print("{:40} declined\n", test.label);
      continue;
    }
    std::vector<Tensor> tensors;
    double bytes = 0;
    const auto place = [&](std::vector<TensorView>& views) {
      for (TensorView& view : views) {
        tensors.push_back(filled(view));
        view.data = tensors.back().bytes().data();
        bytes += static_cast<double>(view.size_bytes());
      }
    };
    place(request.inputs);
    place(request.outputs);
    const Tensor scratch(DType::kU8, {kernel->scratch_bytes + 64});
    const KernelArgs args{request.inputs, request.outputs, request.attributes, scratch.bytes(), parallel_for};
    const std::vector<double> times = time_calls(num_threads, [&] { kernel->run(args); });
    const double median = median_of(times);
    const std::string rate = test.flops > 0 ? fmt::format("{:7.1f} GFLOP/s", test.flops / median / 1e9)
                                            : fmt::format("{:7.1f} GB/s  {:3.0f} % of copy", bytes / median / 1e9,
                                                          100 * bytes / median / copy_rate);
    fmt::print("{:40} {:8.3f} ms  p95 {:8.3f}  best {:8.3f}  {}\n", test.label, median * 1e3,
               median_of(times, 0.95) * 1e3, median_of(times, 0) * 1e3, rate);
  }
}

}  // namespace
}  // namespace tessera::kernels

int main(int argc, char** argv) {
  tessera::kernels::run(argc > 1 ? std::atoi(argv[1]) : 2, argc > 2 ? argv[2] : "");
  return 0;
}
