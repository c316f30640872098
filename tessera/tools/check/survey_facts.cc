#include "tessera/tools/check/survey_facts.h"

#include <algorithm>
#include <map>

#include "tessera/engine.h"

namespace tessera::tools {
namespace {

// Why one host does not reach another one: what a rank says that has sought a rank there, else one that has waited.
std::string why_unreachable(const std::vector<cluster::Gap>& gaps, const HostFacts& first, const HostFacts& second) {
  const auto is_of = [](const HostFacts& host, int rank) { return std::ranges::count(host.ranks, rank) > 0; };
  const cluster::Gap* found = nullptr;
  for (const cluster::Gap& gap : gaps) {
    const bool is_between =
        (is_of(first, gap.rank) && is_of(second, gap.peer)) || (is_of(second, gap.rank) && is_of(first, gap.peer));
    const bool has_sought = gap.rank > gap.peer;
    if (is_between && (found == nullptr || (has_sought && found->rank < found->peer))) found = &gap;
  }
  if (found == nullptr) return "";
  return found->rank > found->peer
             ? fmt::format("rank {} does not reach rank {} at {}: {}", found->rank, found->peer,
                           found->address.empty() ? "an address that it has not told" : found->address, found->why)
             : fmt::format("rank {} has waited for rank {} at {}: {}", found->rank, found->peer, found->address,
                           found->why);
}

}  // namespace

std::vector<HostFacts> by_host(const std::vector<std::string>& of_ranks) {
  std::vector<HostFacts> hosts;
  for (const auto& text : of_ranks) {
    if (text.empty()) continue;  // of a rank that has not come
    HostFacts one = parse_host(text);
    const auto known = std::ranges::find(hosts, one.id, &HostFacts::id);
    if (known == hosts.end()) {
      hosts.push_back(std::move(one));
    } else {
      known->ranks.insert(known->ranks.end(), one.ranks.begin(), one.ranks.end());
    }
  }
  return hosts;
}

void name_apart(std::vector<HostFacts>& hosts) {
  std::map<std::string, int> count;
  for (const HostFacts& host : hosts) ++count[host.name];
  for (HostFacts& host : hosts) {
    if (count[host.name] > 1) host.name += " at " + host.address;
  }
}

ClusterFacts facts_of_survey(const cluster::Survey& survey) {
  ClusterFacts facts{
      .transport = "shared memory and tls", .hosts = by_host(survey.words), .pairs = {}, .missing = survey.missing};
  for (size_t i = 0; i < facts.hosts.size(); ++i) {
    for (size_t j = i; j < facts.hosts.size(); ++j) {
      const std::string why = why_unreachable(survey.gaps, facts.hosts[i], facts.hosts[j]);
      if (i == j && why.empty()) continue;  // a host is a pair by itself only where its ranks do not meet there
      facts.pairs.push_back({.first = i, .second = j, .unreachable = why, .is_measured = false});
    }
  }
  name_apart(facts.hosts);
  return facts;
}

}  // namespace tessera::tools
