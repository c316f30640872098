// What the ranks of two stages send each other of a value. Where the stages are of one kind, rank i of one has the same
// piece as rank i of the other; else each rank sends what the others need of what it has (mesh/exchange_plan.h).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/compiler/stages/staged_plan.h"
#include "tessera/mesh/exchange_plan.h"

namespace tessera::compiler {

// A value that passes from one stage to another, as the ranks of both have it.
struct StageMessage {
  Type type;  // global
  mesh::Layout from;
  mesh::Layout to;
  // Between stages of one kind: how far from a rank is the one that it sends all to that it has.
  std::optional<int> distance = std::nullopt;
  // Rows that are read where their table lies: each rank that has some of them sends those to each that wants any, of
  // all that it wants.
  bool is_of_each = false;
};
StageMessage message_between(const StagedPlan& plan, const ChunkMessage& message);
// A parameter, or what has been added up for it.
StageMessage message_between(const StagedPlan& plan, const std::string& value, int from, int to);

// The pairs of a rank that sends something of these values and one that receives it, ascending.
std::vector<std::pair<int, int>> pairs_of(const std::vector<StageMessage>& messages);
// The box of its local tensor that `from` sends to `to`, and the one of its own that `to` receives from `from`; nullopt
// where that is nothing.
std::optional<mesh::Box> sent_box(const StageMessage& message, int from, int to);
std::optional<mesh::Box> received_box(const StageMessage& message, int from, int to);

// Of the rank that sends or receives most of it.
int64_t busiest_bytes(const StageMessage& message);

}  // namespace tessera::compiler
