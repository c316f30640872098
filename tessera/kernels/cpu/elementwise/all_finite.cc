// all_finite over memory without gaps: a number is finite unless all bits of its exponent are set.
#include <algorithm>
#include <cstdint>

#include "tessera/kernels/cpu/registry/families.h"

namespace tessera::kernels::cpu {
namespace {

constexpr int64_t kGrain = 1 << 16;

// Without an early end, so that it becomes vector code; infinities are rare.
template <typename Bits>
bool all_finite(const void* data, int64_t begin, int64_t end, Bits exponent) {
  const Bits* bits = static_cast<const Bits*>(data);
  Bits found = 0;
  for (int64_t i = begin; i < end; ++i) found |= static_cast<Bits>((bits[i] & exponent) == exponent);
  return found == 0;
}

bool all_finite(const TensorView& x, int64_t begin, int64_t end) {
  switch (x.dtype) {
    case DType::kBF16: return all_finite<uint16_t>(x.data, begin, end, 0x7F80);
    case DType::kF16: return all_finite<uint16_t>(x.data, begin, end, 0x7C00);
    default: return all_finite<uint32_t>(x.data, begin, end, 0x7F800000);
  }
}

std::optional<PreparedKernel> prepare(const KernelRequest& request) {
  const TensorView& x = request.inputs[0];
  const bool is_known = x.dtype == DType::kF32 || x.dtype == DType::kBF16 || x.dtype == DType::kF16;
  const bool has_no_gaps = is_dense(x.shape, x.strides) || is_channels_last(x.shape, x.strides);
  if (!is_known || !has_no_gaps) return std::nullopt;
  PreparedKernel kernel{.name = "cpu.all_finite", .scratch_bytes = request.num_threads};
  kernel.run = [](const KernelArgs& args) {
    const TensorView& view = args.inputs[0];
    bool* parts = reinterpret_cast<bool*>(args.scratch.data());
    const int64_t n = view.num_elements();
    std::fill_n(parts, args.scratch.size(), true);
    args.parallel_for.with_parts(
        n, kGrain, [&](int64_t begin, int64_t end, int part) { parts[part] = all_finite(view, begin, end); });
    *args.outputs[0].as<bool>() = std::all_of(parts, parts + args.scratch.size(), [](bool finite) { return finite; });
  };
  return kernel;
}

}  // namespace

void add_all_finite(KernelRegistry& registry) { registry.add("all_finite", prepare); }

}  // namespace tessera::kernels::cpu
