// Recovery: what each rank has in a job that goes on when a rank is lost: memory that outlives its process, and a way
// into the next generation, in which its program begins anew.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tessera/base/error.h"
#include "tessera/cluster/recovery/kept_memory.h"

namespace tessera::cluster {

// Resizing is thrown by what all ranks have agreed to leave at one point, so that the next generation of their job
// begins with another number of ranks. Each of them begins anew then.
class Resizing : public Error {
 public:
  using Error::Error;
};

// Misfit is thrown by a rank that would do something else than its job does. It leaves the job, which goes on.
class Misfit : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

// JobStopped is thrown by all ranks once what they have is saved, where the job was asked for a number of ranks that it
// cannot have, or ends by a loss. The job ends with its words.
class JobStopped : public Error {
 public:
  using Error::Error;
};

class Recovery {
 public:
  virtual ~Recovery() = default;

  // The generation that this rank is in, counted from 1; the same on all ranks.
  virtual uint64_t generation() const = 0;
  // Whether the generation has failed, as far as this rank has heard: a rank of it was lost, or has begun anew.
  virtual bool has_failed() const = 0;
  virtual KeptMemory& memory() = 0;
  // What keeps memory(), as HOST/KEEPER: ranks for which it is the same lose theirs together. "": nobody knows.
  virtual std::string keeper() const { return ""; }
  // More memory of that kind, for what this rank keeps for others; null where there is none.
  virtual KeptMemory* memory_for_others() { return nullptr; }
  // The values of a training are kept every so many steps; 1: after each step; 0: so often that it takes no more than
  // a hundredth of the training's time.
  virtual int64_t keep_steps() const = 0;
  // Ends this process's part in its generation and starts its program again in its place, with the arguments and the
  // environment that it began with. Returns only where that is impossible, and says why: the job is over, another
  // process has taken this one's place, or the system refuses.
  virtual std::string begin_anew(const std::string& why) = 0;
  // The same where the job has planned it, and `why` says what is planned. `speaks`: this rank says so for all.
  virtual std::string begin_anew_as_planned(const std::string& why, bool /*speaks*/) { return begin_anew(why); }
  // What the job has planned, where the generation has ended for that; "" where it has ended otherwise, or not. Waits a
  // moment for the scheduler's word: a rank that begins anew is missed by the others before they have heard why.
  virtual std::string planned_end() { return ""; }
  // Why the job goes on without this rank, whose process is to end then; "" where it does not.
  virtual std::string why_dropped() const { return ""; }
  // Whether a launcher has started this process, and says what becomes of it.
  virtual bool has_launcher() const { return false; }

  // Whether the job is elastic: another generation may have another number of ranks.
  virtual bool is_elastic() const { return false; }
  // How many ranks wait until an elastic job takes them in, as far as this rank has heard.
  virtual int num_newcomers() const { return 0; }
  // Says that what this job trains cannot go on with another number of ranks, and why: its ranks are waited for then.
  // `unsaved_for`: why it would save nothing if it was asked for another number and stopped; "" where it would save.
  virtual void fix_ranks(const std::string& /*why*/, const std::string& /*unsaved_for*/) {}
  // This rank is about to end, and does not come back: an elastic job goes on without it at once.
  virtual void leave_for_good() {}

  // A text of the job that outlives its generations; nullopt where nobody has set it. `name` is one that the scheduler
  // keeps (find_blob_rules()). Throws IoError where the scheduler does not answer in time.
  virtual std::optional<std::string> find_state(const std::string& name) = 0;
  // Replaces it; one rank does.
  virtual void set_state(const std::string& name, const std::string& text) = 0;

  // What this process has given fix_ranks() last; "" where it has called it never.
  virtual std::string fixed_by() const { return ""; }
  // Why the ranks are to save the step that they are in and to stop, as far as this one has heard: the job was asked
  // for a number of ranks that it cannot have. "" where they are not.
  virtual std::string stop_reason() const { return ""; }

  // Says whether the ranks that are left would save what is trained if the job ended by a loss: a training goes on, and
  // `unsaved_for` is "", or says why they would not. One rank says it for all.
  virtual void tell_last_save(bool /*is_training*/, const std::string& /*unsaved_for*/) {}
  // Why the job ends with this generation, whose ranks save what they have kept and train no more; "" where it does
  // not.
  virtual std::string last_reason() const { return ""; }

  // Counts the things of a kind that this process makes: returns 1 for the first one, 2 for the second, and so on.
  int64_t next_number(const std::string& kind) { return ++numbers_[kind]; }

 private:
  std::map<std::string, int64_t> numbers_;
};

}  // namespace tessera::cluster
