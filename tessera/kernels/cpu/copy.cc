#include "tessera/kernels/cpu/copy.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>

namespace tessera::kernels::cpu {
namespace {

// A transpose goes through memory in pieces of this many elements of the operand's neighbours and of the result's: both
// sides are then read and written in runs of cache lines, and the pages that are open at a time are few.
constexpr int64_t kAcross = 16;
constexpr int64_t kInner = 64;
constexpr int64_t kGrainBytes = 65536;

struct Copy {
  DimCounter outer;
  // The dim along which the result's elements lie densest, and, in a transpose, the one along which the operand's do.
  MergedDim inner, across;
  int64_t item_bytes = 1;  // what one combination of the outer dims copies
};

// to[a * to_stride + i] = from[i * from_stride + a] for i, a < 4, with what every x86-64 has.
void transpose_4x4(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
  const auto load = [&](int64_t i) { return _mm_loadu_ps(reinterpret_cast<const float*>(from + i * from_stride)); };
  __m128 row0 = load(0);
  __m128 row1 = load(1);
  __m128 row2 = load(2);
  __m128 row3 = load(3);
  _MM_TRANSPOSE4_PS(row0, row1, row2, row3);
  const auto store = [&](int64_t a, __m128 row) { _mm_storeu_ps(reinterpret_cast<float*>(to + a * to_stride), row); };
  store(0, row0);
  store(1, row1);
  store(2, row2);
  store(3, row3);
}

// A piece of a transpose, through a buffer in the first-level cache: read along `across`, written along `inner`.
// Strides: [0] of the operand, [1] of the result.
template <typename Bits>
void copy_piece(const Bits* from, Bits* to, const MergedDim& across, const MergedDim& inner, int64_t a_end,
                int64_t i_end) {
  if (a_end < kAcross || i_end < kInner || across.strides[0] != 1 || inner.strides[1] != 1) {
    for (int64_t a = 0; a < a_end; ++a) {
      const Bits* source = from + a * across.strides[0];
      Bits* target = to + a * across.strides[1];
      for (int64_t i = 0; i < i_end; ++i) target[i * inner.strides[1]] = source[i * inner.strides[0]];
    }
    return;
  }
  // No prefetcher sees these patterns coming: ask for the lines of this piece's result and of the next one's operand.
  for (int64_t a = 0; a < kAcross; ++a) {
    const auto* line = reinterpret_cast<const std::byte*>(to + a * across.strides[1]);
    for (size_t at = 0; at < kInner * sizeof(Bits); at += 64) __builtin_prefetch(line + at, 1, 2);
  }
  for (int64_t i = 0; i < kInner; ++i) __builtin_prefetch(from + i * inner.strides[0] + kAcross, 0, 2);
  alignas(64) Bits buffer[kAcross][kInner];
  if constexpr (sizeof(Bits) == 4) {
    for (int64_t i = 0; i < kInner; i += 4) {
      for (int64_t a = 0; a < kAcross; a += 4) {
        transpose_4x4(from + i * inner.strides[0] + a, inner.strides[0], &buffer[a][i], kInner);
      }
    }
  } else {
    for (int64_t i = 0; i < kInner; ++i) {
      const Bits* source = from + i * inner.strides[0];
      for (int64_t a = 0; a < kAcross; ++a) buffer[a][i] = source[a];
    }
  }
  for (int64_t a = 0; a < kAcross; ++a) std::memcpy(to + a * across.strides[1], buffer[a], sizeof buffer[a]);
}

template <typename Bits>
void copy_item(const Copy& copy, const Bits* from, Bits* to) {
  const MergedDim& inner = copy.inner;
  const MergedDim& across = copy.across;
  if (inner.strides[0] == 1 && inner.strides[1] == 1) {
    for (int64_t a = 0; a < across.size; ++a) {
      std::memcpy(to + a * across.strides[1], from + a * across.strides[0],
                  static_cast<size_t>(inner.size) * sizeof(Bits));
    }
    return;
  }
  for (int64_t i = 0; i < inner.size; i += kInner) {
    for (int64_t a = 0; a < across.size; a += kAcross) {
      copy_piece(from + a * across.strides[0] + i * inner.strides[0], to + a * across.strides[1] + i * inner.strides[1],
                 across, inner, std::min(kAcross, across.size - a), std::min(kInner, inner.size - i));
    }
  }
}

template <typename Bits>
void run(const Copy& copy, const KernelArgs& args) {
  const auto* from = static_cast<const Bits*>(args.inputs[0].data);
  auto* to = static_cast<Bits*>(args.outputs[0].data);
  if (copy.outer.count() == 1 && copy.across.size > 1) {
    // One matrix: its lines are shared out, in whole blocks.
    const int64_t lines = (copy.across.size + kAcross - 1) / kAcross;
    const int64_t line_bytes = std::max<int64_t>(1, copy.item_bytes / lines);
    args.parallel_for(lines, std::max<int64_t>(1, kGrainBytes / line_bytes), [&](int64_t begin, int64_t end) {
      Copy part = copy;
      part.across.size = std::min(end * kAcross, copy.across.size) - begin * kAcross;
      copy_item(part, from + begin * kAcross * copy.across.strides[0], to + begin * kAcross * copy.across.strides[1]);
    });
    return;
  }
  if (copy.outer.count() == 1) {
    args.parallel_for(copy.inner.size, kGrainBytes / static_cast<int64_t>(sizeof(Bits)),
                      [&](int64_t begin, int64_t end) {
                        Copy part = copy;
                        part.inner.size = end - begin;
                        copy_item(part, from + begin * copy.inner.strides[0], to + begin * copy.inner.strides[1]);
                      });
    return;
  }
  args.parallel_for(copy.outer.count(), std::max<int64_t>(1, kGrainBytes / copy.item_bytes),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t item = begin; item < end; ++item) {
                        copy_item(copy, from + copy.outer.offset(item, 0), to + copy.outer.offset(item, 1));
                      }
                    });
}

}  // namespace

std::optional<PreparedKernel> prepare_copy(const TensorView& from, const TensorView& to, const std::string& name) {
  if (from.dtype != to.dtype) return std::nullopt;
  if (to.num_elements() == 0) return PreparedKernel{.name = name, .run = [](const KernelArgs&) {}};
  const auto strides = broadcast_strides(from, to.shape);
  if (!strides) return std::nullopt;
  auto dims = merge_dims(to.shape, {*strides, to.strides}, 1);
  if (!dims) return std::nullopt;
  Copy copy;
  copy.inner = dims->back();
  dims->pop_back();
  // Across: the dim along which the operand lies densest (a transpose), or just the next one.
  size_t across = dims->size();
  for (size_t d = dims->size(); d-- > 0;) {
    const int64_t stride = (*dims)[d].strides[0];
    if (across == dims->size() || (copy.inner.strides[0] != 1 && stride == 1)) across = d;
  }
  if (across < dims->size()) {
    copy.across = (*dims)[across];
    dims->erase(dims->begin() + static_cast<std::ptrdiff_t>(across));
  }
  for (const MergedDim& dim : *dims) copy.outer.add(dim);
  copy.item_bytes = copy.inner.size * copy.across.size * static_cast<int64_t>(size_bytes(to.dtype));
  PreparedKernel kernel{.name = name};
  const auto shared = std::make_shared<const Copy>(std::move(copy));
  switch (size_bytes(to.dtype)) {
    case 1: kernel.run = [shared](const KernelArgs& args) { run<uint8_t>(*shared, args); }; break;
    case 2: kernel.run = [shared](const KernelArgs& args) { run<uint16_t>(*shared, args); }; break;
    case 4: kernel.run = [shared](const KernelArgs& args) { run<uint32_t>(*shared, args); }; break;
    default: kernel.run = [shared](const KernelArgs& args) { run<uint64_t>(*shared, args); }; break;
  }
  return kernel;
}

}  // namespace tessera::kernels::cpu
