// Programs that ranks wrote each for itself, in their own shapes, with collectives in them (hybrid parallel): do they
// fit together? Pure functions on the lists of all ranks, so that every rank finds the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/compiler/partition/partition.h"
#include "tessera/ir/graph.h"

namespace tessera::session {

// A Communication is one communication of a rank. All all_reduces of a bucket are one.
struct Communication {
  std::vector<int64_t> members;  // the world ranks that take part, in the order of the group
  std::vector<int64_t> group;    // the group in which they do: more ranks where one sends to another
  std::string what;              // what the members must agree on: "all_reduce sum f32[4,8]"
  std::string source;            // where the node comes from
  bool operator==(const Communication&) const = default;
};

// They are in the order in which this rank comes to them.
std::vector<Communication> communications(const ir::Graph& local);

std::string to_text(const std::vector<Communication>& list);
// Throws InternalError for a text that to_text() did not write.
std::vector<Communication> parse_communications(std::string_view text);

// Runs the lists against each other as the ranks would: a communication happens when all its members have come to it.
// Throws InvalidArgument naming the graph and the first two ranks that do not agree, or that wait for each other.
void require_matching(const std::string& graph, const std::vector<std::vector<Communication>>& by_rank);

// The groups of all ranks.
compiler::GroupLists groups_of(const std::vector<std::vector<Communication>>& by_rank);

}  // namespace tessera::session
