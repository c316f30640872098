// What a scheduler knows of its job, on the job's board.
#pragma once

#include <functional>
#include <string>

#include "tessera/cluster/dashboard/job_board.h"
#include "tessera/cluster/rendezvous/messages/messages.h"

namespace tessera::cluster {

// Writes the status on the board. `figures_of`: what a node has told last of its training, as it came; what is no
// figures is passed over.
void show_status(JobBoard& board, const rendezvous::JobStatus& status,
                 const std::function<std::string(const std::string& node_id)>& figures_of);

}  // namespace tessera::cluster
