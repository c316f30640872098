#include "tessera/testing/kernels/kernel_testing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "hwy/highway.h"
#include "tessera/base/random.h"
#include "tessera/kernels/registry.h"

namespace {
std::atomic<int64_t> num_allocations = 0;

void* counted_allocation(size_t size, size_t alignment) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(size_t size) { return counted_allocation(size, 16); }
void* operator new[](size_t size) { return counted_allocation(size, 16); }
void* operator new(size_t size, std::align_val_t alignment) {
  return counted_allocation(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return counted_allocation(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace tessera::kernels::cpu {
namespace {

Strides strides_of(const Shape& shape, TestStrides layout) {
  switch (layout) {
    case TestStrides::kDense: return dense_strides(shape);
    case TestStrides::kChannelsLast: return channels_last_strides(shape);
    case TestStrides::kPadded: {
      Strides strides = shape;
      int64_t stride = 1;
      for (int dim = shape.ndim() - 1; dim >= 0; --dim) {
        strides[dim] = stride;
        stride *= std::max<int64_t>(shape[dim], 1) + (dim == shape.ndim() - 1 ? 3 : 0);
      }
      return strides;
    }
    case TestStrides::kReversed: {
      Strides strides = shape;
      int64_t stride = 1;
      for (int dim = 0; dim < shape.ndim(); ++dim) {
        strides[dim] = stride;
        stride *= std::max<int64_t>(shape[dim], 1);
      }
      return strides;
    }
  }
  return {};
}

// A view of memory of its own, with a canary after it.
class Operand {
 public:
  explicit Operand(const TestOperand& test) : view_(nullptr, test.type) {
    view_.strides = strides_of(test.type.shape, test.layout);
    int64_t extent = 1;
    for (int dim = 0; dim < view_.shape.ndim(); ++dim) {
      extent += std::max<int64_t>(view_.shape[dim] - 1, 0) * view_.strides[dim];
    }
    bytes_ = static_cast<size_t>(extent) * size_bytes(test.type.dtype);
    memory_ = Tensor(DType::kU8, {static_cast<int64_t>(bytes_) + 64});
    std::memset(memory_.bytes().data(), 0xAB, memory_.bytes().size());
    view_.data = memory_.bytes().data();
  }

  const TensorView& view() const { return view_; }
  std::span<std::byte> bytes() { return memory_.bytes().first(bytes_); }
  bool canary_lives() const {
    for (const std::byte b : memory_.bytes().subspan(bytes_)) {
      if (b != std::byte{0xAB}) return false;
    }
    return true;
  }

 private:
  TensorView view_;
  Tensor memory_;
  size_t bytes_;
};

void fill(const TestOperand& test, const TensorView& view, uint64_t seed) {
  Tensor values(DType::kF64, test.type.shape);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kSpecial[] = {std::numeric_limits<double>::quiet_NaN(),
                                 kInf,
                                 -kInf,
                                 0.0,
                                 -0.0,
                                 1e30,
                                 -1e30,
                                 1e-30,
                                 -1e-30,
                                 3e-45,
                                 88.0,
                                 -88.0,
                                 65504.0,
                                 1.0,
                                 -1.0,
                                 100.0,
                                 -104.0,
                                 40000.0};
  const RandomStream stream{seed, 1, 2};
  for (int64_t i = 0; i < values.num_elements(); ++i) {
    const auto index = static_cast<uint64_t>(i);
    double x = test.low + (test.high - test.low) * random_uniform(stream, index);
    if (test.special && random_below({seed, 3, 4}, index, 8) == 0) {
      x = kSpecial[random_below({seed, 5, 6}, index, std::size(kSpecial))];
    }
    if (is_integer(test.type.dtype) || test.type.dtype == DType::kBool) x = std::floor(x);
    values.values<double>()[static_cast<size_t>(i)] = x;
  }
  copy_elements(values.view(), view);
}

KernelRequest request_of(const TestCase& test, std::vector<Operand>& inputs, std::vector<Operand>& outputs) {
  KernelRequest request{.op = test.op, .attributes = test.attributes, .num_threads = test.num_threads};
  for (const Operand& operand : inputs) request.inputs.push_back(operand.view());
  for (const Operand& operand : outputs) request.outputs.push_back(operand.view());
  for (TensorView& view : request.inputs) view.data = nullptr;
  for (TensorView& view : request.outputs) view.data = nullptr;
  return request;
}

struct Run {
  std::vector<TensorView> inputs, outputs;
  int64_t allocations = 0;
};

void run_kernel(const PreparedKernel& kernel, const TestCase& test, Run& run) {
  const Tensor scratch(DType::kU8, {kernel.scratch_bytes + 64});
  std::memset(scratch.bytes().data(), 0xFF, scratch.bytes().size());
  const ParallelFor parallel_for(test.num_threads);
  const KernelArgs args{run.inputs, run.outputs, test.attributes,
                        scratch.bytes().first(static_cast<size_t>(kernel.scratch_bytes)), parallel_for};
  kernel.run(args);  // the first run may fill caches of the libraries below
  std::memset(scratch.bytes().data(), 0xFF, scratch.bytes().size());
  const int64_t before = num_allocations;
  kernel.run(args);
  run.allocations = num_allocations - before;
  for (const std::byte b : scratch.bytes().subspan(static_cast<size_t>(kernel.scratch_bytes))) {
    ASSERT_EQ(b, std::byte{0xFF}) << kernel.name << " writes beyond its scratch memory";
  }
}

double unit_in_last_place(DType dtype, double x) {
  switch (dtype) {
    case DType::kBF16: return std::ldexp(std::abs(x), -7);
    case DType::kF16: return std::max(std::ldexp(std::abs(x), -10), 0x1p-24);
    default: return 0;
  }
}

// The first difference, or "".
std::string difference(const Tensor& got, const Tensor& want, const TestCase& test) {
  const std::vector<double> a = got.to_doubles();
  const std::vector<double> b = want.to_doubles();
  int64_t count = 0;
  std::string first;
  for (size_t i = 0; i < a.size(); ++i) {
    const double allowed = test.atol + test.rtol * std::abs(b[i]) + unit_in_last_place(got.dtype(), b[i]);
    const bool equal = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) || std::abs(a[i] - b[i]) <= allowed;
    if (equal) continue;
    if (count++ == 0) first = fmt::format("element {} is {}, the reference has {}", i, a[i], b[i]);
  }
  return count == 0 ? "" : fmt::format("{} of {} elements differ; {}", count, a.size(), first);
}

std::string describe(const TestCase& test) {
  std::string text = test.op + test.attributes.to_string() + "(";
  for (const TestOperand& operand : test.inputs) {
    text += operand.type.to_string() + "/" + std::to_string(static_cast<int>(operand.layout)) + " ";
  }
  return text + ") threads " + std::to_string(test.num_threads);
}

std::vector<Operand> make_operands(const std::vector<TestOperand>& tests) { return {tests.begin(), tests.end()}; }

std::vector<TestOperand> in_f32(std::vector<TestOperand> tests) {
  for (TestOperand& test : tests) test.type.dtype = DType::kF32;
  return tests;
}

}  // namespace

std::string fast_kernel_name(const TestCase& test) {
  auto inputs = make_operands(test.inputs);
  auto outputs = make_operands(test.outputs);
  const auto kernel = cpu_kernels().find(request_of(test, inputs, outputs));
  return kernel ? kernel->name : "declined";
}

namespace {

// While it lives, kernels are prepared for one instruction set, which this machine has.
class InstructionSet {
 public:
  explicit InstructionSet(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  ~InstructionSet() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  InstructionSet(const InstructionSet&) = delete;
  InstructionSet& operator=(const InstructionSet&) = delete;
};

bool is_small(const TestCase& test) {
  for (const auto& operands : {test.inputs, test.outputs}) {
    for (const TestOperand& operand : operands) {
      if (operand.type.shape.num_elements() > 20000) return false;
    }
  }
  return true;
}

// Runs `kernel` with each of its in-place pairs sharing memory; the results must be those at `run`.
void expect_equal_in_place(const PreparedKernel& kernel, const TestCase& test, const Run& run) {
  for (const auto& [input, output] : kernel.in_place) {
    const auto i = static_cast<size_t>(input);
    const auto o = static_cast<size_t>(output);
    auto shared_inputs = make_operands(test.inputs);
    auto shared_outputs = make_operands(test.outputs);
    Run shared;
    for (const Operand& operand : shared_inputs) shared.inputs.push_back(operand.view());
    for (const Operand& operand : shared_outputs) shared.outputs.push_back(operand.view());
    shared.inputs[i].data = shared.outputs[o].data;
    if (shared.inputs[i].dtype != shared.outputs[o].dtype ||
        shared_inputs[i].bytes().size() != shared_outputs[o].bytes().size()) {
      ADD_FAILURE() << kernel.name << " names an in-place pair of different sizes";
      continue;
    }
    for (size_t k = 0; k < run.inputs.size(); ++k) copy_elements(run.inputs[k], shared.inputs[k]);
    const Tensor scratch(DType::kU8, {kernel.scratch_bytes + 64});
    kernel.run({shared.inputs, shared.outputs, test.attributes,
                scratch.bytes().first(static_cast<size_t>(kernel.scratch_bytes)), ParallelFor(test.num_threads)});
    for (size_t k = 0; k < run.outputs.size(); ++k) {
      EXPECT_TRUE(bit_equal(Tensor::copy_of(shared.outputs[k]), Tensor::copy_of(run.outputs[k])))
          << kernel.name << " differs when input " << input << " and output " << output << " share memory";
    }
  }
}

}  // namespace

namespace {

// A case's inputs, and what the reference kernel makes of them.
struct Expectation {
  std::vector<Operand> inputs, results;
  Run run;             // with the inputs
  bool known = false;  // the reference has the operator
};

Expectation expectation_of(const TestCase& test) {
  Expectation made{.inputs = make_operands(test.inputs),
                   .results = make_operands(test.reference_in_f32 ? in_f32(test.outputs) : test.outputs)};
  auto reference_inputs = make_operands(test.reference_in_f32 ? in_f32(test.inputs) : test.inputs);
  Run reference_run;
  for (size_t i = 0; i < made.inputs.size(); ++i) {
    fill(test.inputs[i], made.inputs[i].view(), 17 + i);
    copy_elements(made.inputs[i].view(), reference_inputs[i].view());
    made.run.inputs.push_back(made.inputs[i].view());
    reference_run.inputs.push_back(reference_inputs[i].view());
  }
  for (const Operand& operand : made.results) reference_run.outputs.push_back(operand.view());
  const auto reference = reference_kernels().find(request_of(test, reference_inputs, made.results));
  made.known = reference.has_value();
  if (made.known) run_kernel(*reference, test, reference_run);
  return made;
}

// Runs `kernel` into `outputs`, which run.outputs are the views of, and compares.
void expect_agreement(const PreparedKernel& kernel, const TestCase& test, Run& run, const std::vector<Operand>& outputs,
                      const std::vector<Operand>& expected) {
  run_kernel(kernel, test, run);
  EXPECT_LE(run.allocations, test.max_allocations) << kernel.name << " allocates while it runs";
  for (size_t o = 0; o < outputs.size(); ++o) {
    EXPECT_EQ(difference(Tensor::copy_of(outputs[o].view()), Tensor::copy_of(expected[o].view()), test), "")
        << kernel.name << " output " << o;
    EXPECT_TRUE(outputs[o].canary_lives()) << kernel.name << " writes beyond output " << o;
  }
}

}  // namespace

bool compare_with_reference(const TestCase& test) {
  SCOPED_TRACE(describe(test));
  auto [inputs, expected, run, known] = expectation_of(test);
  if (!known) return false;

  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const InstructionSet instruction_set(target);
    SCOPED_TRACE(hwy::TargetName(target));
    auto outputs = make_operands(test.outputs);
    run.outputs.clear();
    for (const Operand& operand : outputs) run.outputs.push_back(operand.view());
    const auto fast = cpu_kernels().find(request_of(test, inputs, outputs));
    if (!fast) return false;
    EXPECT_TRUE(test.kernel.empty() || fast->name == test.kernel) << fast->name << ", not " << test.kernel;
    expect_agreement(*fast, test, run, outputs, expected);
    expect_equal_in_place(*fast, test, run);
    // The other instruction sets only where that is cheap; oneDNN chooses its own.
    if (!is_small(test) || fast->name.starts_with("onednn")) break;
  }
  return true;
}

std::vector<std::string> compare_candidates_with_reference(const TestCase& test) {
  SCOPED_TRACE(describe(test));
  std::vector<std::string> names;
  auto [inputs, expected, run, known] = expectation_of(test);
  EXPECT_TRUE(known) << "the reference lacks " << test.op;
  if (!known) return names;
  std::vector<Operand> unused = make_operands(test.outputs);
  const KernelRequest request = request_of(test, inputs, unused);
  for (const KernelCandidate& candidate : cpu_kernels().candidates(request)) {
    const auto kernel = candidate.prepare();
    if (!kernel) continue;
    EXPECT_EQ(kernel->name, candidate.name);
    const auto outputs = make_operands(test.outputs);
    run.outputs.clear();
    for (const Operand& operand : outputs) run.outputs.push_back(operand.view());
    expect_agreement(*kernel, test, run, outputs, expected);
    std::vector<Tensor> first;
    for (const Operand& operand : outputs) first.push_back(Tensor::copy_of(operand.view()));
    run_kernel(*kernel, test, run);
    for (size_t o = 0; o < outputs.size(); ++o) {
      EXPECT_TRUE(bit_equal(first[o], Tensor::copy_of(outputs[o].view()))) << kernel->name << " wanders";
    }
    names.push_back(kernel->name);
  }
  return names;
}

}  // namespace tessera::kernels::cpu
