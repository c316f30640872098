#include "tessera/train/saving/hold_directory.h"

#include <fmt/format.h>

#include "tessera/checkpoint/lock/share_outcome.h"
#include "tessera/checkpoint/write/save_slices.h"
#include "tessera/train/core/lasting_job_id.h"
#include "tessera/train/saving/rank_barrier.h"

namespace tessera::train {
std::shared_ptr<checkpoint::DirectoryLock> hold_directory(cluster::Context& context, bool is_shared, bool recovers,
                                                          const std::string& directory) {
  FileSystem& files = context.file_system();
  cluster::Recovery* const recovery = recovers ? context.recovery() : nullptr;
  const auto lock = [&](const std::string& job) {
    const int64_t generation = recovery != nullptr ? static_cast<int64_t>(recovery->generation()) : 0;
    return std::make_shared<checkpoint::DirectoryLock>(files, directory, job, generation);
  };
  if (!is_shared) {
    if (context.size() == 1) return lock(recovery != nullptr ? lasting_job_id(*recovery) : context.job_id());
    const std::string job = context.job_id();
    return lock(job + fmt::format("{}rank {} alone", job.empty() ? "" : ", ", context.rank()));
  }
  RankBarrier barrier(context.world());
  std::string job = context.job_id();
  if (recovery != nullptr) job = barrier.exchange(context.rank() == 0 ? lasting_job_id(*recovery) : "")[0];
  const auto together = checkpoint::ranks_of_directory(files, barrier, directory);
  std::shared_ptr<checkpoint::DirectoryLock> held;
  checkpoint::run_together(barrier, "cannot save checkpoints", [&] {
    if (together.front() == context.rank()) held = lock(job);
    return std::string();
  });
  return held;
}

}  // namespace tessera::train
