#include "tessera/checkpoint/convert/tilings.h"

#include <algorithm>

namespace tessera::checkpoint {

std::vector<std::vector<size_t>> tilings_of(std::span<const Region> regions, const Region& wanted) {
  std::vector<std::vector<size_t>> tilings;
  const auto fits = [&](const std::vector<size_t>& tiling, size_t region) {
    return std::none_of(tiling.begin(), tiling.end(), [&](size_t other) {
      return other == region || intersection(regions[other], regions[region]).has_value();
    });
  };
  for (size_t region = 0; region < regions.size(); ++region) {
    const auto it =
        std::find_if(tilings.begin(), tilings.end(), [&](const auto& tiling) { return fits(tiling, region); });
    if (it == tilings.end()) {
      tilings.push_back({region});
    } else {
      it->push_back(region);
    }
  }
  for (auto& tiling : tilings) {
    for (size_t region = 0; region < regions.size() && tilings.size() > 1; ++region) {
      if (fits(tiling, region)) tiling.push_back(region);
    }
    int64_t covered = 0;
    for (const size_t region : tiling) {
      const auto common = intersection(regions[region], wanted);
      covered += common ? common->shape.num_elements() : 0;
    }
    if (covered != wanted.shape.num_elements()) return {};
  }
  return tilings;
}

}  // namespace tessera::checkpoint
