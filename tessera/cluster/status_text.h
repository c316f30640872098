// What a scheduler knows of its job, for people and for programs.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/cluster/rendezvous/messages/messages.h"

namespace tessera::cluster {

// Prints a line about the job, then a table with a line for each node, by rank. Text of peers is escaped.
std::string status_text(const rendezvous::JobStatus& status, uint64_t generation);
// Prints one JSON object with the same: phase, generation, workers, missing, up_s, reason, states {name: bytes}, nodes
// [{node_id, state, rank (null before it has one), host, started, heard_s_ago, step}].
std::string status_json(const rendezvous::JobStatus& status, uint64_t generation);

// What follows on `tessera cluster resize ADDRESS NUM_RANKS`, in two lines, by what the job was before and is now: what
// was asked for, what the job does, and when.
std::string resize_text(const rendezvous::JobStatus& before, const rendezvous::JobStatus& after, int num_ranks,
                        const std::string& address);

}  // namespace tessera::cluster
