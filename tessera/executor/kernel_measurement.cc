#include "tessera/executor/kernel_measurement.h"

#include <algorithm>

namespace tessera::executor {
namespace {

// Another kernel than the usual one must be faster by this factor: below it, runs would choose now this, now that.
constexpr double kClearlyFaster = 0.97;
// After its first run, on cold caches, a candidate slower than the best by this factor is given up; after further runs,
// or first runs that are long, by the smaller one.
constexpr double kHopelessAtFirst = 2;
constexpr double kHopeless = 1.1;
constexpr int64_t kBudgetNs = 20'000'000;
// When first runs have taken so long, those candidates that are left are not tried: they are listed last for being
// seldom the fastest.
constexpr int64_t kFirstRunsBudgetNs = 100'000'000;
constexpr int kMaxRounds = 10;

// The memory that a view of `view`'s strides reaches over.
int64_t extent_bytes(const TensorView& view) {
  int64_t elements = 1;
  for (int dim = 0; dim < view.shape.ndim(); ++dim) elements += (view.shape[dim] - 1) * view.strides[dim];
  return elements * static_cast<int64_t>(size_bytes(view.dtype));
}

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Numbers near 1 in every floating type; zeros and denormal numbers would tell other times.
void fill(std::span<std::byte> bytes) {
  auto* const halves = reinterpret_cast<uint16_t*>(bytes.data());
  for (size_t i = 0; i < bytes.size() / 2; ++i) halves[i] = static_cast<uint16_t>(0x3F00U + (i * 37) % 0x80U);
}

}  // namespace

double KernelTimer::run(const PreparedKernel& kernel, const KernelRequest& request, std::span<std::byte> scratch,
                        const ParallelFor& parallel_for) {
  const int64_t begin = clock_.monotonic_ns();
  kernel.run({request.inputs, request.outputs, request.attributes,
              scratch.first(static_cast<size_t>(kernel.scratch_bytes)), parallel_for});
  return static_cast<double>(clock_.monotonic_ns() - begin) / 1e3;
}

KernelMeasurement KernelTimer::measure(const KernelRegistry& registry, const KernelRequest& request) {
  std::vector<PreparedKernel> kernels;
  if (auto usual = registry.find(request)) kernels.push_back(std::move(*usual));
  for (const auto& candidate : registry.candidates(request)) {
    if (auto kernel = candidate.prepare()) kernels.push_back(std::move(*kernel));
  }
  KernelMeasurement result{.request = request};
  if (kernels.size() == 1) result.chosen = kernels[0].name;
  if (kernels.size() < 2) return result;

  KernelRequest placed = request;
  int64_t bytes = 0;
  for (auto* views : {&placed.inputs, &placed.outputs}) {
    for (const TensorView& view : *views) bytes += aligned(extent_bytes(view));
  }
  int64_t scratch_bytes = 0;
  for (const auto& kernel : kernels) scratch_bytes = std::max(scratch_bytes, kernel.scratch_bytes);
  const int64_t operand_bytes = bytes;
  bytes += aligned(scratch_bytes);
  if (memory_.size_bytes() < bytes) {
    memory_ = {};  // first, so that there are never two
    memory_ = Tensor(DType::kU8, {bytes});
    fill(memory_.bytes());  // also scratch memory, so that no run meets untouched pages
  }
  int64_t at = 0;
  for (auto* views : {&placed.inputs, &placed.outputs}) {
    for (TensorView& view : *views) {
      const int64_t size = aligned(extent_bytes(view));
      view.data = memory_.bytes().data() + at;
      // What other kernels left there may be anything.
      if (views == &placed.inputs) fill(memory_.bytes().subspan(static_cast<size_t>(at), static_cast<size_t>(size)));
      at += size;
    }
  }
  const auto scratch = memory_.bytes().subspan(static_cast<size_t>(operand_bytes));

  const ParallelFor parallel_for(request.num_threads);
  std::vector<double> best;
  const int64_t begin = clock_.monotonic_ns();
  const auto elapsed_ns = [&] { return clock_.monotonic_ns() - begin; };
  for (const auto& kernel : kernels) {
    best.push_back(run(kernel, placed, scratch, parallel_for));
    if (elapsed_ns() > kFirstRunsBudgetNs) break;
  }
  double limit =
      *std::min_element(best.begin(), best.end()) * (elapsed_ns() < kBudgetNs ? kHopelessAtFirst : kHopeless);
  for (int round = 0; round < kMaxRounds; ++round) {
    if (round > 0 && elapsed_ns() > kBudgetNs) break;
    for (size_t k = 0; k < best.size(); ++k) {
      // The usual one at least twice: its time is what others are compared with.
      const bool may_win = best[k] <= limit || (k == 0 && round == 0);
      if (may_win) best[k] = std::min(best[k], run(kernels[k], placed, scratch, parallel_for));
    }
    limit = *std::min_element(best.begin(), best.end()) * kHopeless;
  }

  for (size_t k = 0; k < best.size(); ++k) result.candidates.push_back({kernels[k].name, best[k]});
  const auto fastest = static_cast<size_t>(std::min_element(best.begin(), best.end()) - best.begin());
  result.chosen = kernels[best[fastest] < best[0] * kClearlyFaster ? fastest : 0].name;
  return result;
}

}  // namespace tessera::executor
