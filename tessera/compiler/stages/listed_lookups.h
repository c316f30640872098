// In a job with parameter servers, rows that workers look up: a worker asks for those that its part of a batch names
// once each, and each of them is looked up once and sent once.
#pragma once

#include <cstdint>

#include "tessera/compiler/plan/plan.h"
#include "tessera/compiler/stages/stage_placement.h"
#include "tessera/compiler/stages/summed_lookups.h"

namespace tessera::compiler {

// Where ranks share memory, a worker reads rows where a server has looked them up. A row of no more bytes is faster
// looked up and read for each place than found among the others and put to its places, and no bytes travel that could
// be saved: benchmarks/servers_bench --pull_only, with --on_hosts and without.
inline constexpr int64_t kBytesOfSmallRowInMemory = 512;

struct ListedLookups {
  int num_workers = 1;  // which share the rows of a micro-batch
  int64_t small_row_bytes = kBytesOfSmallRow;
};

// The graph of a micro-batch that place_for_servers() has placed, in which servers look up the rows that list_rows
// makes of a lookup's numbers, by workers, and spread_rows puts them to the places of the batch. Left as they are: rows
// of small_row_bytes or less, tables of other than two dims, lookups whose numbers do not go with the rows of the
// batch, those that servers themselves read or that are a result, and those of a block that is recomputed.
ir::Graph list_lookups(const ir::Graph& micro, const ListedLookups& lookups);

// Whether a node of spread_rows is left to those who read its result, on other stages: its chunk sends them the rows
// once each and their places (session/messages/message_channel.h). `plan`: of its chunk's stage, whose ranks have all
// of both.
bool is_spread_on_arrival(const ir::Graph& micro, const Plan& plan, const StagePlacement& placement, ir::NodeId n);

// The lookup, a node of gather, whose rows such a node spreads, if nobody looks them up before they are sent: whoever
// wants them reads them where their table lies, on each server those that it has. ir::kNone: they are looked up, as
// where ranks do not reach each other's parameters, or something else reads the rows.
ir::NodeId find_lookup_in_place(const ir::Graph& micro, const Plan& plan, const StagePlacement& placement,
                                ir::NodeId spread);

}  // namespace tessera::compiler
