#include "tessera/kernels/cuda/indexing/sorted_rows.h"

#include <algorithm>

#include "tessera/kernels/cuda/core/writer.h"

namespace tessera::cuda {

int64_t bytes_of_sorted_rows(int64_t count) { return 2 * count * static_cast<int64_t>(sizeof(int32_t)); }

std::string sorted_rows_text(int64_t count, bool is_const) {
  return fmt::format(
      "{0}int* const sorted = reinterpret_cast<{0}int*>(scratch);\n{0}int* const positions = sorted + {1};\n",
      is_const ? "const " : "", count);
}

// Each index counts those that come before it. One warp looks for one place.
PhasePart sort_part(const Gpu& gpu, const std::string& operand, const TensorView& indices, int64_t num_rows) {
  const int64_t count = indices.num_elements();
  const int64_t warps = kPartThreads / 32;
  const std::vector<NamedStrides> views = {{"p", indices.strides}};
  PhasePart part{.blocks = std::min<int64_t>((count + warps - 1) / warps, int64_t{gpu.num_multiprocessors()} * 8)};
  part.body = sorted_rows_text(count, /*is_const=*/false) +
              fmt::format(
                  "const auto row_at = [&](int at) {{\n{1}const i64 row = i64({4}[p]);\n"
                  "return row >= 0 && row < {2} ? int(row) : -1;\n}};\n"
                  "const int lane = threadIdx.x % 32;\n"
                  "for (int i = block * {3} + int(threadIdx.x) / 32; i < {0}; i += num_blocks * {3}) {{\n"
                  "  const int row = row_at(i);\n  int before = 0;\n"
                  "  #pragma unroll 4\n"
                  "  for (int j = lane; j < {0}; j += 32) {{\n"
                  "    const int other = row_at(j);\n"
                  "    before += other < row || (other == row && j < i);\n  }}\n"
                  "  before = sum_warp(before);\n"
                  "  if (lane == 0) {{ sorted[before] = row; positions[before] = i; }}\n}}\n",
                  count, offsets_text(indices.shape, views, "at"), num_rows, warps, operand);
  return part;
}

}  // namespace tessera::cuda
