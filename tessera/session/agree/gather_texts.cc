#include "tessera/session/agree/gather_texts.h"

#include <fmt/format.h>

#include <numeric>

namespace tessera::session {

std::vector<std::string> gather_texts(comm::Communicator& group, const std::string& mine, const std::string& who) {
  const auto n = static_cast<size_t>(group.size());
  std::vector<int64_t> sizes(n);
  const std::vector<int64_t> ones(n, 1);
  const auto own = static_cast<int64_t>(mine.size());
  group.all_gather(&own, sizes.data(), ones, DType::kI64, who);
  std::string all(static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})), '\0');
  group.all_gather(mine.data(), all.data(), sizes, DType::kU8, who);
  std::vector<std::string> result;
  size_t at = 0;
  for (const int64_t size : sizes) {
    result.push_back(all.substr(at, static_cast<size_t>(size)));
    at += static_cast<size_t>(size);
  }
  return result;
}

std::string first_text(comm::Communicator& group, const std::string& mine, const std::string& who) {
  int64_t any_has = mine.empty() ? 0 : 1;
  group.all_reduce(&any_has, 1, DType::kI64, comm::ReduceOp::kMax, who);
  if (any_has == 0) return "";
  const auto texts = gather_texts(group, mine, who);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].empty()) return fmt::format("rank {}: {}", group.ranks()[i], texts[i]);
  }
  return "";
}

}  // namespace tessera::session
