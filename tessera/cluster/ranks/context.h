// Context: what one rank knows of the job it belongs to. Created once by cluster::run (or by a test's run_ranks) and
// passed to whoever needs it; there is no global one.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/base/files/file_system.h"
#include "tessera/cluster/ranks/training_figures.h"
#include "tessera/cluster/recovery/recovery.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/rank_progress.h"
#include "tessera/comm/speed.h"
#include "tessera/timeline/timeline_recorder.h"

namespace tessera::cluster {

inline constexpr const char* kWorldGroup = "world";

class Context {
 public:
  virtual ~Context() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;  // among the ranks of this host
  virtual int local_size() const = 0;
  // How many ranks, the job's first ones, keep parameters, as the launcher says; 0 where it says nothing.
  virtual int num_servers() const { return 0; }
  // What the launcher calls the job, the same on all ranks; "" where there was no launcher.
  virtual std::string job_id() const { return ""; }
  // "single", "threads", "shared memory", "gloo", "mpi", on several hosts "shared memory and gloo": for messages.
  virtual std::string transport() const = 0;
  // Threads that this rank computes with: given by the launcher, else the host's cores divided by its ranks, at
  // least 1.
  virtual int num_compute_threads() const = 0;

  // The group of all ranks, named kWorldGroup.
  comm::Communicator& world() { return group(kWorldGroup); }
  // Makes a group of these world ranks (distinct, in this order). Every rank of the world calls it, in the same order;
  // a rank outside the group gets nullptr and may not use it. Throws InvalidArgument for a name in use, a repeated or
  // unknown rank.
  virtual comm::Communicator* create_group(const std::string& name, const std::vector<int>& ranks) = 0;
  virtual void destroy_group(const std::string& name) = 0;
  // Throws InvalidArgument naming the groups that exist.
  virtual comm::Communicator& group(const std::string& name) = 0;
  virtual bool has_group(const std::string& name) const = 0;
  // A name for a group that one part of the program makes beside others: `wanted` at the first call for it, `wanted #2`
  // at the second. No name is given twice, and none that a group has. Ranks that ask for the same names in the same
  // order get the same, whenever they end their groups.
  virtual std::string new_group_name(const std::string& wanted) = 0;
  // Both throw InvalidArgument when the rank is not in the group.
  int world_rank_of(const std::string& group_name, int group_rank);
  int group_rank_of(const std::string& group_name, int world_rank);

  // How fast the world's ranks communicate, the same figures on all of them; measured at the first call, which every
  // rank makes. Where there is one rank, nothing is measured.
  virtual const comm::GroupSpeed& speed() = 0;

  // Address space on a page boundary, whose bytes the other ranks of this host reach where they lie, so that
  // collectives copy nothing; zeroed memory is taken as it is touched. Null where no memory is better for that than any
  // other: of one rank, of threads, across hosts, and where the limit of a file's size (ulimit -f), as which shared
  // memory counts, is smaller. Throws IoError when there is none. It must go before the context does.
  virtual std::shared_ptr<void> reserve_shared_memory(size_t size_bytes) = 0;
  // Returns the same memory, or where there is none memory of this process alone. Good for gradients and parameters.
  std::shared_ptr<void> allocate_communication_memory(size_t size_bytes);

  // What this rank has where its job goes on when a rank is lost; nullptr where a loss is the end of the job.
  virtual Recovery* recovery() { return nullptr; }
  // For those who look at the job: the training step that this rank has finished. Costs a few nanoseconds.
  virtual void report_step(int64_t /*step*/) {}

  // Whether somebody may look how this rank's training goes while it runs, as on the page of `tessera run --dashboard`.
  bool wants_figures() const { return static_cast<bool>(tell_figures_); }
  // Tells them, without waiting for anybody. To be called about once a second, and at the end of a training; does
  // nothing where nobody looks.
  void report_figures(const TrainingFigures& figures) {
    if (tell_figures_) tell_figures_(figures);
  }
  // From now on report_figures() calls `tell`, which must not block nor throw; empty: nobody looks.
  void set_figures_reader(std::function<void(const TrainingFigures&)> tell) { tell_figures_ = std::move(tell); }

  // Keeps `what` as long as this context.
  void keep(std::shared_ptr<void> what) { kept_.push_back(std::move(what)); }

  // Where this rank says how far it is, for threads that look on; null where nobody does.
  virtual comm::RankProgress* progress() { return nullptr; }
  // Where this rank's timeline is recorded, while one is (docs/timeline.md); null where none can be.
  virtual timeline::TimelineRecorder* recorder() { return nullptr; }
  // Writes what this rank knows of its failure, for `tessera cluster why`, where the job has a folder for that. abort()
  // does it, too. `origin` and `message` are as there. It throws nothing.
  virtual void write_report(int /*origin*/, const std::string& /*message*/) {}

  // Tells the other ranks that this one fails, so that their waits end at once with `message` and the number of the
  // rank with whose failure it began: `origin`, this one where none is named.
  virtual void abort(int origin, const std::string& message) = 0;
  void abort(const std::string& message) { abort(rank(), message); }
  // Ends this rank's part of the job: it makes no more calls. Returns when all ranks have come here, however long they
  // work; throws comm::PeerFailure when one of them fails instead. cluster::run calls it after the program's function.
  virtual void finish() {}

  virtual FileSystem& file_system() { return FileSystem::local(); }
  virtual Clock& clock() { return Clock::system(); }

 private:
  std::function<void(const TrainingFigures&)> tell_figures_;
  std::vector<std::shared_ptr<void>> kept_;
};

// A job of one rank.
std::unique_ptr<Context> single_context(int num_compute_threads = 0);

}  // namespace tessera::cluster
