// What a job that goes on when it loses a rank calls itself in locks, the same in all its generations.
#pragma once

#include <string>

#include "tessera/cluster/recovery/recovery.h"

namespace tessera::train {

// The job's state of that name has a line for each training that saves, and one of the job itself.
inline constexpr const char* kSavedTrainings = "checkpoints";

// Draws it where the job has none: rank 0 asks first, which making a Model does, or a rank that trains alone.
std::string lasting_job_id(cluster::Recovery& recovery);
// "" where nobody has drawn it.
std::string find_lasting_job_id(cluster::Recovery& recovery);

}  // namespace tessera::train
