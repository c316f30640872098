#include "tessera/train/saving/hold_directory.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "tessera/checkpoint/lock/handed_on_lock.h"
#include "tessera/checkpoint/lock/share_outcome.h"
#include "tessera/checkpoint/write/save_slices.h"
#include "tessera/cluster/recovery/end_of_generation.h"
#include "tessera/train/core/lasting_job_id.h"
#include "tessera/train/saving/rank_barrier.h"

namespace tessera::train {
namespace {

// Whether the exception that is being handled ends the generation of this rank, which begins anew then.
bool begins_anew(const cluster::Recovery& recovery) {
  const std::exception_ptr error = std::current_exception();
  if (!error) return false;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return cluster::is_end_of_generation(recovery, known);
  } catch (...) {
    return false;
  }
}

}  // namespace

std::shared_ptr<checkpoint::DirectoryLock> hold_directory(cluster::Context& context, const HeldDirectory& directory) {
  FileSystem& files = context.file_system();
  cluster::Recovery* const recovery = directory.recovers ? context.recovery() : nullptr;
  const auto lock = [&](const std::string& job) {
    const int64_t generation = recovery != nullptr ? static_cast<int64_t>(recovery->generation()) : 0;
    return std::make_shared<checkpoint::DirectoryLock>(files, directory.path, job, generation);
  };
  if (!directory.is_shared) {
    if (context.size() == 1) return lock(recovery != nullptr ? lasting_job_id(*recovery) : context.job_id());
    const std::string job = context.job_id();
    return lock(job + fmt::format("{}rank {} alone", job.empty() ? "" : ", ", context.rank()));
  }
  RankBarrier barrier(context.world());
  std::string job = context.job_id();
  if (recovery != nullptr) job = barrier.exchange(context.rank() == 0 ? lasting_job_id(*recovery) : "")[0];
  const auto together = checkpoint::ranks_of_directory(files, barrier, directory.path);
  const bool is_first = together.front() == context.rank();
  if (recovery != nullptr && recovery->generation() > 1) {
    // Where a rank that has been taken in comes first now, the one before takes what it has kept, and lets go of it.
    checkpoint::run_together(barrier, "cannot save checkpoints", [&] {
      const auto path = checkpoint::directory_lock_path(directory.path);
      if (!is_first && checkpoint::is_lock_handed_on(path)) lock(job);
      return std::string();
    });
  }
  std::shared_ptr<checkpoint::DirectoryLock> held;
  checkpoint::run_together(barrier, "cannot save checkpoints", [&] {
    if (is_first) held = lock(job);
    return std::string();
  });
  return held;
}

void let_go_of_directory(cluster::Context& context, const HeldDirectory& directory,
                         std::shared_ptr<checkpoint::DirectoryLock>& lock) {
  const auto held = std::exchange(lock, nullptr);
  cluster::Recovery* const recovery = directory.recovers ? context.recovery() : nullptr;
  if (held == nullptr || recovery == nullptr) return;
  // Several ranks that train alone have other names in each generation.
  const bool has_lasting_name = directory.is_shared || context.size() == 1;
  if (!has_lasting_name || !begins_anew(*recovery)) return;
  checkpoint::hand_on_lock(checkpoint::directory_lock_path(directory.path));
  context.keep(held);  // where it cannot begin anew
}

}  // namespace tessera::train
