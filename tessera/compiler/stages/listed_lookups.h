// In a job with parameter servers, rows that workers look up: a worker asks for those that its part of a batch names
// once each, and each of them is looked up once and sent once.
#pragma once

#include "tessera/compiler/plan/plan.h"
#include "tessera/compiler/stages/stage_placement.h"

namespace tessera::compiler {

// The graph of a micro-batch that place_for_servers() has placed, in which servers look up the rows that list_rows
// makes of a lookup's numbers, by workers, and spread_rows puts them to the places of the batch. Left as they are: rows
// of kBytesOfSmallRow or less, tables of other than two dims, lookups whose numbers do not go with the rows of the
// batch, those that servers themselves read or that are a result, and those of a block that is recomputed.
ir::Graph list_lookups(const ir::Graph& micro, int num_workers);

// Whether a node of spread_rows is left to those who read its result, on other stages: its chunk sends them the rows
// once each and their places (session/message_channel.h). `plan`: of its chunk's stage, whose ranks have all of both.
bool is_spread_on_arrival(const ir::Graph& micro, const Plan& plan, const StagePlacement& placement, ir::NodeId n);

}  // namespace tessera::compiler
