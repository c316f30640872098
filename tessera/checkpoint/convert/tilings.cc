#include "tessera/checkpoint/convert/tilings.h"

#include <algorithm>

namespace tessera::checkpoint {

std::vector<std::vector<size_t>> tilings_of(std::span<const Box> boxes, const Box& wanted) {
  std::vector<std::vector<size_t>> tilings;
  const auto fits = [&](const std::vector<size_t>& tiling, size_t box) {
    return std::none_of(tiling.begin(), tiling.end(), [&](size_t other) {
      return other == box || intersection(boxes[other], boxes[box]).has_value();
    });
  };
  for (size_t box = 0; box < boxes.size(); ++box) {
    const auto it = std::find_if(tilings.begin(), tilings.end(), [&](const auto& tiling) { return fits(tiling, box); });
    if (it == tilings.end()) {
      tilings.push_back({box});
    } else {
      it->push_back(box);
    }
  }
  for (auto& tiling : tilings) {
    for (size_t box = 0; box < boxes.size() && tilings.size() > 1; ++box) {
      if (fits(tiling, box)) tiling.push_back(box);
    }
    int64_t covered = 0;
    for (const size_t box : tiling) {
      const auto common = intersection(boxes[box], wanted);
      covered += common ? common->shape.num_elements() : 0;
    }
    if (covered != wanted.shape.num_elements()) return {};
  }
  return tilings;
}

}  // namespace tessera::checkpoint
