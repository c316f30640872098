#include "tessera/session/agree/compare_collectives.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/random.h"
#include "tessera/base/strings.h"
#include "tessera/compiler/verify/communication.h"

namespace tessera::session {
namespace {

// One rank's share in one group, as all ranks hear of it.
struct Share {
  int rank = 0;
  int64_t num_members = 0;
  int64_t hash = 0;
};

std::string text_of(const std::vector<compiler::Collective>& list) {
  std::string text;
  for (const auto& collective : list) text += collective.text + "\n";
  return text;
}

int64_t hash_of(const std::string& text) { return static_cast<int64_t>(hash_name(text)); }

std::string name_of(const std::vector<int>& group) { return fmt::format("[{}]", fmt::join(group, ",")); }

// The shares of all ranks, by the hash of their group's name.
std::map<int64_t, std::vector<Share>> all_shares(cluster::Context& context, const compiler::GroupTraffic& traffic,
                                                 const std::string& who) {
  std::vector<int64_t> own;
  for (const auto& [group, list] : traffic) {
    own.insert(own.end(), {hash_of(name_of(group)), static_cast<int64_t>(group.size()), hash_of(text_of(list))});
  }
  const auto own_count = static_cast<int64_t>(own.size());
  std::vector<int64_t> counts(static_cast<size_t>(context.size()));
  const std::vector<int64_t> ones(counts.size(), 1);
  context.world().all_gather(&own_count, counts.data(), ones, DType::kI64, who);
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  std::vector<int64_t> all(static_cast<size_t>(total));
  context.world().all_gather(own.data(), all.data(), counts, DType::kI64, who);
  std::map<int64_t, std::vector<Share>> shares;
  auto next = all.begin();
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    for (int64_t i = 0; i < counts[rank]; i += 3, next += 3) {
      shares[next[0]].push_back({static_cast<int>(rank), next[1], next[2]});
    }
  }
  return shares;
}

std::string broadcast(cluster::Context& context, std::string text, int root, const std::string& who) {
  auto size = static_cast<int64_t>(text.size());
  context.world().broadcast(&size, 1, DType::kI64, root, who);
  text.resize(static_cast<size_t>(size));
  context.world().broadcast(text.data(), size, DType::kU8, root, who);
  return text;
}

std::string line_at(const std::vector<std::string_view>& lines, size_t i) {
  return i < lines.size() && !lines[i].empty() ? std::string(lines[i]) : "nothing";
}

}  // namespace

void compare_collectives(cluster::Context& context, const ir::Graph& local) {
  const auto traffic = compiler::group_traffic(local);
  // Ranks that compile graphs of two kinds, one to train and one to evaluate, hear of these.
  const auto who = fmt::format("comparing the collectives of {}", local.name());
  for (const auto& [key, shares] : all_shares(context, traffic, who)) {
    const Share& first = shares[0];
    const auto odd = std::find_if(shares.begin(), shares.end(), [&](const Share& s) { return s.hash != first.hash; });
    if (odd == shares.end() && static_cast<int64_t>(shares.size()) == first.num_members) continue;
    // All ranks have found this. Those that know more tell the others.
    std::string group;
    std::string text;
    for (const auto& [ranks, list] : traffic) {
      if (hash_of(name_of(ranks)) != key) continue;
      group = fmt::format("{}", fmt::join(ranks, ","));
      text = text_of(list);
    }
    group = broadcast(context, group, first.rank, who);
    const auto expected_text = broadcast(context, text, first.rank, who);
    int other = odd == shares.end() ? -1 : odd->rank;
    std::string other_text;
    if (other >= 0) {
      other_text = broadcast(context, text, other, who);
    } else {
      for (const auto member : split(group, ',')) {
        const auto rank = static_cast<int>(parse_int(member, "rank"));
        if (std::none_of(shares.begin(), shares.end(), [&](const Share& s) { return s.rank == rank; })) other = rank;
      }
    }
    const auto expected = split(expected_text, '\n');
    const auto found = split(other_text, '\n');
    size_t i = 0;
    while (i < expected.size() && line_at(expected, i) == line_at(found, i)) ++i;
    throw InvalidArgument(
        "rank {} would communicate in another order than rank {} in graph {}: the ranks do not run the same program; "
        "in group [{}] it does {} where rank {} does {}",
        other, first.rank, local.name(), group, line_at(found, i), first.rank, line_at(expected, i));
  }
}

namespace {

// The line, which a constant may make very long, where it differs from the other one.
std::string excerpt(const std::string& line, const std::string& other) {
  constexpr size_t kShown = 200;
  constexpr size_t kBefore = 80;
  if (line.size() <= kShown) return line;
  size_t at = 0;
  while (at < line.size() && at < other.size() && line[at] == other[at]) ++at;
  const size_t begin = at > kBefore ? at - kBefore : 0;
  return fmt::format("{}{}{}", begin > 0 ? "..." : "", line.substr(begin, kShown),
                     begin + kShown < line.size() ? "..." : "");
}

}  // namespace

void warn_of_different_graphs(cluster::Context& context, const ir::Graph& logical) {
  const auto who = fmt::format("comparing the graphs {}", logical.name());
  const auto text = ir::print(logical);
  const int64_t hash = hash_of(text);
  std::vector<int64_t> hashes(static_cast<size_t>(context.size()));
  const std::vector<int64_t> ones(hashes.size(), 1);
  context.world().all_gather(&hash, hashes.data(), ones, DType::kI64, who);
  const auto odd = std::find_if(hashes.begin(), hashes.end(), [&](int64_t other) { return other != hashes[0]; });
  if (odd == hashes.end()) return;
  const auto rank = static_cast<int>(odd - hashes.begin());
  const auto other_text = broadcast(context, text, rank, who);
  if (context.rank() != 0) return;
  const auto own = split(text, '\n');
  const auto other = split(other_text, '\n');
  size_t i = 0;
  while (i < own.size() && line_at(own, i) == line_at(other, i)) ++i;
  log_warning(
      "rank {}'s graph {} is not rank 0's: the ranks do not train the same network in the same way; rank {} has {} "
      "where rank 0 has {}",
      rank, logical.name(), rank, excerpt(line_at(other, i), line_at(own, i)),
      excerpt(line_at(own, i), line_at(other, i)));
}

}  // namespace tessera::session
