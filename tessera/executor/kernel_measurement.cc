#include "tessera/executor/kernel_measurement.h"

#include <algorithm>

#include "tessera/tensor/alignment.h"

namespace tessera::executor {
namespace {

// Another kernel than the usual one must be faster by this factor: below it, runs would choose now this, now that.
constexpr double kClearlyFaster = 0.97;
// After its first run, on cold caches, a candidate slower than the best by this factor is given up; after further runs,
// or first runs that are long, by the smaller one.
constexpr double kHopelessAtFirst = 2;
constexpr double kHopeless = 1.1;
constexpr int64_t kBudgetNs = 20'000'000;
// When first runs have taken so long, or so many times the usual kernel's first run, those candidates that are left are
// not tried: they are listed last for being seldom the fastest.
constexpr int64_t kFirstRunsBudgetNs = 100'000'000;
constexpr int64_t kFirstRunsOfUsual = 4;
constexpr int kMaxRounds = 10;
// First runs of a kernel, of which all but the last were disturbed.
constexpr int kMaxFirstRuns = 3;
// Disturbed runs do not count for a budget; together with them it may be exceeded by this factor.
constexpr int64_t kDisturbedFactor = 4;

// The memory that a view of `view`'s strides reaches over.
int64_t extent_bytes(const TensorView& view) {
  int64_t elements = 1;
  for (int dim = 0; dim < view.shape.ndim(); ++dim) elements += (view.shape[dim] - 1) * view.strides[dim];
  return elements * static_cast<int64_t>(size_bytes(view.dtype));
}

// Numbers near 1 in every floating type; zeros and denormal numbers would tell other times.
void fill(std::span<std::byte> bytes) {
  auto* const halves = reinterpret_cast<uint16_t*>(bytes.data());
  for (size_t i = 0; i < bytes.size() / 2; ++i) halves[i] = static_cast<uint16_t>(0x3F00U + (i * 37) % 0x80U);
}

// What is known of one kernel: of the runs that nothing disturbed if there are any, else of all.
struct Best {
  int64_t ns = 0;
  bool disturbed = true;
  void take(int64_t run_ns, bool run_disturbed) {
    if (ns == 0 || (disturbed && !run_disturbed) || (disturbed == run_disturbed && run_ns < ns)) ns = run_ns;
    disturbed = disturbed && run_disturbed;
  }
};

int64_t fastest_ns(const std::vector<Best>& kernels) {
  return std::min_element(kernels.begin(), kernels.end(), [](auto& a, auto& b) { return a.ns < b.ns; })->ns;
}

}  // namespace

const std::string& fastest(const std::vector<TimedKernel>& candidates) {
  const auto best = std::min_element(candidates.begin(), candidates.end(),
                                     [](auto& a, auto& b) { return a.microseconds < b.microseconds; });
  const bool is_clear = best->microseconds < candidates[0].microseconds * kClearlyFaster;
  return is_clear ? best->name : candidates[0].name;
}

KernelTimer::Run KernelTimer::run(const PreparedKernel& kernel, const KernelRequest& request,
                                  std::span<std::byte> scratch, const ParallelFor& parallel_for) {
  const int64_t preemptions = count_preemptions_();
  const int64_t begin = clock_.monotonic_ns();
  kernel.run({request.inputs, request.outputs, request.attributes,
              scratch.first(static_cast<size_t>(kernel.scratch_bytes)), parallel_for});
  const int64_t end = clock_.monotonic_ns();
  return {std::max<int64_t>(end - begin, 1), count_preemptions_() != preemptions};
}

std::span<std::byte> KernelTimer::place(KernelRequest& request, int64_t scratch_bytes) {
  int64_t operand_bytes = 0;
  for (auto* views : {&request.inputs, &request.outputs}) {
    for (const TensorView& view : *views) operand_bytes += aligned(extent_bytes(view));
  }
  const int64_t bytes = operand_bytes + aligned(scratch_bytes);
  if (memory_.size_bytes() < bytes) {
    memory_ = {};  // first, so that there are never two
    memory_ = Tensor(DType::kU8, {bytes});
    fill(memory_.bytes());  // also scratch memory, so that no run meets untouched pages
  }
  int64_t at = 0;
  for (auto* views : {&request.inputs, &request.outputs}) {
    for (TensorView& view : *views) {
      const int64_t size = aligned(extent_bytes(view));
      view.data = memory_.bytes().data() + at;
      // What other kernels left there may be anything.
      if (views == &request.inputs) fill(memory_.bytes().subspan(static_cast<size_t>(at), static_cast<size_t>(size)));
      at += size;
    }
  }
  return memory_.bytes().subspan(static_cast<size_t>(operand_bytes));
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

  int64_t scratch_bytes = 0;
  for (const auto& kernel : kernels) scratch_bytes = std::max(scratch_bytes, kernel.scratch_bytes);
  KernelRequest placed = request;
  const auto scratch = place(placed, scratch_bytes);
  const ParallelFor parallel_for(request.num_threads);

  std::vector<Best> best;
  const int64_t begin = clock_.monotonic_ns();
  int64_t undisturbed_ns = 0;
  const auto is_spent = [&](int64_t budget_ns) {
    return undisturbed_ns > budget_ns || clock_.monotonic_ns() - begin > budget_ns * kDisturbedFactor;
  };
  const auto run_once = [&](size_t k) {
    const Run once = run(kernels[k], placed, scratch, parallel_for);
    if (!once.disturbed) undisturbed_ns += once.ns;
    best[k].take(once.ns, once.disturbed);
  };
  for (size_t k = 0; k < kernels.size(); ++k) {
    best.emplace_back();
    for (int run = 0; run < kMaxFirstRuns && best[k].disturbed; ++run) run_once(k);
    if (is_spent(std::max(kFirstRunsBudgetNs, kFirstRunsOfUsual * best[0].ns))) break;
  }
  double limit = static_cast<double>(fastest_ns(best)) * (is_spent(kBudgetNs) ? kHopeless : kHopelessAtFirst);
  for (int round = 0; round < kMaxRounds; ++round) {
    if (round > 0 && is_spent(kBudgetNs)) break;
    for (size_t k = 0; k < best.size(); ++k) {
      // The usual one at least twice: its time is what others are compared with.
      if (static_cast<double>(best[k].ns) <= limit || (k == 0 && round == 0)) run_once(k);
    }
    limit = static_cast<double>(fastest_ns(best)) * kHopeless;
  }

  for (size_t k = 0; k < best.size(); ++k) {
    result.candidates.push_back({kernels[k].name, static_cast<double>(best[k].ns) / 1e3});
    if (best[k].disturbed) result.num_disturbed = 1;
  }
  result.chosen = fastest(result.candidates);
  return result;
}

}  // namespace tessera::executor
