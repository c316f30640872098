// KeptTraining: a training's values and where it stands, in memory that outlives the process (cluster/recovery): after
// a rank was lost the training goes on from there. Values that all ranks have alike are copied there beside the next
// step, each before it changes; a rank that is killed meanwhile gets them from one that has them whole. A rank whose
// memory is gone, too, gets the values of another rank, where all ranks are to have the same values, or what its buddy
// has kept for it (buddy_copies.h). In an elastic job, which goes on with another number of ranks, values are put
// together of the pieces that ranks have kept, where these make up all of them; so are they in a job's last generation,
// which saves them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/function_ref.h"
#include "tessera/base/workers/worker.h"
#include "tessera/checkpoint/write/sharing.h"
#include "tessera/cluster/recovery/recovery.h"
#include "tessera/train/core/model_core.h"
#include "tessera/train/kept/buddy_copies.h"
#include "tessera/train/kept/keep_interval.h"
#include "tessera/train/kept/kept_pieces.h"
#include "tessera/train/kept/kept_restores.h"
#include "tessera/train/saving/snapshot.h"
#include "tessera/train/saving/training_identity.h"
#include "tessera/train/saving/training_progress.h"

namespace tessera::train {

class KeptTraining {
 public:
  // Does nothing where the job does not recover. Who is about to change a value finishes `snapshot`, and with it the
  // copy that is kept.
  KeptTraining(ModelCore& core, TrainingIdentity& identity, TrainingProgress& progress, Snapshot& snapshot);
  ~KeptTraining();
  KeptTraining(const KeptTraining&) = delete;
  KeptTraining& operator=(const KeptTraining&) = delete;

  enum class Found {
    kNothing,  // to be trained from where the model stands
    kMiddle,   // values and progress are those after a step of this training
    kDone,     // this training, or a later one of the model, was over: values and progress are those of its end
  };
  // Begins a training whose values lie where its plan wants them: takes what was kept of it. Where nothing was kept,
  // and this is not the job's first generation, it calls `load`, which may load a checkpoint and returns whether it
  // has; not in the job's last generation. Every rank calls it.
  Found begin(const std::function<bool()>& load);
  // Called when a step is done, and what follows on it: copies the values if this step is one that is kept, or begins
  // to. Every rank calls it.
  void keep(bool is_done = false);
  // Does it for this step, whichever steps are kept, unless that is done.
  void keep_now();
  // Until what was begun is whole. Who leaves the process calls it.
  void finish();
  // Whether each step is kept, or every so many.
  bool keeps() const { return keeps_; }
  // Where begin() has found nothing in the job's last generation: why, as what follows on "what was kept is not saved".
  const std::string& why_nothing() const { return why_nothing_; }
  // Where it has found that the training is over: whether a later one has begun.
  bool has_later() const { return has_later_; }
  // The step of the model before the first one of this training, whichever process began it.
  int64_t first_step() const { return first_step_; }
  // The number of this training among those of the process, from 1; 0 where the job does not recover.
  int64_t number() const { return number_; }

 private:
  struct Head;
  struct Version;
  struct Holding;
  using Holdings = std::map<KeptStep, Holding>;

  KeptStep key_of(const Version& version) const;
  std::vector<Version> own_versions();
  std::vector<Version> versions_for_others();
  void set_buddies();
  bool restore(const std::vector<Version>& for_others);
  void restore(const KeptRestore& restore, const std::vector<Version>& own, const std::vector<Version>& for_others);
  bool fits(const Version& version) const;
  std::string lines_of(const std::vector<Version>& versions) const;
  std::vector<Holdings> gather(const std::vector<Version>& versions);
  void measure();
  // How a value lies.
  checkpoint::HeldValue held(const std::string& name) const;
  bool is_common(const std::string& name) const;
  bool may_copy_beside() const;
  bool has_copies(const std::string& name) const;
  KeptPieces pieces_of(const Version& version) const;
  // The head of what is kept now.
  Head head(bool is_done) const;
  void go_on_as(const Head& head, const std::string& data_state);
  // Bytes for the state of the data's source, and what of it is kept: "" where it has no room.
  size_t state_room() const;
  std::string_view kept_state() const;
  void say_state_of(int rank) const;
  bool take(const KeptStep& chosen, const std::vector<Holdings>& kept, const std::vector<Version>& versions,
            const std::vector<Version>& for_others);
  void take(const Version& version);
  bool take_pieces(const std::vector<const Version*>& here);
  void take_value(const std::string& name, const std::vector<PieceSource>& sources, const std::vector<int>& ranks,
                  const std::vector<const Version*>& held_here);
  // Gives all ranks what the root has there.
  void share(void* data, size_t size_bytes, int root);
  // Until another model is trained that keeps its values in the same memory.
  void own_memory();
  void write(bool is_done);
  void write_version(bool is_done);
  void agree_on_keeping();
  int64_t cost_ns() const;
  void agree_on_interval();
  void give_copies(const std::vector<Holdings>& kept, FunctionRef<bool(const Holdings&)> has);
  bool are_copies() const;
  bool trains_together() const;
  // Whether this generation only saves what was kept.
  bool is_last() const { return !recovery_->last_reason().empty(); }
  // Of those that train together.
  int64_t num_ranks() const;
  int64_t own_rank() const;

  ModelCore& core_;
  TrainingIdentity& identity_;
  TrainingProgress& progress_;
  cluster::Recovery* recovery_;
  int64_t model_ = 0;
  int64_t number_ = 0;
  int64_t first_step_ = 0;
  bool keeps_ = false;
  KeepInterval interval_{1};
  int64_t waited_ns_ = 0;  // for what write() has done itself
  std::string why_nothing_;
  std::string missing_;  // of the step that take() was given last, in words
  bool has_later_ = false;
  bool is_out_of_memory_ = false;  // this process has nowhere to keep anything
  bool has_said_state_ = false;    // that it has no room
  // Of what is kept: the names of the values in the order in which they lie, its bytes, and those up to the first value
  // that every rank has; which pieces of the values they are, and hashes of the names and types of all values and of
  // those that every rank has.
  std::vector<std::string> order_;
  size_t size_bytes_ = 0;
  size_t own_bytes_ = 0;
  std::string pieces_text_;
  uint64_t fingerprint_ = 0;
  uint64_t copies_fingerprint_ = 0;
  std::vector<std::byte> nothing_;  // what a buddy gets where nothing is kept
  std::optional<BuddyCopies> buddies_;
  int64_t kept_step_ = -1;  // by this process, the newest; -1: none
  // Where copies are made beside the next step: the version that this process began last, in this training.
  bool copies_beside_ = false;
  std::byte* newest_ = nullptr;
  Snapshot& snapshot_;
  Snapshot copies_;  // to the kept memory
  Worker copier_{{.purpose = "keeping a step beside the next one", .gives_way = true}};
};

}  // namespace tessera::train
