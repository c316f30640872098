// Keeps other jobs out of a directory that a training saves into.
#pragma once

#include <memory>
#include <string>

#include "tessera/checkpoint/lock/directory_lock.h"
#include "tessera/cluster/ranks/context.h"
#include "tessera/train/core/lasting_job_id.h"

namespace tessera::train {

// Takes the lock of the directory, which is made where it is missing, on the first of the ranks that see it; nullptr on
// the others. Callbacks of one training share it. `is_shared`: the ranks train together; then every rank calls it.
// Those that train alone would take each other's files for their own: each is a job of its own. `recovers`: the job
// goes on when it loses a rank, and has one name in all its generations. Throws as checkpoint::DirectoryLock.
std::shared_ptr<checkpoint::DirectoryLock> hold_directory(cluster::Context& context, bool is_shared, bool recovers,
                                                          const std::string& directory);

}  // namespace tessera::train
