// What is said while a call waits long for ranks that have not come to it: who they are, and what they do meanwhile.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tessera/comm/job_state.h"

namespace tessera::cluster {

// How long a rank that waits for others also waits for their answers, what they do meanwhile.
inline constexpr int64_t kAnswerLimitMs = 500;

// What a rank of this process does, for one that waits in `place`: "" where it waits there, too; else "it waits in
// barrier "epoch" #3 of group "pair"", "it computes: step 17, matmul "fc", made by model.py:41", whatever is known.
std::string doing_of(const comm::JobState& job, int rank, const std::string& place);

// Logs, as a warning, whom `wait` is for. `doing` is what the other ranks of the call do, as doing_of has it; a rank
// that it lacks was not heard in time. Of the ranks that wait there the first one speaks for all.
void report_late(const comm::LongWait& wait, int job_size, const std::map<int, std::string>& doing);

}  // namespace tessera::cluster
