#include "tessera/train/rank_barrier.h"

#include <numeric>

namespace tessera::train {

std::vector<std::string> RankBarrier::exchange(const std::string& mine) {
  const auto n = static_cast<size_t>(size());
  std::vector<int64_t> sizes(n);
  const std::vector<int64_t> ones(n, 1);
  const auto own = static_cast<int64_t>(mine.size());
  group_.all_gather(&own, sizes.data(), ones, DType::kI64, "checkpoint");
  std::string all(static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})), '\0');
  group_.all_gather(mine.data(), all.data(), sizes, DType::kU8, "checkpoint");
  std::vector<std::string> result;
  size_t at = 0;
  for (const int64_t size : sizes) {
    result.push_back(all.substr(at, static_cast<size_t>(size)));
    at += static_cast<size_t>(size);
  }
  return result;
}

}  // namespace tessera::train
