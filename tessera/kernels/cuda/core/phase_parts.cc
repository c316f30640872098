#include "tessera/kernels/cuda/core/phase_parts.h"

#include "tessera/base/error.h"

namespace tessera::cuda {

std::string deal_text(const std::string& index_type, const std::string& index, int64_t count) {
  return fmt::format(
      "for ({0} {1} = {0}(block) * {2} + {0}(threadIdx.x); {1} < {3}; {1} += {0}(num_blocks) * {2}) {{\n", index_type,
      index, kPartThreads, count);
}

ProgramPhase side_by_side(const std::vector<PhasePart>& parts) {
  check(!parts.empty(), "a phase has work");
  ProgramPhase phase{.blocks = 0, .threads = kPartThreads};
  for (const PhasePart& part : parts) {
    const int64_t first = phase.blocks;
    phase.blocks += part.blocks;
    if (parts.size() > 1) phase.body += fmt::format("{}if (blockIdx.x < {}) ", first > 0 ? "else " : "", phase.blocks);
    phase.body += fmt::format("{{\nconst int block = int(blockIdx.x) - {};\nconstexpr int num_blocks = {};\n{}}}\n",
                              first, part.blocks, part.body);
  }
  return phase;
}

}  // namespace tessera::cuda
