// Keeps other jobs out of a directory that a training saves into.
#pragma once

#include <memory>
#include <string>

#include "tessera/checkpoint/lock/directory_lock.h"
#include "tessera/cluster/ranks/context.h"
#include "tessera/train/core/lasting_job_id.h"

namespace tessera::train {

struct HeldDirectory {
  std::string path;
  bool is_shared = false;  // the ranks train together; else each of several is a job of its own
  bool recovers = false;   // the job goes on when it loses a rank, and has one name in all its generations
};

// Takes the lock of the directory, which is made where it is missing, on the first of the ranks that see it; nullptr on
// the others. Callbacks of one training share it. Where the ranks train together every rank calls it. Those that train
// alone would take each other's files for their own. Throws as checkpoint::DirectoryLock.
std::shared_ptr<checkpoint::DirectoryLock> hold_directory(cluster::Context& context, const HeldDirectory& directory);
// Lets go of it when the training has ended. Where it ends by the exception that is being handled because the process
// begins anew for the job's next generation, the lock stays with the process until it is taken there.
void let_go_of_directory(cluster::Context& context, const HeldDirectory& directory,
                         std::shared_ptr<checkpoint::DirectoryLock>& lock);

}  // namespace tessera::train
