// What each rank has to say, told to all.
#pragma once

#include <string>
#include <vector>

#include "tessera/comm/communicator.h"

namespace tessera::session {

// The texts of the group's ranks, in its order. Every rank of the group calls it; `who` is named in errors.
std::vector<std::string> gather_texts(comm::Communicator& group, const std::string& mine, const std::string& who);

// Of those ranks of the group that have something to say the first one's text, as "rank 2: ..." by its rank in the job;
// "" where none has. Every rank of the group calls it, and one number is all that travels where none has.
std::string first_text(comm::Communicator& group, const std::string& mine, const std::string& who);

}  // namespace tessera::session
