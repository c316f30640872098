#include "tessera/session/agree/rank_programs.h"

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/ops/registry/collective_def.h"

namespace tessera::session {
namespace {

// A transfer from one rank to another: both ends have the same text.
Communication transfer(const ir::Graph& graph, const ir::Node& node) {
  const auto& group = node.attributes.get_ints("ranks");
  int64_t from = group[static_cast<size_t>(node.attributes.get_int("rank_in_group"))];
  int64_t to = group[static_cast<size_t>(node.attributes.get_int("peer"))];
  if (ops::collective_of(node)->members == ops::CollectiveDef::Members::kReceiver) std::swap(from, to);
  return {.members = {from, to},
          .group = group,
          .what = fmt::format("transfer {}", graph.type(node.outputs[0])),
          .source = node.source};
}

std::string describe(const Communication& c) {
  return fmt::format("{} \"{}\" between ranks {}", c.what, c.source, fmt::join(c.members, ", "));
}

Ints parse_ranks(std::string_view text) {
  Ints ranks;
  for (const auto& part : split(text, ',')) ranks.push_back(parse_int(part, "a rank"));
  return ranks;
}

// The lists of all ranks, each read up to some place.
class Rehearsal {
 public:
  Rehearsal(const std::string& graph, const std::vector<std::vector<Communication>>& by_rank)
      : graph_(graph), by_rank_(by_rank), next_(by_rank.size()) {}

  void run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t rank = 0; rank < by_rank_.size(); ++rank) {
        while (has_next(rank) && happens(rank)) moved = true;
      }
    }
    for (size_t rank = 0; rank < by_rank_.size(); ++rank) {
      if (has_next(rank)) refuse(rank);
    }
  }

 private:
  bool has_next(size_t rank) const { return next_[rank] < by_rank_[rank].size(); }
  const Communication& next(size_t rank) const { return by_rank_[rank][next_[rank]]; }

  bool is_there(size_t rank, const Communication& wanted) const {
    return has_next(rank) && next(rank).members == wanted.members && next(rank).group == wanted.group &&
           next(rank).what == wanted.what;
  }

  // All members have come to the communication that this rank is at: they go on.
  bool happens(size_t rank) {
    const Communication& wanted = next(rank);
    for (const int64_t member : wanted.members) {
      if (!is_there(static_cast<size_t>(member), wanted)) return false;
    }
    for (const int64_t member : wanted.members) ++next_[static_cast<size_t>(member)];
    return true;
  }

  [[noreturn]] void refuse(size_t rank) const {
    const Communication& wanted = next(rank);
    size_t other = rank;
    for (const int64_t member : wanted.members) {
      if (!is_there(static_cast<size_t>(member), wanted)) {
        other = static_cast<size_t>(member);
        break;
      }
    }
    throw InvalidArgument(
        "graph {}: rank {} comes to {}, but rank {} {}; the ranks of a group must call the same collectives in one "
        "order",
        graph_, rank, describe(wanted), other,
        has_next(other) ? "comes to " + describe(next(other)) : std::string("has no more of them"));
  }

  const std::string& graph_;
  const std::vector<std::vector<Communication>>& by_rank_;
  std::vector<size_t> next_;
};

}  // namespace

std::vector<Communication> communications(const ir::Graph& local) {
  std::map<int64_t, Communication> by_order;
  for (ir::NodeId n = 0; n < local.num_nodes(); ++n) {
    const ir::Node& node = local.node(n);
    const auto* collective = ops::collective_of(node);
    if (collective == nullptr) continue;
    auto& entry = by_order[node.attributes.get_int("order")];
    if (collective->is_transfer()) {
      entry = transfer(local, node);
      continue;
    }
    entry.members = entry.group = node.attributes.get_ints("ranks");
    entry.what += (entry.what.empty() ? node.op : ",") + " " + collective->agreement(ops::call_of(local, node));
    if (entry.source.empty()) entry.source = node.source;
  }
  std::vector<Communication> list;
  for (auto& [order, entry] : by_order) {
    if (entry.members.size() > 1) list.push_back(std::move(entry));
  }
  return list;
}

std::string to_text(const std::vector<Communication>& list) {
  std::string text;
  for (const auto& c : list) {
    text += fmt::format("{}\t{}\t{}\t{}\n", fmt::join(c.members, ","), fmt::join(c.group, ","), c.what, c.source);
  }
  return text;
}

std::vector<Communication> parse_communications(std::string_view text) {
  std::vector<Communication> list;
  for (const auto& line : split(text, '\n')) {
    if (line.empty()) continue;
    const auto fields = split(line, '\t');
    check_equal(fields.size(), size_t{4}, "fields of a communication");
    list.push_back({parse_ranks(fields[0]), parse_ranks(fields[1]), std::string(fields[2]), std::string(fields[3])});
  }
  return list;
}

void require_matching(const std::string& graph, const std::vector<std::vector<Communication>>& by_rank) {
  Rehearsal(graph, by_rank).run();
}

compiler::GroupLists groups_of(const std::vector<std::vector<Communication>>& by_rank) {
  compiler::GroupLists groups;
  for (const auto& list : by_rank) {
    for (const auto& c : list) groups.insert(std::vector<int>(c.group.begin(), c.group.end()));
  }
  return groups;
}

}  // namespace tessera::session
