#include "tessera/session/agree/agree_on_step.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/session/agree/gather_texts.h"

namespace tessera::session {
namespace {

constexpr const char* kComparingSteps = "comparing what the ranks give to a step";

// "rank 3 gives", "ranks 0, 2 give".
std::string givers_text(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {} gives", ranks[0]);
  constexpr size_t kNamed = 8;
  const size_t named = std::min(ranks.size(), kNamed);
  const auto text =
      fmt::format("ranks {}", fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(named), ", "));
  if (named == ranks.size()) return text + " give";
  return fmt::format("{} and {} more give", text, ranks.size() - named);
}

// "rank 0 gives f32[4,8]; ranks 1, 2 give f32[3,8]".
std::string all_givers_text(const comm::Communicator& group, const std::vector<std::string>& given) {
  std::vector<std::pair<std::string, std::vector<int>>> ranks_of;
  for (size_t i = 0; i < given.size(); ++i) {
    auto known = std::ranges::find_if(ranks_of, [&](const auto& entry) { return entry.first == given[i]; });
    if (known == ranks_of.end()) known = ranks_of.insert(ranks_of.end(), {given[i], {}});
    known->second.push_back(group.ranks()[i]);
  }
  std::string text;
  for (const auto& [what, ranks] : ranks_of) {
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", givers_text(ranks), what.empty() ? "nothing" : what);
  }
  return text;
}

}  // namespace

void agree_on_step(comm::Communicator& group, const std::string& step, const std::string& given,
                   std::span<int64_t> flags) {
  if (group.size() == 1) return;
  // The largest of the complements is the complement of the smallest.
  const auto hash = static_cast<int64_t>(hash_name(given));
  std::vector<int64_t> most = {hash, ~hash};
  most.insert(most.end(), flags.begin(), flags.end());
  group.all_reduce(most.data(), std::ssize(most), DType::kI64, comm::ReduceOp::kMax, kComparingSteps);
  std::copy(most.begin() + 2, most.end(), flags.begin());
  if (most[0] == ~most[1]) return;
  throw InvalidArgument(
      "{}: the ranks make it together, so each must give as many rows as the others, in the same columns: {}; leave "
      "out the short batch at the end of an epoch (drop_remainder), or give all ranks as many rows of it",
      step, all_givers_text(group, session::gather_texts(group, given, kComparingSteps)));
}

}  // namespace tessera::session
